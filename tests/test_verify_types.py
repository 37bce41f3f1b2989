"""Which tensor types a quant may hold, and how far each may be from its source."""

import hashlib
from pathlib import Path

import gguf
import numpy as np
import pytest

from scripts.core import BuildError, Check
from scripts.verify_gguf import GgufFile, GgufTensor
from scripts.verify_tensors import Measured, error_checks, exact_checks, measure, readable
from scripts.verify_types import (
    ALIASES,
    FALLBACKS,
    LIMITS,
    NEEDS_MATRIX,
    RULES,
    check_quants,
    rule_for,
    type_checks,
)
from tests.errors_table import Said


def tensor(name: str, kind: str, columns: int = 256) -> GgufTensor:
    """A tensor of a type; a norm when its name says so."""
    shape = (columns,) if "norm" in name else (4, columns)
    return GgufTensor(name, kind, shape, 0, 0)


def details(quant: str, *tensors: GgufTensor, allow: bool = False) -> list[str]:
    checks, _ = type_checks(tensors, rule_for(quant), allow)
    return [f"{check.name}: {check.detail}" for check in checks if not check.ok]


def test_names_are_llama_quantizes_own_in_any_case() -> None:
    assert rule_for("bf16").file_type == 32
    assert rule_for("q4_k_m") is rule_for("Q4_K")
    assert rule_for("Q5_K").quant == "Q5_K_M"
    assert rule_for("Q3_K").quant == "Q3_K_M"


@pytest.mark.parametrize(
    ("quant", "why"),
    [
        *((quant, f"{quant} needs an importance matrix, which this pipeline does not make") for quant in NEEDS_MATRIX),
        ("iq2_m", "iq2_m needs an importance matrix, which this pipeline does not make"),
        ("copy", "COPY makes no type of its own, only a second bf16 file (quants): take bf16, or choose from "),
        ("Q4_K_X", "llama-quantize knows no quant 'Q4_K_X' (quants): did you mean Q4_K_S? If not, choose from "),
        ("int8", "llama-quantize knows no quant 'int8' (quants): choose from "),
        ("", "llama-quantize knows no quant '' (quants): choose from "),
    ],
)
def test_a_quant_without_a_rule_is_refused_with_the_list(quant: str, why: str, said: Said) -> None:
    with pytest.raises(BuildError) as caught:
        check_quants(["bf16", quant, "nonsense"])
    assert str(caught.value).startswith(why)
    assert str(caught.value).endswith(f"choose from {', '.join(RULES)}")
    if quant not in NEEDS_MATRIX:  # one row of these is enough
        said(f"Configuration: the quant {quant!r}", caught.value)


def test_quants_that_can_be_built_pass_in_any_case() -> None:
    check_quants([*RULES, *ALIASES, *(quant.lower() for quant in RULES)])
    check_quants([])
    assert not set(NEEDS_MATRIX) & (set(RULES) | set(ALIASES))


def test_numbers_are_llama_cpps() -> None:
    numbers = {
        "F32": 0,
        "F16": 1,
        "Q8_0": 7,
        "BF16": 32,
        "TQ1_0": 36,
        "TQ2_0": 37,
        "MXFP4_MOE": 38,
        "Q1_0": 40,
        "Q2_0": 41,
    }
    assert {quant: rule_for(quant).file_type for quant in numbers} == numbers
    assert len({rule.file_type for rule in RULES.values()}) == len(RULES)


def written(path: Path, kind: str, data: bytes) -> GgufFile:
    """A matrix of two rows of 256 weights, all that the file has."""
    path.write_bytes(data)
    return GgufFile(len(data), {}, {"fc.weight": GgufTensor("fc.weight", kind, (2, 256), 0, len(data))}, 0, path)


def measured(file: GgufFile, weights: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> Measured:
    return measure(file, lambda _: weights, 1, None)[0]["fc.weight"]


def test_half_precision_passes_unless_a_weight_overflows_or_vanishes(tmp_path: Path) -> None:
    usual = np.random.default_rng(3).standard_normal((2, 256)).astype(np.float32)
    large, small = usual.copy(), usual * np.float32(1e-9)
    large[1, 7] = 70000.0
    results = {}
    for name, weights in (("usual", usual), ("large", large), ("small", small)):
        with np.errstate(over="ignore"):
            file = written(tmp_path / name, "F16", weights.astype("<f2").tobytes())
        found = measured(file, weights)
        (check,) = error_checks({"fc.weight": found}, file.tensors, LIMITS)
        results[name] = (check.ok, found.error, found.not_finite)
    assert results["usual"][0] and 0 < results["usual"][1] < LIMITS["F16"] / 3
    assert results["large"] == (False, np.inf, 1)
    assert results["small"] == (False, 1.0, 0)


def test_what_cannot_be_dequantized_is_hashed_and_said(tmp_path: Path) -> None:
    data = bytes(range(72))
    file = written(tmp_path / "q1", "Q1_0", data)
    found = measured(file, np.ones((2, 256), np.float32))
    assert found == Measured(hashlib.sha256(data).hexdigest(), 0.0, 0, 0)
    (check,) = error_checks({"fc.weight": found}, file.tensors, LIMITS)
    assert check == Check(
        "relative error Q1_0", True, "warning: relative error not measured: no dequantizer for Q1_0 in gguf 0.19.0"
    )
    finite = exact_checks({"fc.weight": found}, file.tensors)[1]
    assert finite.detail == "warning: all but those of Q1_0, which cannot be read"


def test_only_q1_0_and_q2_0_of_all_rules_cannot_be_dequantized() -> None:
    kinds = {kind for rule in RULES.values() for kind in {rule.main, *rule.mixed}} | set(FALLBACKS.values())
    assert {kind for kind in kinds if not readable(kind)} == {"Q1_0", "Q2_0"}


def test_every_type_a_rule_allows_has_a_limit_and_a_way_back() -> None:
    kinds = {kind for rule in RULES.values() for kind in {rule.main, *rule.mixed}} - {"BF16", "F32", "Q1_0", "Q2_0"}
    assert kinds <= set(LIMITS)
    assert set(FALLBACKS.values()) <= set(LIMITS)
    for kind in kinds:
        zeros = np.zeros((1, gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]][1]), np.uint8)
        assert np.isfinite(gguf.dequantize(zeros, gguf.GGMLQuantizationType[kind])).all()


