"""Tell an answer that ran into a loop: it drafts almost for free, so its speed and acceptance say nothing.

A model that repeats itself is foreseen by any draft: a wrong pair, or a broken build, can look like a very good one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

GRAM = 12
"""Tokens of the runs that are looked for a second time; longer than what code repeats by nature."""

REPEATED = 0.5
"""Share of repeated runs from which an answer counts as a loop; an echoed file stays far below."""

CYCLES = 4
"""Times that an answer has to end with the same tokens."""

TAIL = 48
"""Tokens that these have to cover."""

CHARACTERS = 16
"""Times that one character has to follow itself, and be half of the answer."""


def repeated_share(tokens: Sequence[int], gram: int = GRAM) -> float:
    """The share of runs of ``gram`` tokens that were there before, 0 to 1; 0 for an answer too short to tell."""
    runs = [tuple(tokens[at : at + gram]) for at in range(len(tokens) - gram + 1)]
    return 1 - len(set(runs)) / len(runs) if runs else 0.0


def cycle(tokens: Sequence[int]) -> int | None:
    """The period in tokens of the cycle that an answer ends with, where it has gone round often enough."""
    for period in range(1, len(tokens) // CYCLES + 1):
        covered = max(TAIL, CYCLES * period)
        if covered <= len(tokens) and tokens[-covered:-period] == tokens[len(tokens) - covered + period :]:
            return period
    return None


def longest_run(text: str) -> tuple[str, int]:
    """The character that follows itself most often, and how often it stands there."""
    runs = [(character, sum(1 for _ in same)) for character, same in groupby(text)]
    return max(runs, key=lambda run: run[1], default=("", 0))


def loop(tokens: Sequence[int], text: str) -> str | None:
    """Why an answer counts as a loop, in words; None for one that does not."""
    character, times = longest_run(text)
    if times >= CHARACTERS and 2 * times >= len(text):
        return f"{times} times {character!r}"
    if (share := repeated_share(tokens)) >= REPEATED:
        return f"{share:.0%} of its {GRAM}-token runs are repeated"
    if period := cycle(tokens):
        return f"it ends in a cycle of {period} tokens"
    return None
