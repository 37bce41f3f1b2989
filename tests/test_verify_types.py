"""Which tensor types a quant may hold, and how far each may be from its source."""

import gguf
import numpy as np
import pytest

from scripts.core import BuildError
from scripts.verify_gguf import GgufTensor
from scripts.verify_types import FALLBACKS, LIMITS, RULES, rule_for, type_checks


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
        ("F16", "half precision overflows where bfloat16 does not"),
        ("IQ2_XXS", "no rule says what it may hold"),
        ("MXFP4_MOE", "no rule says what it may hold"),
        ("Q4", "no rule says what it may hold"),
    ],
)
def test_a_quant_without_a_rule_is_refused_with_the_list(quant: str, why: str) -> None:
    with pytest.raises(BuildError) as caught:
        rule_for(quant)
    assert f"a file of quant {quant} cannot be verified: {why}" in str(caught.value)
    assert "'Q8_0'" in str(caught.value)


def test_every_type_a_rule_allows_has_a_limit_and_a_way_back() -> None:
    kinds = {kind for rule in RULES.values() for kind in {rule.main, *rule.mixed}} - {"BF16"}
    assert kinds <= set(LIMITS)
    assert set(FALLBACKS.values()) <= set(LIMITS)
    for kind in kinds:
        zeros = np.zeros((1, gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]][1]), np.uint8)
        assert np.isfinite(gguf.dequantize(zeros, gguf.GGMLQuantizationType[kind])).all()


def test_a_finer_type_has_a_lower_limit() -> None:
    order = ["F16", "Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q3_K", "Q2_K"]
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


def test_many_wrong_types_are_counted() -> None:
    wrong = [tensor(f"blk.{n}.attn_q.weight", "Q4_0") for n in range(5)]
    assert details("Q8_0", *wrong)[0].endswith("; 5 in all")
