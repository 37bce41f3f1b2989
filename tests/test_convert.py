"""What goes into the GGUF's general.* fields, and how a converter or quantizer that fails is said."""

import stat
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import convert, core, process, quantize
from scripts.core import BuildError
from tests import verify_samples as samples
from tests.errors_table import Said

INPUTS = {
    role: {"repo": f"Owner/{role.title()}", "commit": str(index) * 40} for index, role in enumerate(("draft", "target"))
}


def _draft(folder: Path, metadata: dict[str, Any] | None) -> Path:
    folder.mkdir(exist_ok=True)
    if metadata is not None:
        (folder / "README.md").write_text(f"---\n{yaml.safe_dump(metadata)}---\n# Draft\n")
    return folder


def test_the_license_is_the_drafts(tmp_path: Path) -> None:
    declared = {"license": "other", "license_name": "qwen", "license_link": "LICENSE", "tags": ["x"]}
    assert convert.license_of(_draft(tmp_path, declared), None) == {
        "license": "other",
        "license_name": "qwen",
        "license_link": "LICENSE",
    }


def test_the_configs_license_counts_only_where_the_draft_declares_none(tmp_path: Path) -> None:
    assert convert.license_of(_draft(tmp_path / "a", {"license": "mit"}), "apache-2.0") == {"license": "mit"}
    assert convert.license_of(_draft(tmp_path / "b", {"tags": ["x"]}), "apache-2.0") == {"license": "apache-2.0"}


@pytest.mark.parametrize("metadata", [None, {}, {"tags": ["dflash"]}])
def test_a_draft_without_a_license_stops(metadata: dict[str, Any] | None, tmp_path: Path, said: Said) -> None:
    with pytest.raises(BuildError, match=r"declares no license .*: set `license` of the pair in the config") as caught:
        convert.license_of(_draft(tmp_path, metadata), None)
    said("Conversion: a draft without a license", caught.value)


def test_a_readme_with_broken_metadata_is_one_line(tmp_path: Path, said: Said) -> None:
    _draft(tmp_path, {})
    (tmp_path / "README.md").write_text("---\nlicense: [\n---\n")
    with pytest.raises(BuildError, match="README metadata cannot be read") as caught:
        convert.license_of(tmp_path, None)
    assert "\n" not in str(caught.value)
    said("Conversion: a README whose metadata is no YAML", caught.value)


def test_general_fields_name_the_draft_first_then_the_target() -> None:
    fields = convert.general("Name", {"license": "mit"}, 1_291_886_592, INPUTS, "someone")
    assert fields["general.base_model.count"] == 2
    assert fields["general.base_model.0.repo_url"] == "https://huggingface.co/Owner/Draft"
    assert fields["general.base_model.1.version"] == "1" * 40
    assert fields["general.size_label"] == "1.3B"
    assert fields["general.quantized_by"] == "someone"
    assert "general.quantized_by" not in convert.general("Name", {"license": "mit"}, 1, INPUTS, None)


def test_what_the_converter_would_guess_is_overridden_with_nothing() -> None:
    override = convert.override(convert.general("Name", {"license": "mit"}, 1, INPUTS, None))
    assert override["general.organization"] is None
    assert override["general.name"] == "Name"
    assert [model["name"] for model in override["general.base_models"]] == ["Draft", "Target"]
    assert not [key for key in override if key.startswith("general.base_model.")]


def _header(tensors: int) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, 0)


@pytest.mark.parametrize("content", [b"", b"GGUF", b"<!doctype html><title>not found</title>"])
def test_what_is_not_a_gguf_is_one_line(content: bytes, tmp_path: Path, said: Said) -> None:
    (tmp_path / "x.gguf").write_bytes(content)
    with pytest.raises(BuildError, match="not a GGUF file") as caught:
        convert.gguf_counts(tmp_path / "x.gguf")
    said(f"Conversion: {content.decode()!r} in place of a GGUF", caught.value)


def test_an_unknown_pre_tokenizer_is_said_with_its_hash_and_the_versions(tmp_path: Path, said: Said) -> None:
    tail = [
        "WARNING:hf-to-gguf:** WARNING: The BPE pre-tokenizer was not recognized!",
        f"WARNING:hf-to-gguf:** chkhsh:  {'ab' * 32}",
        "NotImplementedError: BPE pre-tokenizer was not recognized - update get_vocab_base_pre()",
    ]
    error = convert.converter_failed(1, tail, tmp_path / "target", tmp_path / "llama-cpp-python-0.3.36", tmp_path / "x")
    assert f"hash {'ab' * 32}, transformers 5." in str(error)
    assert "the converter of llama-cpp-python-0.3.36 does not know this pre-tokenizer" in str(error)
    assert "never patch the hash" in str(error)
    said("Conversion: an unknown pre-tokenizer", error)


