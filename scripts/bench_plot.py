"""Draw a measurement: decode speed of both sides and acceptance, by workload; the same rows give the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scripts import core
from scripts.bench_run import BASELINE, DFLASH

STYLE: Any = {"svg.hashsalt": "bench", "svg.fonttype": "path", "font.family": "DejaVu Sans", "font.size": 10}
"""Nothing of the machine, nor random ids, may get into the files."""

COLOURS = {BASELINE: "#8a94a6", DFLASH: "#2f6fb2", "acceptance": "#3f9b6c"}
NAMES = {BASELINE: "baseline", DFLASH: "DFlash"}
WIDTH = 0.38
"""Width of a bar; two stand in a unit."""

NO_DATE: dict[str, dict[str, str | None]] = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}


def draw(rows: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """Bars of decode tokens per second with their spread above, bars of acceptance below; a group a row."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(max(6.0, 1.8 * len(rows) + 1.5), 6.4), layout="constrained")
        speed, acceptance = figure.subplots(2, 1, height_ratios=[3, 2], sharex=True)
        figure.suptitle(title)
        for side, shift in ((BASELINE, -WIDTH / 2), (DFLASH, WIDTH / 2)):
            _speeds(speed, rows, side, shift)
        for at, row in enumerate(rows):
            if row["ratio"]:
                top = max(row[f"{side}_tokens_per_second"]["max"] for side in (BASELINE, DFLASH))
                speed.annotate(
                    f"{row['ratio']['median']:.2f}x", (at, top), (0, 4), textcoords="offset points", ha="center"
                )
        speed.set_ylabel("decode tokens/s")
        speed.margins(y=0.15)
        speed.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        values = [row["acceptance"] or 0.0 for row in rows]
        bars = acceptance.bar(range(len(rows)), values, 2 * WIDTH, color=COLOURS["acceptance"])
        labels = ["-" if row["acceptance"] is None else f"{row['acceptance']:.2f}" for row in rows]
        acceptance.bar_label(bars, labels, padding=2)
        acceptance.set_ylabel("acceptance\n(accepted / drafted)")
        acceptance.set_ylim(0, 1.15)
        acceptance.set_xticks(range(len(rows)), [f"{row['workload']}\n{_format(row)}" for row in rows])
        for axes in (speed, acceptance):
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", alpha=0.3)
            axes.set_axisbelow(True)
    return figure


def _format(row: Mapping[str, Any]) -> str:
    thinking = {"on": ", thinking on", "off": ", thinking off"}.get(row["thinking"], "")
    return f"{'raw' if row['format'] == 'raw' else 'chat'}{thinking}"


def _speeds(axes: Axes, rows: Sequence[Mapping[str, Any]], side: str, shift: float) -> None:
    found = [(at, row[f"{side}_tokens_per_second"]) for at, row in enumerate(rows)]
    shown = [(at, value) for at, value in found if value]
    axes.bar(
        [at + shift for at, _ in shown],
        [value["median"] for _, value in shown],
        WIDTH,
        yerr=[
            [value["median"] - value["min"] for _, value in shown],
            [value["max"] - value["median"] for _, value in shown],
        ],
        capsize=3,
        color=COLOURS[side],
        label=NAMES[side],
    )


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as ``STEM.png`` and ``STEM.svg``, without dates."""
    written = []
    for kind, metadata in NO_DATE.items():
        path = stem.with_name(f"{stem.name}.{kind}")
        with core.atomic(path) as temporary, matplotlib.rc_context(STYLE):
            figure.savefig(temporary, format=kind, dpi=120, metadata=metadata)
        written.append(path)
    return written
