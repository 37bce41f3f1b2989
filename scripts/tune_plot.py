"""Plot a search: speed and acceptance over n-max, a line for each workload."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from scripts.bench_plot import STYLE, save
from scripts.tune_search import Search, Setting, Trial, latest


def plot(found: Search, stem: Path) -> None:
    """Write ``stem``.png and ``stem``.svg: left tokens per second, dashed for the target alone, right acceptance.

    Drawn are the trials with the draft quant and KV types that the search began with.
    """
    start = next(one.setting for one in found.trials if one.setting.n_max is not None)
    same = [
        one
        for one in latest(found.trials)
        if (one.setting.kv_type, one.setting.draft_quant, one.setting.draft_kv_type)
        == (start.kv_type, start.draft_quant, start.draft_kv_type)
    ]
    with matplotlib.rc_context(STYLE):
        figure = _draw(found, same, start)
    save(figure, stem)


def _draw(found: Search, same: Sequence[Trial], start: Setting) -> Figure:
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    speeds, acceptances = figure.subplots(1, 2)
    for number, load in enumerate(found.workloads):
        colour = f"C{number}"
        tried = sorted(
            ((one.setting.n_max, one) for one in same if one.workload == load.name and one.setting.n_max is not None),
            key=lambda pair: pair[0],
        )
        alone = [one.speed for one in same if one.workload == load.name and one.setting.n_max is None and one.speed]
        timed = [(n_max, one.speed) for n_max, one in tried if one.speed is not None]
        speeds.plot(*zip(*timed, strict=True), marker="o", color=colour, label=load.name)
        if alone:
            speeds.axhline(alone[0], color=colour, linestyle="--", linewidth=1)
        drafted = [(n_max, one.acceptance) for n_max, one in tried if one.acceptance is not None]
        if drafted:
            acceptances.plot(*zip(*drafted, strict=True), marker="o", color=colour, label=load.name)
    values = sorted({one.setting.n_max for one in same if one.setting.n_max is not None})
    for axes, label in ((speeds, "decoded tok/s (dashed: target alone)"), (acceptances, "accepted / drafted")):
        axes.set_xlabel("n-max, drafted tokens a pass")
        axes.set_ylabel(label)
        axes.set_xticks(values)
        axes.grid(alpha=0.3)
    speeds.set_ylim(bottom=0)
    acceptances.set_ylim(0, 1.05)
    speeds.legend(frameon=False)
    figure.suptitle(f"draft {start.draft_quant}, KV {start.kv_type}, draft KV {start.draft_kv_type}", fontsize=10)
    return figure