def test_a_finer_type_has_a_lower_limit() -> None:
    order = ["F16", "Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q3_K", "Q2_K", "TQ1_0"]
    assert sorted(order, key=lambda kind: LIMITS[kind]) == order


@pytest.mark.parametrize("kind", ["Q8_0", "Q5_0", "Q5_1", "Q4_0", "Q4_1"])
def test_limits_hold_for_normal_weights_with_room_and_not_for_coarser_ones(kind: str) -> None:
    weights = np.random.default_rng(3).standard_normal((64, 512)).astype(np.float32)
    number = gguf.GGMLQuantizationType[kind]
    found = gguf.dequantize(gguf.quantize(weights, number), number)
    error = float(np.linalg.norm(found - weights) / np.linalg.norm(weights))
    assert LIMITS[kind] / 2.5 < error < LIMITS[kind] / 1.5


def test_a_mix_is_allowed_only_where_llama_quantize_makes_it() -> None:
    right = [
        tensor("fc.weight", "Q4_K"),
        tensor("blk.0.attn_v.weight", "Q6_K"),
        tensor("blk.1.attn_v.weight", "Q4_K"),
        tensor("blk.1.ffn_down.weight", "Q6_K"),
        tensor("blk.1.attn_norm.weight", "F32"),
    ]
    assert details("Q4_K_M", *right) == []
    assert details("Q4_K_M", tensor("blk.0.attn_q.weight", "Q6_K")) == [
        "tensor types: blk.0.attn_q.weight is Q6_K, not Q4_K"
    ]
    assert details("Q4_K_M", tensor("blk.0.attn_v.weight", "Q5_K")) == [
        "tensor types: blk.0.attn_v.weight is Q5_K, not Q4_K/Q6_K"
    ]
    assert details("Q8_0", tensor("output_norm.weight", "Q8_0")) == [
        "tensor types: output_norm.weight is Q8_0, not F32"
    ]


@pytest.mark.parametrize(
    ("quant", "instead", "columns"),
    [
        ("Q4_K_M", "Q5_0", 128),
        ("Q6_K", "Q8_0", 128),
        ("Q2_K", "Q4_0", 64),
        ("IQ4_XS", "IQ4_NL", 64),
        ("Q4_K_M", "F16", 48),
        ("Q8_0", "F16", 48),
        ("MXFP4_MOE", "F16", 48),
        ("TQ1_0", "Q4_0", 64),
        ("Q2_0", "Q4_0", 32),
        ("TQ2_0", "Q4_0", 64),
        ("TQ2_0", "F16", 48),
    ],
)
def test_a_fallback_counts_as_one_only_where_rows_do_not_fit(quant: str, instead: str, columns: int) -> None:
    name = "blk.0.attn_q.weight"
    main = rule_for(quant).main
    assert details(quant, tensor(name, instead, columns)) == [
        f"fallback types: {name} is {instead}, not {main} (rows of {columns} weights)"
    ]
    assert details(quant, tensor(name, instead, columns), allow=True) == []
    assert details(quant, tensor(name, instead), allow=True) == [f"tensor types: {name} is {instead}, not {main}"]


def test_q1_0_has_no_fallback() -> None:
    wrong = tensor("fc.weight", "F16", 64)
    assert details("Q1_0", wrong, allow=True) == ["tensor types: fc.weight is F16, not Q1_0"]


@pytest.mark.parametrize(("quant", "kind"), [("F16", "BF16"), ("F32", "BF16"), ("BF16", "F16"), ("TQ1_0", "TQ2_0")])
def test_one_plain_type_does_not_pass_for_another(quant: str, kind: str) -> None:
    main = rule_for(quant).main
    assert details(quant, tensor("blk.0.attn_v.weight", kind)) == [
        f"tensor types: blk.0.attn_v.weight is {kind}, not {main}"
    ]


def test_many_wrong_types_are_counted() -> None:
    wrong = [tensor(f"blk.{n}.attn_q.weight", "Q4_0") for n in range(5)]
    assert details("Q8_0", *wrong)[0].endswith("; 5 in all")
