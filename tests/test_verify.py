"""A GGUF is compared with its sources: every doctored value is caught alone, by its own check."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from scripts.verify import main
from tests import verify_samples as samples
from tests.verify_samples import Bench, Edit, Gguf, failures


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_right_file_passes_with_its_figures(bench: Bench) -> None:
    report = bench.verify()
    assert failures(report) == []
    figures = report.figures
    assert figures["tensors"] == 25
    assert figures["types"] == {"BF16": 15, "F32": 10}
    assert figures["worst_relative_error"] == 0.0
    assert figures["bytes"] == (bench.folder / "file.gguf").stat().st_size
    matrices = sum(bits.size for bits in bench.weights.values() if bits.ndim > 1)
    norms = sum(bits.size for bits in bench.weights.values() if bits.ndim == 1)
    assert figures["bpw"] == pytest.approx((16 * matrices + 32 * norms) / (matrices + norms), abs=1e-3)


def test_the_hashes_are_those_of_the_bytes(bench: Bench) -> None:
    figures = bench.verify().figures
    whole = (bench.folder / "file.gguf").read_bytes()
    assert figures["sha256"] == hashlib.sha256(whole).hexdigest()
    bits = bench.weights["layers.1.mlp.up_proj.weight"]
    assert figures["tensor_sha256"]["blk.1.ffn_up.weight"] == hashlib.sha256(bits.tobytes()).hexdigest()
    assert len(set(figures["tensor_sha256"].values())) == 25


# Metadata: key, doctored value (None: removed), and what the one failing check says.
VALUES: list[tuple[str, Any, str]] = [
    ("general.architecture", "dflash-draft", "is 'dflash-draft'; every loader gives 'dflash'"),
    ("general.name", "draft", "is 'draft'; the build gives 'Sample-Draft'"),
    ("general.file_type", 7, "is 7; BF16 gives 32"),
    ("general.quantization_version", None, "missing; llama.cpp gives 2"),
    ("dflash.block_count", 3, "is 3; config.json gives 2"),
    ("dflash.context_length", 4096, "is 4096; config.json gives 512"),
    ("dflash.embedding_length", 64, "is 64; config.json gives 32"),
    ("dflash.feed_forward_length", 32, "is 32; config.json gives 64"),
    ("dflash.attention.head_count", 4, "is 4; config.json gives 2"),
    ("dflash.attention.head_count_kv", 2, "is 2; config.json gives 1"),
    ("dflash.attention.key_length", 32, "is 32; config.json gives 16"),
    ("dflash.attention.value_length", 32, "is 32; config.json gives 16"),
    ("dflash.attention.layer_norm_rms_epsilon", 1e-5, "is 9.999999747378752e-06; config.json gives 9.99"),
    ("dflash.rope.freq_base", 1e6, "is 1000000.0; config.json gives 10000000.0"),
    ("dflash.rope.freq_base", None, "missing; config.json gives 10000000.0"),
    ("dflash.block_size", 8, "is 8; config.json gives 16"),
    ("dflash.block_size", 16.0, "is 16.0; config.json gives 16"),
    ("dflash.target_layers", None, "missing; config.json gives [2, 4, 6]"),
    ("dflash.target_layers", [1, 3, 5], "is [1, 3, 5]; config.json gives [2, 4, 6]"),
    ("dflash.target_layers", [2, 4], "is [2, 4]; config.json gives [2, 4, 6]"),
    ("dflash.attention.sliding_window", None, "missing; config.json gives 64"),
    ("dflash.attention.sliding_window", 4096, "is 4096; config.json gives 64"),
    ("dflash.attention.sliding_window_pattern", None, "missing; config.json gives [True, False]"),
    ("dflash.attention.sliding_window_pattern", [False, True], "is [False, True]; config.json gives [True, False]"),
    ("dflash.attention.sliding_window_pattern", [1, 0], "is [1, 0]; config.json gives [True, False]"),
    ("dflash.rope.dimension_sections", None, "missing; config.json gives [8, 0, 0, 0]"),
    ("dflash.rope.dimension_sections", [3, 3, 2, 0], "is [3, 3, 2, 0]; config.json gives [8, 0, 0, 0]"),
    ("tokenizer.ggml.model", "llama", "is 'llama'; a Qwen3.5 target gives 'gpt2'"),
    ("tokenizer.ggml.pre", "qwen2", "is 'qwen2'; a Qwen3.5 target gives 'qwen35'"),
    ("tokenizer.ggml.tokens", None, "missing; the target has 30"),
    ("tokenizer.ggml.token_type", None, "missing; the target has 30"),
    ("tokenizer.ggml.merges", ["a b", "ab c"], "2 rows, the target has 3"),
    ("tokenizer.ggml.merges", ["a b", "\u0120 a", "ab c"], "merge 1 is '\u0120 a', the target's 'ab c'"),
    ("tokenizer.ggml.eos_token_id", 7, "is 7; the target's tokenizer_config.json gives 8"),
    ("tokenizer.ggml.padding_token_id", None, "missing; the target's tokenizer_config.json gives 7"),
    ("tokenizer.ggml.bos_token_id", 7, "is 7; the target's files give none"),
    ("tokenizer.ggml.mask_token_id", None, "missing; the draft's config.json gives 25"),
    ("tokenizer.ggml.mask_token_id", 0, "is 0; the draft's config.json gives 25"),
    ("tokenizer.ggml.add_bos_token", True, "is True; the target's tokenizer gives False"),
    ("tokenizer.ggml.add_eos_token", None, "missing; the target's tokenizer gives False"),
    ("tokenizer.chat_template", "{{ x }}", "differs from the target's"),
]


@pytest.mark.parametrize(("key", "value", "message"), VALUES, ids=[f"{key}={value}" for key, value, _ in VALUES])
def test_one_doctored_value_fails_one_check(bench: Bench, key: str, value: Any, message: str) -> None:
    def edit(file: Gguf) -> None:
        if value is None:
            file.drop(key)
        else:
            file.set(key, value)

    report = bench.verify(edit)
    assert len(failures(report)) == 1
    assert failures(report)[0].startswith(f"{key}: {message}")


@pytest.mark.parametrize("key", ["dflash.attention.causal", "dflash.mask_token_id", "qwen3.block_count"])
def test_metadata_that_nothing_calls_for_fails(bench: Bench, key: str) -> None:
    report = bench.verify(lambda file: file.set(key, 1))
    assert failures(report) == [f"no other metadata: not called for by config.json: {key} = 1"]


@pytest.mark.parametrize(
    "text", ["/home/me/draft", "results/../x ../y", "~/models", "C:\\models\\draft", "file:///x", "made in ./build"]
)
def test_a_local_path_in_the_metadata_fails(bench: Bench, text: str) -> None:
    report = bench.verify(lambda file: file.set("general.description", text))
    assert failures(report) == [f"no local paths: general.description = {text!r}"]


@pytest.mark.parametrize("text", ["https://huggingface.co/z-lab/x", "z-lab/Qwen3.5-9B-DFlash", "1/2 and/or 3"])
def test_an_address_or_a_repository_is_no_local_path(bench: Bench, text: str) -> None:
    assert failures(bench.verify(lambda file: file.set("general.description", text))) == []


ROWS: list[tuple[str, int, Any, str]] = [
    ("tokenizer.ggml.tokens", 3, "aB", "token 3 is 'aB', the target's 'ab'"),
    ("tokenizer.ggml.tokens", 9, "[PAD9]", "token 9 is '[PAD9]', the target's '<think>'"),
    ("tokenizer.ggml.tokens", 29, "<|new|>", "token 29 is '<|new|>', the target's '[PAD29]'"),
    ("tokenizer.ggml.token_type", 8, 4, "kind of token 8 is 4, the target's 3"),
    ("tokenizer.ggml.token_type", 20, 1, "kind of token 20 is 1, the target's 5"),
]


@pytest.mark.parametrize(("key", "row", "value", "message"), ROWS)
def test_one_row_of_the_vocabulary_that_differs_is_named(
    bench: Bench, key: str, row: int, value: Any, message: str
) -> None:
    report = bench.verify(lambda file: file.change_row(key, row, value))
    assert failures(report) == [f"{key}: {message}"]


def test_many_differing_tokens_are_counted_and_three_shown(bench: Bench) -> None:
    report = bench.verify(lambda file: file.set("tokenizer.ggml.tokens", [f"x{i}" for i in range(30)]))
    (message,) = failures(report)
    assert message.count("the target's") == 3
    assert message.endswith("30 differ in all")


def test_a_vocabulary_without_its_padding_rows_fails(bench: Bench) -> None:
    report = bench.verify(lambda file: file.set("tokenizer.ggml.tokens", file.values["tokenizer.ggml.tokens"][:11]))
    assert failures(report) == ["tokenizer.ggml.tokens: 11 rows, the target has 30"]


# What the config says otherwise must be called for otherwise.
CONFIGS: list[tuple[dict[str, Any], Edit]] = [
    ({"is_causal": False}, lambda file: file.set("dflash.attention.causal", False)),
    (
        {"layer_types": ["full_attention"] * 2, "sliding_window": None, "use_sliding_window": False},
        lambda file: [file.values.pop(f"dflash.attention.sliding_window{tail}") for tail in ("", "_pattern")],
    ),
    (
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000000,
                "factor": 4.0,
                "original_max_position_embeddings": 128,
                "beta_fast": 32,
            }
        },
        lambda file: file.values.update(
            {
                "dflash.rope.scaling.type": "yarn",
                "dflash.rope.scaling.factor": 4.0,
                "dflash.rope.scaling.original_context_length": 128,
                "dflash.rope.scaling.yarn_beta_fast": 32.0,
            }
        ),
    ),
    (
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000000, "factor": 2}},
        lambda file: file.values.update({"dflash.rope.scaling.type": "linear", "dflash.rope.scaling.factor": 2.0}),
    ),
]


@pytest.mark.parametrize(("changes", "edit"), CONFIGS, ids=["causal", "no window", "yarn", "linear"])
def test_what_the_config_adds_or_leaves_out_is_called_for(bench: Bench, changes: dict[str, Any], edit: Edit) -> None:
    bench.config(**changes)
    assert failures(bench.verify(edit)) == []
    assert failures(bench.verify()) != []


def test_a_target_without_sections_wants_none(bench: Bench) -> None:
    samples.write_json(bench.target / "config.json", {"hidden_size": 32})
    report = bench.verify()
    assert failures(report) == [
        "no other metadata: not called for by config.json: dflash.rope.dimension_sections = [8, 0, 0, 0]"
    ]
    assert failures(bench.verify(lambda file: file.drop("dflash.rope.dimension_sections"))) == []


GENERAL = {
    "general.name": samples.NAME,
    "general.license": "apache-2.0",
    "general.base_model.0.repo_url": "https://huggingface.co/z-lab/Sample-Draft",
}


def test_the_general_fields_are_those_of_the_build(bench: Bench) -> None:
    assert failures(bench.verify(general=GENERAL, only_these=True)) == []
    assert failures(bench.verify(general={**GENERAL, "general.license": "mit"}, only_these=True)) == [
        "general.license: is 'apache-2.0'; the build gives 'mit'"
    ]
    assert failures(bench.verify(general={**GENERAL, "general.tags": ["dflash"]}, only_these=True)) == [
        "general.tags: missing; the build gives ['dflash']"
    ]


def test_a_general_field_that_the_build_did_not_give_fails(bench: Bench) -> None:
    report = bench.verify(lambda file: file.set("general.finetune", "x"), general=GENERAL, only_these=True)
    assert failures(report) == ["no other general.*: not given by the build: general.finetune = 'x'"]


def arguments(bench: Bench, gguf_path: Path) -> list[str]:
    report = bench.folder / "report.json"
    paths = {"gguf": gguf_path, "draft": bench.draft, "target": bench.target, "report": report}
    return ["--quant", "bf16", *(f"--{key}={path}" for key, path in paths.items())]


def test_the_command_writes_the_report_of_a_right_file(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments(bench, bench.gguf()), "--name", samples.NAME]) == 0
    report = json.loads((bench.folder / "report.json").read_text(encoding="utf-8"))
    assert report["ok"] is True
    assert report["quant"] == "bf16"
    assert capsys.readouterr().err.startswith("verified file.gguf: ")


def test_the_command_says_one_line_for_each_fault_and_writes_no_report(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    def edit(file: Gguf) -> None:
        file.drop("dflash.target_layers")
        file.set("tokenizer.ggml.pre", "x")

    assert main([*arguments(bench, bench.gguf(edit)), "--name", samples.NAME]) == 1
    first, second, error = capsys.readouterr().err.splitlines()
    assert first == "failed: dflash.target_layers: missing; config.json gives [2, 4, 6]"
    assert second == "failed: tokenizer.ggml.pre: is 'x'; a Qwen3.5 target gives 'qwen35'"
    assert error.startswith("error: dflash.target_layers: missing; config.json gives [2, 4, 6] (and 1 more) (")
    assert not (bench.folder / "report.json").exists()


def test_the_command_names_a_missing_file(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments(bench, bench.folder / "none.gguf"), "--name", samples.NAME]) == 1
    assert capsys.readouterr().err.startswith("error: cannot read the GGUF: No such file or directory (")


def test_the_command_takes_the_fields_from_the_convert_report(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    report = bench.folder / "convert.json"
    samples.write_json(report, {"ok": True, "general": GENERAL})
    line = [*arguments(bench, bench.gguf()), "--convert", str(report)]
    assert main(line) == 0
    samples.write_json(report, {"ok": True, "general": {"general.name": samples.NAME}})
    assert main(line) == 1
    assert "no other general.*: not given by the build: general.base_model.0.repo_url = " in capsys.readouterr().err
    samples.write_json(report, {"ok": True})
    assert main(line) == 1
    assert "error: the convert report names no general.* fields (" in capsys.readouterr().err
