"""A GGUF is compared with its sources: every doctored value is caught alone, by its own check."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from scripts.core import BuildError, Report
from scripts.verify import main, verify
from tests import verify_samples as samples
from tests.verify_samples import Edit, Gguf


class Bench:
    """A draft, its target and a right GGUF, from which doctored ones are made."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.draft, self.target = folder, folder / "draft", folder / "target"
        self.weights = samples.write_draft(self.draft)
        samples.write_target(self.target)

    def gguf(self, edit: Edit = lambda _: None, name: str = "file.gguf") -> Path:
        built = samples.right_gguf(self.weights)
        edit(built)
        return built.write(self.folder / name)

    def verify(self, edit: Edit = lambda _: None, quant: str = "bf16", **options: Any) -> Report:
        options = {"general": {"general.name": samples.NAME}, "only_these": False, **options}
        return verify(self.gguf(edit), self.draft, self.target, quant, **options)

    def config(self, **changes: Any) -> None:
        samples.write_json(self.draft / "config.json", {**samples.CONFIG, **changes})


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def failures(report: Report) -> list[str]:
    return [f"{check.name}: {check.detail}" for check in report.checks if not check.ok]


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
    report = bench.verify(lambda file: file.drop(key) if value is None else file.set(key, value))
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
        lambda file: [file.drop(f"dflash.attention.sliding_window{tail}") for tail in ("", "_pattern")],
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


def swap(first: str, second: str) -> Edit:
    def edit(file: Gguf) -> None:
        file.tensors[first], file.tensors[second] = file.tensors[second], file.tensors[first]

    return edit


def flip_bit(name: str) -> Edit:
    def edit(file: Gguf) -> None:
        data, kind = file.tensors[name]
        data = data.copy()
        data.reshape(-1).view(np.uint8)[5] ^= 1
        file.tensors[name] = (data, kind)

    return edit


TENSORS: list[tuple[str, Edit, str]] = [
    ("bit of a matrix", flip_bit("blk.1.attn_v.weight"), "bit for bit: blk.1.attn_v.weight differs in 1 values"),
    ("bit of a norm", flip_bit("output_norm.weight"), "bit for bit: output_norm.weight differs in 1 values"),
    ("K and V", swap("blk.0.attn_k.weight", "blk.0.attn_v.weight"), "bit for bit: blk.0.attn_k.weight differs in"),
    ("gate and up", swap("blk.1.ffn_gate.weight", "blk.1.ffn_up.weight"), "bit for bit: blk.1.ffn_gate.weight"),
    ("norms", swap("blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"), "bit for bit: blk.0.attn_norm.weight"),
    ("top norms", swap("enc.output_norm.weight", "output_norm.weight"), "bit for bit: enc.output_norm.weight"),
    ("layers", swap("blk.0.ffn_down.weight", "blk.1.ffn_down.weight"), "bit for bit: blk.0.ffn_down.weight"),
    (
        "shape",
        swap("blk.0.attn_q.weight", "blk.0.attn_k.weight"),
        "tensor shapes: blk.0.attn_q.weight is [16, 32], not [32, 32]",
    ),
    (
        "norm as BF16",
        lambda file: file.tensors.update(
            {"output_norm.weight": (samples.to_bits(file.tensors["output_norm.weight"][0]).view(np.uint8), "BF16")}
        ),
        "tensor types: output_norm.weight is BF16, not F32",
    ),
    (
        "matrix as F16",
        lambda file: file.tensors.update({"fc.weight": (np.zeros((32, 96), np.float16), "F16")}),
        "tensor types: fc.weight is F16, not BF16",
    ),
]


@pytest.mark.parametrize(("edit", "message"), [row[1:] for row in TENSORS], ids=[row[0] for row in TENSORS])
def test_one_doctored_tensor_fails_one_check(bench: Bench, edit: Edit, message: str) -> None:
    (found,) = failures(bench.verify(edit))
    assert found.startswith(message)


def test_a_missing_tensor_is_named(bench: Bench) -> None:
    report = bench.verify(lambda file: file.tensors.pop("blk.1.attn_k_norm.weight"))
    assert failures(report) == [
        "tensor count: 24 tensors, 25 expected",
        "tensor names: missing: blk.1.attn_k_norm.weight",
    ]


