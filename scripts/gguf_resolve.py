"""Which file of a draft's repository ``-hfd REPO:QUANT`` takes, and whether its name says that it is a draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scripts import resolve
from scripts.resolve import SIDECARS
from scripts.toolchain_probe import SPEC_TYPE

SIDECAR = SIDECARS[SPEC_TYPE]

RIVALS = tuple(SIDECARS.values())[: list(SIDECARS).index(SPEC_TYPE)]
"""Sidecars of other kinds, which llama.cpp prefers to a DFlash draft where no ``--spec-type`` is given."""


@dataclass(frozen=True)
class Found:
    """What ``-hfd`` finds: the file, whether it is a sidecar, and whether its name has the quant asked for."""

    path: str
    sidecar: bool
    exact: bool


def draft(paths: Sequence[str], quant: str | None) -> Found | None:
    """The file that ``-hfd REPO[:QUANT] --spec-type draft-dflash`` takes; None where there is none."""
    taken = resolve.draft(paths, quant or "", SPEC_TYPE).files
    if not taken:
        return None
    first = min(taken, key=lambda path: resolve.split(path)[1])
    sidecar = SIDECAR in first
    return Found(first, sidecar, not sidecar or quant is None or f"-{quant.upper()}." in first.upper())


def rivals(paths: Sequence[str]) -> list[str]:
    """Sidecars of other kinds, which would be taken in the draft's place without ``--spec-type``."""
    return [path for path in paths if path.endswith(".gguf") and any(kind in path for kind in RIVALS)]
