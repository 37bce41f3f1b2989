"""What goes into the GGUF's general.* fields, and how a converter or quantizer that fails is said."""

import stat
import struct
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import convert, core, process, quantize
from scripts.core import BuildError

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
def test_a_draft_without_a_license_stops(metadata: dict[str, Any] | None, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"declares no license .*: set `license` of the pair in the config"):
        convert.license_of(_draft(tmp_path, metadata), None)


def test_a_readme_with_broken_metadata_is_one_line(tmp_path: Path) -> None:
    _draft(tmp_path, {})
    (tmp_path / "README.md").write_text("---\nlicense: [\n---\n")
    with pytest.raises(BuildError, match="README metadata cannot be read") as caught:
        convert.license_of(tmp_path, None)
    assert "\n" not in str(caught.value)


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
def test_what_is_not_a_gguf_is_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(content)
    with pytest.raises(BuildError, match="not a GGUF file"):
        convert.gguf_counts(tmp_path / "x.gguf")


def test_an_unknown_pre_tokenizer_is_said_with_its_hash_and_the_versions(tmp_path: Path) -> None:
    tail = [
        "WARNING:hf-to-gguf:** WARNING: The BPE pre-tokenizer was not recognized!",
        f"WARNING:hf-to-gguf:** chkhsh:  {'ab' * 32}",
        "NotImplementedError: BPE pre-tokenizer was not recognized - update get_vocab_base_pre()",
    ]
    error = convert.converter_failed(1, tail, tmp_path, tmp_path / "out.gguf")
    assert f"hash {'ab' * 32}, transformers 5." in str(error)
    assert "never patch the hash" in str(error)


def _program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


HELP = 'if [ "$1" = --help ]; then echo "   7  or  Q8_0    :  7.96G, +0.0026 ppl"; exit 0; fi'


@pytest.fixture
def bf16(tmp_path: Path) -> Path:
    (tmp_path / "in.gguf").write_bytes(_header(25))
    return tmp_path / "in.gguf"


def test_an_unknown_quant_names_the_known_ones(bf16: Path, tmp_path: Path) -> None:
    _program(tmp_path / "bin" / "llama-quantize", HELP)
    with pytest.raises(BuildError, match=r"unknown quant Q9_9 .*: use bf16 or one of .*Q8_0"):
        quantize.quantize(bf16, tmp_path / "out.gguf", "Q9_9", tmp_path, 1)
    assert not (tmp_path / "out.gguf").exists()


def test_a_quantizer_that_fails_leaves_nothing(bf16: Path, tmp_path: Path) -> None:
    _program(tmp_path / "bin" / "llama-quantize", f'{HELP}\nprintf half > "$2"; echo "error: no space" >&2; exit 3')
    with pytest.raises(BuildError, match="llama-quantize ended with exit code 3: error: no space"):
        quantize.quantize(bf16, tmp_path / "out.gguf", "Q8_0", tmp_path, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "in.gguf"]


def test_a_quantizer_that_loses_tensors(bf16: Path, tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(_header(24))
    _program(tmp_path / "bin" / "llama-quantize", f'{HELP}\ncp {tmp_path}/short "$2"')
    with pytest.raises(BuildError, match="llama-quantize wrote 24 of 25 tensors"):
        quantize.quantize(bf16, tmp_path / "out.gguf", "Q8_0", tmp_path, 1)
    assert not (tmp_path / "out.gguf").exists()


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
