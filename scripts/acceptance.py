"""Measure how much of one quant of a draft the target accepts, prompt by prompt, for the gate to compare.

No baseline is measured and nothing is timed: acceptance does not depend on how fast the machine is.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts import bench, bench_flags, bench_run, bench_summary, config, core, workloads
from scripts.bench_run import DFLASH, Measured, Run
from scripts.core import Report
from scripts.llama_server import SEED


def sha256(value: Any) -> str:
    """The sha256 of a value's JSON."""
    return hashlib.sha256(json.dumps(value, ensure_ascii=False).encode()).hexdigest()


def answer(run: Run) -> dict[str, Any]:
    """What the gate has to know of one answer; the hash tells whether two quants led to the same tokens."""
    return {
        "workload": run.request.workload,
        "format": run.request.format,
        "prompt": run.request.prompt,
        "predicted": run.answer.predicted_n,
        "drafted": run.answer.draft_n or 0,
        "accepted": run.answer.draft_n_accepted or 0,
        "loop": run.loop,
        "tokens_sha256": sha256(run.answer.tokens),
    }


def report_of(measured: Measured, quant: str, predict: int, about: Mapping[str, Any]) -> Report:
    """The report on one quant; ``about`` has the figures of :meth:`bench_flags.Models.figures`."""
    report = Report()
    kept = [run.answer for run in measured.runs if not run.loop]
    total = bench_summary.Drafted.of(kept)
    drafted = sum(run.answer.draft_n or 0 for run in measured.runs)
    report.check("draft engaged", drafted > 0, f"{drafted} tokens drafted in {len(measured.runs)} answers")
    props = measured.props[DFLASH]
    report.figures = {
        "quant": quant,
        "draft": about["draft"],
        "target": about["target"],
        "conditions": {
            "target_sha256": about["target"]["sha256"],
            # The draft's own file name apart, which is what differs between quants.
            "flags": [flag for flag in about["flags"][DFLASH] if flag not in about["draft"]["files"]],
            "build": props["build_info"],
            "context": props["default_generation_settings"]["n_ctx"],
            "predict": predict,
            "temperature": 0,
            "seed": SEED,
            "prompts_sha256": sha256([request.text for request in measured.requests]),
        },
        "skipped_formats": measured.skipped,
        "acceptance": total.acceptance,
        "tokens_per_pass": total.per_pass,
        "loops": len(measured.runs) - len(kept),
        "answers": [answer(run) for run in measured.runs],
    }
    return report


def main(argv: Sequence[str] | None = None) -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    bench.add_models(arguments)
    arguments.add_argument("--quant", required=True, help="what the draft's file is called in the report")
    arguments.add_argument("--report", required=True, type=Path, help="report to write")
    return core.run(arguments, _step, argv)


def _step(options: argparse.Namespace) -> None:
    settings = config.section("bench", options.bench, "--bench")
    models: bench_flags.Models = bench.models(options)
    predict = settings["predict"]
    measured = bench_run.measure(
        {DFLASH: models.openers()[DFLASH]},
        workloads.load_all(settings["workloads"]),
        settings["formats"],
        repeats=1,
        predict=predict,
        label=f"acceptance of {options.quant}",
    )
    report = report_of(measured, options.quant, predict, models.figures())
    report.write(options.report)
    figures = report.figures
    shown = "not measured" if figures["acceptance"] is None else f"{figures['acceptance']:.3f}"
    core.say(f"acceptance of {options.quant}: {shown} in {len(figures['answers'])} answers, {figures['loops']} loops")


if __name__ == "__main__":
    sys.exit(main())