def _program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def converting(tmp_path: Path) -> Callable[[str], None]:
    """Runs the convert step with a stand-in for the converter that does what the given lines of Python say."""
    samples.write_draft(tmp_path / "draft")
    (tmp_path / "draft" / "README.md").write_text("---\nlicense: mit\n---\n")
    samples.write_target(tmp_path / "target")

    def run(script: str) -> None:
        program = tmp_path / "toolchain" / "llama.cpp" / "convert_hf_to_gguf.py"
        program.parent.mkdir(parents=True)
        program.write_text(f"import sys\nout = sys.argv[sys.argv.index('--outfile') + 1]\n{script}\n")
        draft, target, toolchain = (tmp_path / folder for folder in ("draft", "target", "toolchain"))
        convert.convert(draft, target, toolchain, tmp_path / "out" / "bf16.gguf", name="Name", inputs=INPUTS)

    return run


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (f"open(out, 'wb').write({_header(0)!r} + bytes(1 << 20))", "every tensor was written: 0 of 25 tensors"),
        (f"open(out, 'wb').write({_header(25)!r})", "every tensor was written: 25 of 25 tensors, 24 bytes for"),
        ("pass", "the converter ended well and wrote no GGUF file"),
        ("sys.exit('RuntimeError: no such tensor')", "ended with exit code 1: RuntimeError: no such tensor"),
    ],
    ids=["exits 0 and writes no tensors", "exits 0 and writes no data", "exits 0 and writes nothing", "fails"],
)
def test_a_converter_that_writes_no_weights(
    script: str, message: str, converting: Callable[[str], None], tmp_path: Path, said: Said
) -> None:
    with pytest.raises(BuildError, match=message) as caught:
        converting(script)
    assert list((tmp_path / "out").iterdir()) == []
    said("Conversion: a converter that {id}", caught.value)


HELP = 'if [ "$1" = --help ]; then echo "   7  or  Q8_0    :  7.96G, +0.0026 ppl"; exit 0; fi'


@pytest.fixture
def bf16(tmp_path: Path) -> Path:
    (tmp_path / "in.gguf").write_bytes(_header(25))
    return tmp_path / "in.gguf"


def test_an_unknown_quant_names_the_known_ones(bf16: Path, tmp_path: Path, said: Said) -> None:
    _program(tmp_path / "bin" / "llama-quantize", HELP)
    with pytest.raises(BuildError, match=r"unknown quant Q9_9 .*: use bf16 or one of .*Q8_0") as caught:
        quantize.quantize(bf16, tmp_path / "out.gguf", "Q9_9", tmp_path, 1)
    assert not (tmp_path / "out.gguf").exists()
    said("Quantization: a quant that this llama-quantize does not know", caught.value)


def test_a_quantizer_that_fails_leaves_nothing(bf16: Path, tmp_path: Path, said: Said) -> None:
    _program(tmp_path / "bin" / "llama-quantize", f'{HELP}\nprintf half > "$2"; echo "error: no space" >&2; exit 3')
    with pytest.raises(BuildError, match="llama-quantize ended with exit code 3: error: no space") as caught:
        quantize.quantize(bf16, tmp_path / "out.gguf", "Q8_0", tmp_path, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "in.gguf"]
    said("Quantization: a quantizer that fails", caught.value)


def test_a_quantizer_that_writes_nothing(bf16: Path, tmp_path: Path, said: Said) -> None:
    _program(tmp_path / "bin" / "llama-quantize", HELP)
    with pytest.raises(BuildError, match="llama-quantize ended well and wrote no GGUF file") as caught:
        quantize.quantize(bf16, tmp_path / "out.gguf", "Q8_0", tmp_path, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "in.gguf"]
    said("Quantization: a quantizer that exits 0 and writes nothing", caught.value)


def test_a_quantizer_that_loses_tensors(bf16: Path, tmp_path: Path, said: Said) -> None:
    (tmp_path / "short").write_bytes(_header(24))
    _program(tmp_path / "bin" / "llama-quantize", f'{HELP}\ncp {tmp_path}/short "$2"')
    with pytest.raises(BuildError, match="llama-quantize wrote 24 of 25 tensors") as caught:
        quantize.quantize(bf16, tmp_path / "out.gguf", "Q8_0", tmp_path, 1)
    assert not (tmp_path / "out.gguf").exists()
    said("Quantization: a quantizer that loses tensors", caught.value)


def test_programs_see_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "MY_PASSWORD", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "canary")
    assert "canary" not in process.environment({"HF_HUB_OFFLINE": "1"}).values()


def test_a_programs_lines_arrive_as_they_come_bars_included() -> None:
    lines: list[str] = []
    code, tail = process.stream(["sh", "-c", r'printf "a 1%%\ra 2%%\nlast\n" >&2; exit 4'], lines.append)
    assert (code, lines, tail) == (4, ["a 1%", "a 2%", "last"], ["a 1%", "a 2%", "last"])


def test_a_program_ends_with_the_reader() -> None:
    def stop(line: str) -> None:
        raise core.BuildError("enough", "here", "stop")

    with pytest.raises(BuildError):
        process.stream(["sh", "-c", "echo one; sleep 60"], stop)