@pytest.mark.parametrize("name", ["token_embd.weight", "output.weight"])
def test_a_vocabulary_matrix_is_not_part_of_a_draft(bench: Bench, name: str) -> None:
    report = bench.verify(lambda file: file.tensors.update({name: (np.zeros((30, 32), np.float32), "F32")}))
    assert failures(report)[:2] == ["tensor count: 26 tensors, 25 expected", f"tensor names: not of a draft: {name}"]


def test_a_file_without_tensors_fails(bench: Bench) -> None:
    assert "tensor count: 0 tensors, 25 expected" in failures(bench.verify(lambda file: file.tensors.clear()))


def test_weights_that_are_no_numbers_fail(bench: Bench) -> None:
    name = "layers.0.mlp.up_proj.weight"
    bench.weights[name][3, 7] = 0x7FC0
    (bench.draft / "model.safetensors").write_bytes(samples.safetensors_bytes(bench.weights))
    assert failures(bench.verify()) == ["finite weights: infinite or not a number: blk.0.ffn_up.weight has 1"]


@pytest.mark.parametrize("quant", ["Q8_0", "Q4_0", "Q5_1"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_quantized_file_passes_within_its_limit(bench: Bench, quant: str, threads: int) -> None:
    bench.config(head_dim=32)
    bench.weights = samples.write_draft(bench.draft, {**samples.CONFIG, "head_dim": 32})
    report = bench.verify(lambda file: quantize_wide(file, bench, quant), quant, threads=threads)
    assert failures(report) == []
    worst = report.figures["worst_by_type"][quant]
    assert 0 < worst["error"] == report.figures["worst_relative_error"] < worst["limit"]
    # The same figure, computed at once and not in blocks.
    values = {samples.gguf_name(name): samples.to_values(bits) for name, bits in bench.weights.items()}
    source = values[worst["tensor"]]
    found = gguf.dequantize(samples.quantized(source, quant), gguf.GGMLQuantizationType[quant])
    assert worst["error"] == pytest.approx(np.linalg.norm(found - source) / np.linalg.norm(source), rel=1e-3)


def quantize_wide(file: Gguf, bench: Bench, quant: str) -> None:
    for key in ("key_length", "value_length"):
        file.set(f"dflash.attention.{key}", 32)
    file.set("dflash.rope.dimension_sections", [16, 0, 0, 0])
    file.quantize(quant, bench.weights)


@pytest.fixture
def wide(bench: Bench) -> Bench:
    """The bench with heads of 32, so that every row fits blocks of 32 weights."""
    bench.weights = samples.write_draft(bench.draft, {**samples.CONFIG, "head_dim": 32})
    return bench


def test_a_tensor_above_its_limit_is_named(wide: Bench) -> None:
    def edit(file: Gguf) -> None:
        quantize_wide(file, wide, "Q8_0")
        swap("blk.0.ffn_gate.weight", "blk.0.ffn_up.weight")(file)

    (found,) = failures(wide.verify(edit, "Q8_0"))
    assert re.match(r"relative error Q8_0: 2 of 15 over \(limit 0.012\): blk.0.ffn_(gate|up).weight 1\.", found)


def test_weights_that_were_quantized_twice_are_above_the_limit(wide: Bench) -> None:
    def edit(file: Gguf) -> None:
        quantize_wide(file, wide, "Q8_0")
        coarse = samples.quantized(samples.to_values(wide.weights["fc.weight"]), "Q4_0")
        values = gguf.dequantize(coarse, gguf.GGMLQuantizationType.Q4_0)
        file.tensors["fc.weight"] = (samples.quantized(values, "Q8_0"), "Q8_0")

    (found,) = failures(wide.verify(edit, "Q8_0"))
    assert found.startswith("relative error Q8_0: 1 of 15 over (limit 0.012): fc.weight 0.0")


def test_a_scale_that_is_no_number_fails(wide: Bench) -> None:
    def edit(file: Gguf) -> None:
        quantize_wide(file, wide, "Q8_0")
        data = file.tensors["fc.weight"][0].copy()
        data[0, :2] = (0, 0x7E)  # a half-precision nan as the first block's scale
        file.tensors["fc.weight"] = (data, "Q8_0")

    found = failures(wide.verify(edit, "Q8_0"))
    assert found[0] == "finite weights: infinite or not a number: fc.weight has 32"
    assert found[1].startswith("relative error Q8_0: 1 of 15 over (limit 0.012): fc.weight nan")


def test_limits_can_be_given(wide: Bench) -> None:
    report = wide.verify(lambda file: quantize_wide(file, wide, "Q8_0"), "Q8_0", limits={"Q8_0": 1e-4})
    assert failures(report)[0].startswith("relative error Q8_0: 15 of 15 over (limit 0.0001)")
    report = wide.verify(lambda file: quantize_wide(file, wide, "Q8_0"), "Q8_0", limits={})
    assert "no limit is known for it" in failures(report)[0]


def test_a_fallback_type_is_listed_and_fails_unless_allowed(bench: Bench) -> None:
    """Rows of attn_output have 16 weights with heads of 8, and Q8_0 packs 32."""
    config = {**samples.CONFIG, "head_dim": 8}
    bench.weights = samples.write_draft(bench.draft, config)

    def edit(file: Gguf) -> None:
        for key in ("key_length", "value_length"):
            file.set(f"dflash.attention.{key}", 8)
        file.set("dflash.rope.dimension_sections", [4, 0, 0, 0])
        file.quantize("Q8_0", {name: bits for name, bits in bench.weights.items() if "o_proj" not in name})
        for name, bits in bench.weights.items():
            if "o_proj" in name:
                file.tensors[samples.gguf_name(name)] = (samples.to_values(bits).astype(np.float16), "F16")

    assert failures(bench.verify(edit, "Q8_0")) == [
        "fallback types: blk.0.attn_output.weight is F16, not Q8_0 (rows of 16 weights); "
        "blk.1.attn_output.weight is F16, not Q8_0 (rows of 16 weights)"
    ]
    report = bench.verify(edit, "Q8_0", allow_fallback=True)
    assert failures(report) == []
    assert report.figures["fallback_tensors"] == ["blk.0.attn_output.weight", "blk.1.attn_output.weight"]


def test_the_wrong_type_is_no_fallback(wide: Bench) -> None:
    def edit(file: Gguf) -> None:
        quantize_wide(file, wide, "Q8_0")
        file.tensors["fc.weight"] = (samples.quantized(samples.to_values(wide.weights["fc.weight"]), "Q4_0"), "Q4_0")

    report = wide.verify(edit, "Q8_0", allow_fallback=True)
    assert failures(report) == ["tensor types: fc.weight is Q4_0, not Q8_0"]
    assert "sha256" not in report.figures


def test_a_quantized_file_is_compared_with_the_bf16_file(wide: Bench) -> None:
    def right(file: Gguf) -> None:
        quantize_wide(file, wide, "Q8_0")

    def base(file: Gguf) -> None:
        for key in ("key_length", "value_length"):
            file.set(f"dflash.attention.{key}", 32)
        file.set("dflash.rope.dimension_sections", [16, 0, 0, 0])

    reference = wide.gguf(base, "bf16.gguf")
    report = wide.verify(right, "Q8_0", reference=reference)
    assert failures(report) == []
    assert report.figures["compared_with"] == "bf16.gguf"

    def other(file: Gguf) -> None:
        right(file)
        file.set("general.license", "mit")

    assert failures(wide.verify(other, "Q8_0", reference=reference)) == [
        "metadata of bf16.gguf: differs in general.license"
    ]


def test_a_reference_that_is_no_bf16_file_stops(wide: Bench) -> None:
    reference = wide.gguf(lambda file: quantize_wide(file, wide, "Q8_0"), "q8.gguf")
    with pytest.raises(BuildError, match=r"no bf16 GGUF of this draft: tensor types: .* is Q8_0, not BF16"):
        wide.verify(lambda file: quantize_wide(file, wide, "Q8_0"), "Q8_0", reference=reference)


def test_weights_of_another_config_stop(bench: Bench) -> None:
    bench.config(num_hidden_layers=1, layer_types=["full_attention"])
    with pytest.raises(BuildError, match=r"tensor layers\.1\..*: not part of a plain DFlash draft"):
        bench.verify()


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
    gguf_path = bench.gguf(lambda file: (file.drop("dflash.target_layers"), file.set("tokenizer.ggml.pre", "x")))
    assert main([*arguments(bench, gguf_path), "--name", samples.NAME]) == 1
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
