"""The measured part of a card: rows of the pair's own bench report, and of those from other machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts import core
from scripts.core import BuildError

COLUMNS = (
    *("machine", "target", "draft", "n-max", "workload", "thinking"),
    *("baseline tok/s", "DFlash tok/s", "ratio", "acceptance", "tokens a pass"),
)


def read(path: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A bench report, known to be of a draft of this release.

    Raises:
        BuildError: it is no bench report, its checks did not hold, or it measured another draft.
    """
    report = core.read_json(path)
    try:
        digest, rows = report["draft"]["sha256"][0], report["rows"]
        made = {"report": report, "rows": [row(report, one) for one in rows]}
    except (KeyError, TypeError, IndexError) as error:
        what = f"not a bench report: {type(error).__name__} {error}"
        raise BuildError(what, path, "give reports/bench.json of a bench that started its servers") from error
    if not report.get("ok"):
        raise BuildError("the bench report says that a check failed", path, "measure again")
    known = {output["sha256"]: output["file"] for output in manifest["outputs"]}
    if digest not in known:
        what = f"measured with another draft: {report['draft']['files'][0]} with sha256 {digest[:16]}"
        raise BuildError(what, path, "measure with a file of this release, or leave the report out")
    return made


def machine(found: Mapping[str, Any]) -> str:
    """A machine in a few words: its GPUs, else its processor."""
    gpus = [str(name).split(",")[0] for name in found["gpus"]]
    if not gpus:
        return f"{found['cpu']}, {found['cores']} cores"
    return gpus[0] if len(gpus) == 1 else f"{len(gpus)} x {gpus[0]}"


def row(report: Mapping[str, Any], one: Mapping[str, Any]) -> dict[str, str]:
    """One row of the table, as text; a figure that was not measured is a dash."""
    target = report["target"]
    speeds = [one[f"{side}_tokens_per_second"] for side in ("baseline", "dflash")]
    return {
        "machine": machine(report["machine"]),
        "target": str(target.get("quant") or target["files"][0]),
        "draft": str(report["draft"]["files"][0]),
        "n-max": str(report["n_max"]),
        "workload": f"{one['workload']} ({one['format']})",
        "thinking": str(one["thinking"]),
        "baseline tok/s": _median(speeds[0], 1),
        "DFlash tok/s": _median(speeds[1], 1),
        "ratio": f"{_median(one['ratio'], 2)}x" if one["ratio"] else "-",
        "acceptance": _number(one["acceptance"], 3),
        "tokens a pass": _number(one["tokens_per_pass"], 1),
    }


def _median(value: Mapping[str, float] | None, digits: int) -> str:
    return _number(value["median"] if value else None, digits)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def measured(own: Path | None, others: Sequence[Path], manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the card's template shows: ``columns``, ``rows``, and the own ``report``; None where nothing was measured.

    Raises:
        BuildError: a report is not of this release.
    """
    reports = [read(path, manifest) for path in ([own] if own else []) + list(others)]
    if not reports:
        return None
    return {
        "columns": COLUMNS,
        "rows": [one for report in reports for one in report["rows"]],
        "reports": [report["report"] for report in reports],
    }
