"""What a quantized file may hold: tensor types by quant name, and how far each type may be from its source.

The mixes follow llama-quantize for a dense draft without an importance matrix. Only attention values,
attention outputs and feed-forward down projections ever get more bits than the rest; norms stay F32.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import gguf

from scripts.core import BuildError, Check
from scripts.verify_gguf import TYPES, GgufTensor

LIMITS = {
    "F16": 0.001,
    "Q8_0": 0.012,
    "Q6_K": 0.035,
    "Q5_K": 0.065,
    "Q5_1": 0.07,
    "Q5_0": 0.09,
    "Q4_K": 0.125,
    "Q4_1": 0.14,
    "IQ4_NL": 0.14,
    "IQ4_XS": 0.14,
    "Q4_0": 0.17,
    "Q3_K": 0.26,
    "IQ3_S": 0.32,
    "Q2_K": 0.47,
    "TQ1_0": 1.12,
    "TQ2_0": 1.12,
}
"""Largest relative error ||dequantized - source|| / ||source|| of one tensor, by tensor type.

Measured with llama-quantize on 15 matrices a type: normal weights give Q8_0 0.0054, Q6_K 0.018, Q5_K 0.036,
Q4_K 0.072, Q3_K 0.152, Q2_K 0.298; Student's t with 3 degrees of freedom, heavier in the tails than trained
weights, gives 0.0092, 0.027, 0.048, 0.094, 0.195 and 0.361. The limits lie 1.3 times above the latter.
Weights that went through a coarser type first, or sit in another tensor's place, are above them.
The ternary types give 0.81 for normal weights and most, 0.863, for 5 degrees of freedom, where misplaced rows
give 1.28: their limit finds weights of another place, and no more. F16 holds every BF16 weight of usual size
exactly. Half precision overflows where bfloat16 does not, so F16 is allowed only because its limit finds that:
one such weight makes the error infinite, and weights too small for F16 count as what they lose.
Q1_0 and Q2_0 have no limit: the gguf package cannot dequantize them.
"""

FALLBACKS = {
    "Q2_K": "Q4_0",
    "Q3_K": "Q4_0",
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
    "IQ3_S": "IQ4_NL",
    "IQ4_XS": "IQ4_NL",
    "TQ1_0": "Q4_0",
    "TQ2_0": "Q4_0",
    "Q2_0": "Q4_0",
}
"""What llama-quantize takes for rows that do not fit the type's blocks; F16 for no multiple of 32.

Blocks of 32 weights have F16 alone. Q1_0 has neither: llama-quantize stops where its blocks of 128 do not fit.
"""

_BLOCKS = {name: block for name, block, _ in TYPES.values()}

RICHER = ("attn_v.weight", "attn_output.weight", "ffn_down.weight")


@dataclass(frozen=True)
class Rule:
    """A quant's name, its ``general.file_type`` number, the type of its matrices and the richer types mixed in."""

    quant: str
    file_type: int
    main: str
    mixed: frozenset[str]

    def allowed(self, tensor: GgufTensor) -> frozenset[str]:
        """The types this tensor may have when its rows fit."""
        if len(tensor.shape) == 1:
            return frozenset({"F32"})
        return frozenset({self.main}) | (self.mixed if tensor.name.endswith(RICHER) else frozenset())


def _rule(quant: str, main: str, *mixed: str, file_type: int | None = None) -> Rule:
    number = gguf.LlamaFileType[f"MOSTLY_{quant}"].value if file_type is None else file_type
    return Rule(quant, number, main, frozenset(mixed))


RULES = {
    rule.quant: rule
    for rule in (
        _rule("F32", "F32", file_type=gguf.LlamaFileType.ALL_F32.value),
        _rule("BF16", "BF16"),
        _rule("F16", "F16"),
        _rule("Q8_0", "Q8_0"),
        _rule("MXFP4_MOE", "Q8_0"),  # only experts become MXFP4, and a dense draft has none
        _rule("Q6_K", "Q6_K"),
        _rule("Q5_K_M", "Q5_K", "Q6_K"),
        _rule("Q5_K_S", "Q5_K"),
        _rule("Q5_1", "Q5_1"),
        _rule("Q5_0", "Q5_0"),
        _rule("Q4_K_M", "Q4_K", "Q6_K"),
        _rule("Q4_K_S", "Q4_K", "Q5_K"),
        _rule("Q4_1", "Q4_1"),
        _rule("Q4_0", "Q4_0"),
        _rule("IQ4_NL", "IQ4_NL", "Q5_K"),
        _rule("IQ4_XS", "IQ4_XS", "Q5_K"),
        _rule("Q3_K_L", "Q3_K", "Q5_K"),
        _rule("Q3_K_M", "Q3_K", "Q4_K", "Q5_K"),
        _rule("Q3_K_S", "Q3_K"),
        _rule("IQ3_M", "IQ3_S", "Q4_K"),
        _rule("IQ3_S", "IQ3_S", "Q4_K"),
        _rule("Q2_K", "Q2_K", "Q3_K", "Q4_K"),
        _rule("Q2_0", "Q2_0", file_type=41),  # the gguf package does not name it
        _rule("TQ2_0", "TQ2_0"),
        _rule("TQ1_0", "TQ1_0"),
        _rule("Q1_0", "Q1_0"),
    )
}
ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}

