"""A GGUF's weights are compared with their source: bit for bit, or by their relative error."""

import re
from pathlib import Path

import gguf
import numpy as np
import pytest

from scripts.core import BuildError
from scripts.verify import CHOOSE
from tests import verify_samples as samples
from tests.errors_table import Said
from tests.verify_samples import Bench, Edit, Gguf, failures


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


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


def test_a_fallback_type_is_listed_and_fails_unless_allowed(bench: Bench, said: Said) -> None:
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

    found = bench.verify(edit, "Q8_0")
    assert failures(found) == [
        "fallback types: blk.0.attn_output.weight is F16, not Q8_0 (rows of 16 weights); "
        "blk.1.attn_output.weight is F16, not Q8_0 (rows of 16 weights)"
    ]
    with pytest.raises(BuildError) as caught:
        found.settle(bench.folder / "file.gguf", CHOOSE)
    said("Quantization: a quantizer that falls back to other types", caught.value)
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


def test_a_reference_that_is_no_bf16_file_stops(wide: Bench, said: Said) -> None:
    reference = wide.gguf(lambda file: quantize_wide(file, wide, "Q8_0"), "q8.gguf")
    with pytest.raises(BuildError, match=r"no bf16 GGUF of this draft: tensor types: .* is Q8_0, not BF16") as caught:
        wide.verify(lambda file: quantize_wide(file, wide, "Q8_0"), "Q8_0", reference=reference)
    said("GGUF: a reference that is no bf16 file", caught.value)


def test_weights_of_another_config_stop(bench: Bench, said: Said) -> None:
    bench.config(num_hidden_layers=1, layer_types=["full_attention"])
    with pytest.raises(BuildError, match=r"tensor layers\.1\..*: not part of a plain DFlash draft") as caught:
        bench.verify()
    said("Weights: a tensor that the config does not call for", caught.value)
