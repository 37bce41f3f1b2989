"""How dflash-mlx quantizes a draft as it loads it: the spec of its ``--draft-quant``, and whether the rows allow it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from scripts.core import BuildError
from scripts.draft_config import DraftConfig, expected_tensors

SPEC = re.compile(r"w(2|4|8)(?:a(16|32))?(?::gs(32|64|128))?")
"""Bits of weights, of activations, and group size, as dflash-mlx 0.1.8 reads them."""

NONE = "none"
"""The spec of a draft that stays bf16."""

GROUP, ACTIVATIONS = 64, 16


@dataclass(frozen=True)
class Quant:
    """Bits of a weight and of an activation, and weights that share a scale."""

    bits: int
    group_size: int
    activation_bits: int


def parse(spec: str, where: str | Path) -> Quant | None:
    """Read a spec; None for a draft that stays as it is.

    Raises:
        BuildError: dflash-mlx does not know it.
    """
    if spec == NONE:
        return None
    found = SPEC.fullmatch(spec)
    if not found:
        raise BuildError(f"draft_quant is {spec!r}", where, "write none, w4, w8, w4:gs32, w4a32:gs128 or the like")
    bits, activations, group = found.groups()
    return Quant(int(bits), int(group or GROUP), int(activations or ACTIVATIONS))


def check_rows(config: DraftConfig, group_size: int, where: str | Path) -> None:
    """Whether a group size divides the rows of every matrix of the draft: MLX refuses to quantize it otherwise.

    Raises:
        BuildError: it does not; the first matrix is named.
    """
    for name, shape in expected_tensors(config).items():
        if len(shape) > 1 and shape[-1] % group_size:
            what = f"group size {group_size} does not divide the rows of {name}, {shape[-1]} long"
            raise BuildError(what, where, "choose 32, 64 or 128, whichever divides every row, or draft_quant: none")