NEEDS_MATRIX = ("IQ3_XS", "IQ3_XXS", "IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S", "Q2_K_S")
"""What llama-quantize refuses to make of a draft without an importance matrix.

It does so for tensors of IQ3_XXS, all IQ2 and all IQ1 types, and for Q2_K in a Q2_K_S file; every draft has some:
IQ3_XS takes IQ3_XXS for attention queries and keys, IQ3_XXS takes IQ2_S for them.
"""


def rule_for(quant: str) -> Rule:
    """The rule of a quant, named as llama-quantize names it; case does not matter.

    Raises:
        BuildError: the quant is unknown, or cannot be built or verified; the message lists those that can.
    """
    name = quant.upper()
    rule = RULES.get(ALIASES.get(name, name))
    if rule is None:
        why, hint = _refusal(quant)
        raise BuildError(why, "quants", f"{hint}choose from {', '.join(RULES)}")
    return rule


def _refusal(quant: str) -> tuple[str, str]:
    """Why a quant has no rule, and what was probably meant."""
    name = quant.upper()
    if name in NEEDS_MATRIX:
        return f"{quant} needs an importance matrix, which this pipeline does not make", ""
    if name == "COPY":
        return "COPY makes no type of its own, only a second bf16 file", "take bf16, or "
    near = difflib.get_close_matches(name, [*RULES, *ALIASES], n=1)
    return f"llama-quantize knows no quant {quant!r}", f"did you mean {near[0]}? If not, " if near else ""


def check_quants(quants: Iterable[str]) -> None:
    """Check that every quant of a config can be built and verified; needs no toolchain.

    Raises:
        BuildError: for the first that cannot, see :func:`rule_for`.
    """
    for quant in quants:
        rule_for(quant)


def type_checks(tensors: Iterable[GgufTensor], rule: Rule, allow_fallback: bool) -> tuple[list[Check], list[str]]:
    """Check every tensor's type; returns the checks and the names of tensors with a fallback type.

    A fallback is the type that llama-quantize takes where rows do not fit the wanted one; it passes with
    ``allow_fallback``. Any other unexpected type fails always.
    """
    wrong, fallen = [], {}
    for tensor in tensors:
        allowed = rule.allowed(tensor)
        if tensor.type in allowed:
            continue
        wanted = "/".join(sorted(allowed))
        if tensor.type in _fallbacks(tensor, allowed):
            fallen[tensor.name] = f"{tensor.name} is {tensor.type}, not {wanted} (rows of {tensor.shape[-1]} weights)"
        else:
            wrong.append(f"{tensor.name} is {tensor.type}, not {wanted}")
    checks = [
        Check("tensor types", not wrong, _list(wrong) or f"those of {rule.quant}"),
        Check("fallback types", allow_fallback or not fallen, _list(list(fallen.values())) or "none"),
    ]
    return checks, list(fallen)


def _fallbacks(tensor: GgufTensor, allowed: Iterable[str]) -> set[str]:
    """The types that stand in for the allowed ones where this tensor's rows do not fit them."""
    result = set()
    for kind in allowed:
        if len(tensor.shape) > 1 and tensor.shape[-1] % _block(kind):
            instead = FALLBACKS.get(kind, kind)
            if instead != kind or _block(kind) <= 32:
                result.add("F16" if tensor.shape[-1] % _block(instead) else instead)
    return result


def _block(kind: str) -> int:
    """Weights that a type packs together."""
    return _BLOCKS[kind]


def _list(lines: list[str]) -> str:
    """The first three of a list, with how many there are."""
    more = f"; {len(lines)} in all" if len(lines) > 3 else ""
    return "; ".join(lines[:3]) + more


def histogram(tensors: Iterable[GgufTensor]) -> Mapping[str, int]:
    """How many tensors have each type, most frequent first."""
    return dict(Counter(tensor.type for tensor in tensors).most_common())


def bits_per_weight(tensors: Iterable[GgufTensor]) -> float | None:
    """Bits of data for each weight, to four digits; None where there are no weights."""
    sizes = [(tensor.end - tensor.begin, tensor.weights) for tensor in tensors]
    weights = sum(count for _, count in sizes)
    return round(8 * sum(size for size, _ in sizes) / weights, 4) if weights else None
