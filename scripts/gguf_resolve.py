"""Which file of a repository llama.cpp takes as a draft for ``-hfd REPO:QUANT``: its rules, replayed on a listing.

A file whose name has ``dflash-`` in it is a sidecar: llama.cpp finds it without ``--spec-type`` and takes the nearest
quant where the named one is missing. A file with an ordinary name is found as a model, and needs ``--spec-type``. The
rules are those of llama.cpp's common/download.cpp and common/arg.cpp since sidecars are known to it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from scripts import gguf_remote

SIDECAR = "dflash-"
PRESET = "preset.ini"
"""A file of this name in a repository's root is all that llama.cpp takes of it."""

RIVALS = ("mtp-", "dspark-")
"""Sidecars of other kinds, which llama.cpp prefers to a DFlash draft where no ``--spec-type`` is given."""


@dataclass(frozen=True)
class Found:
    """What ``-hfd`` finds: the file, whether it is a sidecar, and whether its name has the quant asked for."""

    path: str
    sidecar: bool
    exact: bool


def draft(paths: Sequence[str], quant: str | None) -> Found | None:
    """The file that ``-hfd REPO[:QUANT] --spec-type draft-dflash`` takes; None where there is none."""
    if PRESET in paths:
        return None
    model = gguf_remote.model(paths, quant)
    if path := sidecar(paths, model or "", quant):
        return Found(path, True, quant is None or f"-{quant.upper()}." in path.upper())
    return Found(model, False, True) if model else None


def sidecar(paths: Sequence[str], model: str, quant: str | None) -> str | None:
    """The DFlash sidecar that goes with a model: in the deepest folder above it, of this quant, else of the nearest.

    ``model`` is a path, or empty where the repository has no model of the quant.
    """
    folder = model.split("/")[:-1]
    bits = _bits(quant) if quant else _path_bits(model)
    best: tuple[tuple[int, bool, int], str] | None = None
    for path in paths:
        above = path.split("/")[:-1]
        if not path.endswith(".gguf") or SIDECAR not in path or above != folder[: len(above)]:
            continue
        exact = bool(quant) and f"-{str(quant).upper()}." in path.upper()
        rank = (len(above), exact, -abs(_path_bits(path) - bits))
        if best is None or rank > best[0]:  # of equals, the first
            best = (rank, path)
    return best[1] if best else None


def rivals(paths: Sequence[str]) -> list[str]:
    """Sidecars of other kinds, which would be taken in the draft's place without ``--spec-type``."""
    return [path for path in paths if path.endswith(".gguf") and any(kind in path for kind in RIVALS)]


def _path_bits(path: str) -> int:
    match = gguf_remote.TAG.search(gguf_remote.split(path)[0])
    return _bits(match[1]) if match else 0


def _bits(tag: str) -> int:
    """The number in a quant's name: 4 of Q4_K_M, 16 of BF16, 0 where there is none."""
    digits = re.search(r"\d+", tag)
    return int(digits[0]) if digits else 0
