"""Compare the acceptance of each quant with bf16's on the same prompts; a quant that falls too far does not pass.

Counts of a workload and format are added up over the prompts whose answer loops with neither file. Besides the margin
there is a floor: over all prompts a file must reach more than 0.05, below which no draft is worth its memory and
something else is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts import core
from scripts.bench_summary import LEAST
from scripts.core import BuildError, Report

Key = tuple[str, str]
"""Workload and format."""

NOISE = 1e-9
"""Rounding of a difference of two fractions."""

SAME = "delete the acceptance reports and measure again"


def compare(reference: Mapping[str, Any], others: Sequence[Mapping[str, Any]], margin: float) -> Report:
    """Compare acceptance reports with the one of bf16.

    Args:
        reference: the report on the bf16 file.
        others: the reports on the quants.
        margin: how far below the reference's acceptance one may lie, 0 to 1.

    Raises:
        BuildError: the reports were not measured under the same conditions, or not on the same prompts.
    """
    report = Report()
    rows: list[dict[str, Any]] = []
    totals: dict[str, float | None] = {}
    for one in (reference, *others):
        totals[one["quant"]] = one["acceptance"]
        held = one["acceptance"] is not None and one["acceptance"] > LEAST
        report.check(f"{one['quant']}: floor", held, f"acceptance {_shown(one['acceptance'])} over all, floor {LEAST}")
    for other in others:
        _same_conditions(reference, other)
        for key, pairs in _paired(reference, other).items():
            row = _row(other["quant"], reference["quant"], key, pairs)
            report.check(*_judged(row, margin))
            rows.append(row)
    report.figures = {"reference": reference["quant"], "margin": margin, "acceptance": totals, "rows": rows}
    return report


def _shown(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.3f}"


def _same_conditions(reference: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    ours, theirs = reference["conditions"], other["conditions"]
    if differ := sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)):
        what = f"{reference['quant']} and {other['quant']} were measured with other {', '.join(differ)}"
        raise BuildError(what, "acceptance", SAME)


Pair = tuple[Mapping[str, Any], Mapping[str, Any]]


def _paired(reference: Mapping[str, Any], other: Mapping[str, Any]) -> dict[Key, list[Pair]]:
    """The answers of both to each prompt, by workload and format."""
    ours, theirs = (
        {(one["workload"], one["format"], one["prompt"]): one for one in report["answers"]}
        for report in (reference, other)
    )
    if ours.keys() != theirs.keys():
        what = f"{reference['quant']} and {other['quant']} were measured on other prompts"
        raise BuildError(what, "acceptance", SAME)
    found: dict[Key, list[Pair]] = {}
    for (workload, format_, prompt), one in ours.items():
        found.setdefault((workload, format_), []).append((one, theirs[workload, format_, prompt]))
    return found


def _row(quant: str, reference: str, key: Key, pairs: Sequence[Pair]) -> dict[str, Any]:
    kept = [pair for pair in pairs if not any(one["loop"] for one in pair)]
    ours, theirs = ([pair[side] for pair in kept] for side in (0, 1))
    return {
        "quant": quant,
        "workload": key[0],
        "format": key[1],
        "acceptance": _acceptance(theirs),
        "reference": reference,
        "reference_acceptance": _acceptance(ours),
        "prompts": len(kept),
        "loops": len(pairs) - len(kept),
        "accepted": sum(one["accepted"] for one in theirs),
        "reference_accepted": sum(one["accepted"] for one in ours),
        "same_answers": sum(one["tokens_sha256"] == other["tokens_sha256"] for one, other in pairs),
    }


def _acceptance(answers: Sequence[Mapping[str, Any]]) -> float | None:
    drafted = sum(one["drafted"] for one in answers)
    return sum(one["accepted"] for one in answers) / drafted if drafted else None


def _judged(row: Mapping[str, Any], margin: float) -> tuple[str, bool, str]:
    """Name, outcome and detail of the check on one row; where bf16 has no figure there is nothing to compare."""
    name = f"{row['quant']} on {row['workload']} ({row['format']})"
    mine, theirs = row["acceptance"], row["reference_acceptance"]
    if theirs is None:
        return name, True, f"{row['reference']} has no acceptance here, {row['loops']} loops"
    held = mine is not None and mine >= theirs - margin - NOISE
    detail = f"acceptance {_shown(mine)}, {row['reference']} has {_shown(theirs)}, margin {margin}"
    return name, held, detail


def main(argv: Sequence[str] | None = None) -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--reference", required=True, type=Path, help="acceptance report of the bf16 file")
    arguments.add_argument("--quants", type=Path, nargs="*", default=[], help="acceptance reports to compare with it")
    arguments.add_argument("--margin", required=True, type=float, help="how far below acceptance may lie, 0 to 1")
    arguments.add_argument("--report", required=True, type=Path, help="report to write")
    return core.run(arguments, _step, argv)


def _step(options: argparse.Namespace) -> None:
    others = [core.read_json(path) for path in options.quants]
    report = compare(core.read_json(options.reference), others, options.margin)
    report.settle(
        "the gate", "take the quant out of quants, or see which workload it fails on in its acceptance report"
    )
    report.write(options.report)
    shown = ", ".join(f"{quant} {_shown(value)}" for quant, value in report.figures["acceptance"].items())
    core.say(f"the gate passed, {len(report.checks)} checks held: {shown}")


if __name__ == "__main__":
    sys.exit(main())
