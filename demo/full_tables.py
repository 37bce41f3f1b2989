"""The tables of a full-size run: what every step cost, and which targets were met."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from demo import full_draft
from scripts.usage import Usage

SIZES = {"bf16": 2_594_864_384, "Q8_0": 1_383_759_104, "Q4_K_M": 765_951_232}
"""Bytes of the real draft's GGUF files."""

METADATA = 1_000_000
"""Bytes by which a size may differ: names, licenses and templates are of this draft."""

PEAK = 3 << 29
"""Most memory of a step: 1.5 GiB."""

TOKENIZERS = 30_000_000
"""Bytes that may be fetched besides the draft's weights."""

NOTE = """\
Peak is the largest resident size of a step's process plus that of its largest child, mapped pages of files included: an
upper bound. "read" counts read calls, from the page cache too; verify, mlx and the converter also read through
mappings, which no system counts. "from disk" is what came from storage. The chain ran before the plain sequence, which
found its inputs in the page cache; what was written before was flushed before each of the two."""


@dataclass(frozen=True)
class Run:
    """A run of the chain.

    ``wall`` and ``cpu`` are those of the whole `snakemake` command in seconds, ``hub_cpu`` the CPU seconds that the
    local Hub took meanwhile on the same cores. ``fetched`` is what the Hub sent, ``sizes`` the GGUF files' bytes by
    quant, ``checks`` the number of checks in the reports.
    """

    steps: Sequence[Usage]
    wall: float
    cpu: float
    hub_cpu: float
    fetched: int
    sizes: Mapping[str, int]
    checks: int


@dataclass(frozen=True)
class Plain:
    """The programs by themselves, and the seconds from the start of the first to the end of the last."""

    steps: Sequence[Usage]
    wall: float


@dataclass(frozen=True)
class Target:
    """Something a run should keep to; one that is not ``binding`` is reported and fails a strict run only."""

    name: str
    limit: str
    found: str
    met: bool
    binding: bool = True


def _mib(size: int | None) -> str:
    return "" if size is None else f"{size / (1 << 20):,.0f}"


def _row(step: Usage) -> dict[str, str]:
    return {
        "step": step.name,
        "wall s": f"{step.wall:.1f}",
        "CPU s": f"{step.cpu:.1f}",
        "peak MiB": _mib(step.peak),
        "read MiB": _mib(step.read),
        "from disk MiB": _mib(step.from_disk),
        "written MiB": _mib(step.written),
    }


def table(steps: Iterable[Usage], *totals: tuple[str, float, float]) -> pd.DataFrame:
    """A row a step, then a row for each (name, wall, CPU)."""
    rows = [_row(step) for step in steps]
    rows += [{"step": name, "wall s": f"{wall:.1f}", "CPU s": f"{cpu:.1f}"} for name, wall, cpu in totals]
    return pd.DataFrame(rows).fillna("")


def targets(done: Run, plain: Plain) -> list[Target]:
    """The targets of a full-size run."""
    found = []
    for quant, wanted in SIZES.items():
        size = done.sizes.get(quant)
        said = "no such file" if size is None else f"{size:,}"
        met = size is not None and abs(size - wanted) <= METADATA
        found.append(Target(f"bytes of {quant}", f"{wanted:,} give or take {METADATA:,}", said, met))
    most = full_draft.BYTES + TOKENIZERS
    found.append(Target("bytes fetched", f"{most:,}", f"{done.fetched:,}", done.fetched <= most))
    peak = max(done.steps, key=lambda step: step.peak)
    said = f"{_mib(peak.peak)} MiB ({peak.name})"
    found.append(Target("peak memory of a step", f"{_mib(PEAK)} MiB", said, peak.peak <= PEAK))
    limit, said = f"{plain.wall:.0f} s, the plain sequence", f"{done.wall:.0f} s"
    return [*found, Target("wall time", limit, said, done.wall <= plain.wall, binding=False)]


def where_the_time_went(done: Run, plain: Plain, cores: int) -> str:
    """Why the chain takes longer or not: the CPU seconds it adds, and those the plain sequence leaves unused."""
    bare = sum(step.cpu for step in plain.steps)
    idle = cores * plain.wall - bare
    rest = done.cpu + done.hub_cpu - bare
    return (
        f"The plain sequence takes {bare:.0f} CPU seconds and leaves {idle:.0f} of {cores} cores unused. Around the "
        f"same programs the chain takes {rest:.0f} CPU seconds ({done.hub_cpu:.0f} of them are the local Hub's), for a "
        f"download of {done.fetched:,} bytes and {done.checks} checks; with no core idle for a moment it would take "
        f"{(done.cpu + done.hub_cpu) / cores:.0f} s, and it took {done.wall:.0f} s."
    )


def report(done: Run, plain: Plain, reached: Sequence[Target], cores: int) -> str:
    """All tables as one Markdown text."""
    of_steps = sum(step.cpu for step in done.steps)
    chain = table(
        done.steps, ("Snakemake itself", done.wall, done.cpu - of_steps), ("whole chain", done.wall, done.cpu)
    )
    by_hand = table(plain.steps, ("plain sequence", plain.wall, sum(step.cpu for step in plain.steps)))
    reach = pd.DataFrame(
        {
            "target": [target.name for target in reached],
            "at most": [target.limit for target in reached],
            "found": [target.found for target in reached],
            "": ["met" if target.met else "missed" for target in reached],
        }
    )
    texts = [
        f"The chain, {cores} cores, in the order in which the steps ended:",
        _markdown(chain),
        "The plain sequence:",
        _markdown(by_hand),
        NOTE,
        "Targets:",
        _markdown(reach),
        where_the_time_went(done, plain, cores),
    ]
    return "\n\n".join(texts)


def _markdown(rows: pd.DataFrame) -> str:
    right = ("left",) + ("right",) * (len(rows.columns) - 1)
    return str(rows.to_markdown(index=False, colalign=right, disable_numparse=True))
