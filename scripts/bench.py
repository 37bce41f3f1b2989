"""Measure a pair: baseline and DFlash on the same server flags and prompts, with plots, tables and every answer kept.

Writes into OUT: ``raw.jsonl`` (a line an answer), ``table.md``, ``bench.png``, ``bench.svg``; the summary is REPORT.
A run in which the draft never engaged, or in which every answer is a loop, fails.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts import bench_flags, bench_plot, bench_run, bench_summary, config, core, machine, workloads
from scripts.bench_run import BASELINE, DFLASH, Measured
from scripts.core import BuildError, Report
from scripts.llama_server import SEED
from scripts.serve_settings import Settings

TARGET = ("repo", "commit", "quant")
"""What a report on the served target says of where it is from."""


def report_of(measured: Measured, settings: Mapping[str, Any], about: Mapping[str, Any]) -> Report:
    """The summary of a measurement.

    Args:
        measured: all answers.
        settings: the config's ``bench`` section.
        about: figures on models, flags and machine.

    Raises:
        BuildError: every answer is a loop.
    """
    report = Report()
    found = bench_summary.rows(measured)
    answers = [run for run in measured.runs if run.side == DFLASH]
    drafted = sum(run.answer.draft_n or 0 for run in answers)
    loops = sum(run.loop is not None for run in measured.runs)
    report.check("draft engaged", drafted > 0, f"{drafted} tokens drafted in {len(answers)} answers")
    report.check("answers", loops < len(measured.runs), f"{loops} of {len(measured.runs)} are loops")
    names = {bench_run.model_name(prop) for prop in measured.props.values()}
    report.check("same target", len(names) == 1, f"the servers serve {' and '.join(sorted(names))}")
    props = measured.props[DFLASH]
    report.figures = {
        **about,
        "build": {side: prop["build_info"] for side, prop in measured.props.items()},
        "context": props["default_generation_settings"]["n_ctx"],
        "temperature": 0,
        "seed": SEED,
        "predict": settings["predict"],
        "repeats": settings["repeats"],
        "formats": settings["formats"],
        "skipped_formats": measured.skipped,
        "warnings": bench_summary.warnings(found, measured.skipped),
        "rows": found,
    }
    return report


def write(measured: Measured, report: Report, title: str, predict: int, out: Path) -> None:
    """Write raw answers, table and plots into ``out``."""
    with core.atomic(out / "raw.jsonl") as temporary, temporary.open("w", encoding="utf-8") as stream:
        for record in bench_run.records(measured.runs, predict):
            stream.write(json.dumps(record, ensure_ascii=False) + "\n")
    rows = report.figures["rows"]
    with core.atomic(out / "table.md") as temporary:
        temporary.write_text(
            bench_summary.table(rows).to_markdown(index=False, disable_numparse=True) + "\n", encoding="utf-8"
        )
    bench_plot.save(bench_plot.draw(rows, title), out / "bench")


def main(argv: Sequence[str] | None = None) -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    add_models(arguments)
    arguments.add_argument("--target-report", type=Path, help="report on the served target: repository, commit, quant")
    arguments.add_argument("--title", help="above the plots; the draft's name where absent")
    arguments.add_argument("--out", required=True, type=Path, help="folder for raw answers, table and plots")
    arguments.add_argument("--report", required=True, type=Path, help="summary to write")
    return core.run(arguments, _step, argv)


def add_models(arguments: argparse.ArgumentParser) -> None:
    """Add what says which models are measured, how they are served, and on what."""
    arguments.add_argument("--server", type=Path, help="llama-server; not used with bench.urls")
    arguments.add_argument("--target", type=Path, help="the target's GGUF, or a JSON file that lists its files")
    arguments.add_argument("--draft", type=Path, help="the draft's GGUF")
    arguments.add_argument("--settings", type=Settings.parse, help="how the servers are started, as JSON")
    arguments.add_argument("--bench", type=json.loads, default={}, help="JSON: the config's bench section")


def models(options: argparse.Namespace) -> bench_flags.Models:
    """The files that the options name.

    Raises:
        BuildError: one is not given or missing.
    """
    for name in ("server", "target", "draft", "settings"):
        if getattr(options, name) is None:
            raise BuildError(f"no --{name} given", "bench", "name it, or give two running servers in bench.urls")
    stem = options.log or options.report
    return bench_flags.Models(
        binary=options.server,
        target=bench_flags.target_files(options.target),
        draft=options.draft,
        settings=options.settings,
        logs=stem.with_suffix(""),
    )


def _step(options: argparse.Namespace) -> None:
    settings = config.section("bench", options.bench, "--bench")
    chosen = workloads.load_all(settings["workloads"])
    about: dict[str, Any]
    if "urls" in settings:
        servers = bench_flags.connections(settings["urls"])
        # The hardware behind an address is not known here, and an address has no place in a report.
        about = {"servers": "given", "machine": None}
    else:
        given = models(options)
        servers = given.openers()
        about = {"servers": "started", "machine": machine.describe(), **given.figures()}
    if options.target_report:
        known = core.read_json(options.target_report)
        about["target"] = {key: known[key] for key in TARGET if key in known} | about.get("target", {})
    measured = bench_run.measure(
        servers,
        chosen,
        settings["formats"],
        repeats=settings["repeats"],
        predict=settings["predict"],
        label="measuring",
    )
    if "urls" in settings:
        about["target"] = {"files": [bench_run.model_name(measured.props[BASELINE])]} | about.get("target", {})
    about["workloads"] = {one.name: one.description for one in chosen}
    report = report_of(measured, settings, about)
    for warning in report.figures["warnings"]:
        core.say(f"warning: {warning}")
    title = options.title or (options.draft.stem if options.draft else "baseline and DFlash")
    write(measured, report, title, settings["predict"], options.out)
    report.write(options.report)
    print(bench_summary.markdown(report.figures["rows"]))


if __name__ == "__main__":
    sys.exit(main())
