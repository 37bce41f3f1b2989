"""Find the best serving settings of this machine for a built draft, write them for `serve`, and plot the search.

The best n-max is a matter of machine, workload and draft: on some the longest drafts win, on others short ones. So the
answer is measured, and it names the workload it is for.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from scripts import bench_run, core, llama_server, serve_command, served, tune_plot, workloads
from scripts.bench_run import BASELINE, DFLASH, Measured
from scripts.core import BuildError, Report
from scripts.serve_settings import Settings
from scripts.tune_search import Measure, Search, Setting, Trial, compared, latest, search
from scripts.workloads import Workload

HEAD = "# Written by `snakemake tune`. `serve` uses it; keys that the config gives win over it.\n"


def recommend(found: Search, workload: str) -> dict[str, Any]:
    """What serve.yaml says: the workload it is for and the settings that were fastest on it."""
    best = found.best(workload).setting
    return {"for": workload, **asdict(best)}


def rows(found: Search) -> list[dict[str, Any]]:
    """Every setting and workload with its figures on the most prompts, the target alone included."""
    return [
        {
            **asdict(one.setting),
            **{key: value for key, value in asdict(one).items() if key != "setting"},
            **compared(found.trials, one),
        }
        for one in latest(found.trials)
    ]


def table(found: Search) -> pd.DataFrame:
    """The fastest setting of each workload beside the target alone, as people read it."""
    made = []
    for load in found.workloads:
        best = found.best(load.name)
        against = compared(found.trials, best)
        made.append(
            {
                "workload": load.name,
                "n-max": best.setting.n_max,
                "draft": best.setting.draft_quant,
                "KV": best.setting.kv_type,
                "draft KV": best.setting.draft_kv_type,
                "tok/s": f"{best.speed:.1f}",
                "target alone": _number(against["baseline"], 1),
                "ratio": _number(against["ratio"], 2),
                "acceptance": _number(best.acceptance, 3),
                "tokens/pass": _number(best.tokens_per_pass, 2),
            }
        )
    return pd.DataFrame(made)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def warnings(found: Search) -> list[str]:
    """What somebody who serves with the result has to know."""
    said = []
    for load in found.workloads:
        best = found.best(load.name)
        ratio = compared(found.trials, best)["ratio"]
        if ratio is not None and ratio < 1:
            said.append(f"{load.name}: the target alone is faster than with any draft setting ({ratio:.2f}x at best)")
    if found.untried:
        said.append(f"the budget left {len(found.untried)} trials out, the first: {found.untried[0]}")
    return said


def measuring(
    server: Path,
    target: Path,
    drafts: Mapping[str, Path],
    settings: Settings,
    formats: Sequence[str],
    predict: int,
    logs: Path,
) -> Measure:
    """A function that measures one setting with llama-server on this machine (:data:`scripts.tune_search.Measure`)."""

    def measure(setting: Setting, loads: Sequence[Workload]) -> Measured:
        draft = None if setting.n_max is None else drafts[setting.draft_quant]
        wanted = replace(settings, kv_type=setting.kv_type, draft_kv_type=setting.draft_kv_type)
        if setting.n_max is not None:
            wanted = replace(wanted, n_max=setting.n_max)
        command = serve_command.command(wanted, target, draft, server)
        side = BASELINE if draft is None else DFLASH
        opens = {side: lambda: llama_server.running(command, logs / "server.log")}
        return bench_run.measure(opens, loads, formats, repeats=1, predict=predict)

    return measure


def tune(
    server: Path,
    target: Path,
    drafts: Mapping[str, Path],
    *,
    settings: Settings,
    block_size: int,
    bench: Mapping[str, Any],
    tuning: Mapping[str, Any],
) -> Search:
    """Search the settings of the config with the servers of this machine.

    Args:
        server: the llama-server binary.
        target: GGUF of the target, the first of a split one.
        drafts: GGUF of the draft by quant.
        settings: how the pair is served as long as nothing was tuned.
        block_size: of the draft; values of n_max that it is too short for are left out.
        bench: ``workloads``, ``formats`` and ``predict`` of the config.
        tuning: ``budget``, ``n_max``, ``kv_types``, ``draft_kv_types`` of the config.

    Raises:
        BuildError: no n-max is possible, a server fails, or the draft never engages.
    """
    loads = workloads.load_all(bench["workloads"])
    values = [value for value in tuning["n_max"] if value < block_size]
    if not values:
        what = f"no n_max in {tuning['n_max']} is below the block size {block_size}"
        raise BuildError(what, "tune.n_max", f"name values up to {block_size - 1}")
    start = Setting(max(values), settings.draft_quant, settings.kv_type, settings.draft_kv_type)
    with tempfile.TemporaryDirectory(prefix="tune-") as logs:
        measure = measuring(server, target, drafts, settings, bench["formats"], bench["predict"], Path(logs))
        return search(
            measure,
            loads,
            start,
            n_max=values,
            draft_quants=list(drafts),
            kv_types=tuning["kv_types"],
            draft_kv_types=tuning["draft_kv_types"],
            budget=tuning["budget"],
        )


def write(found: Search, workload: str, out: Path, serve_yaml: Path) -> Report:
    """Write trials, plots and serve.yaml; returns the report."""
    advice = recommend(found, workload)
    out.mkdir(parents=True, exist_ok=True)
    with core.atomic(out / "trials.jsonl") as temporary:
        temporary.write_text("".join(f"{json.dumps(_line(one))}\n" for one in found.trials), encoding="utf-8")
    tune_plot.plot(found, out / "tune")
    report = Report(
        figures={
            "recommended": advice,
            "best": {load.name: _line(found.best(load.name)) for load in found.workloads},
            "rows": rows(found),
            "untried": found.untried,
            "warnings": warnings(found),
        }
    )
    report.check("settings compared", True, f"{len({one.setting for one in found.trials})} settings on this machine")
    with core.atomic(serve_yaml) as temporary:
        temporary.write_text(HEAD + yaml.safe_dump(advice, sort_keys=False), encoding="utf-8")
    return report


def _line(one: Trial) -> dict[str, Any]:
    return asdict(one)


def main(argv: Sequence[str] | None = None) -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--server", required=True, type=Path, help="the llama-server binary")
    arguments.add_argument("--target", required=True, type=Path, help="GGUF of the target, or the report of its fetch")
    arguments.add_argument("--drafts", required=True, nargs="+", metavar="QUANT=FILE", help="GGUFs of the draft")
    arguments.add_argument("--settings", required=True, type=Settings.parse, help="how the pair is served, as JSON")
    arguments.add_argument("--block-size", required=True, type=int, help="of the draft")
    for name in ("bench", "tune"):
        arguments.add_argument(f"--{name}", required=True, type=json.loads, help=f"JSON: `{name}` of the config")
    arguments.add_argument("--out", required=True, type=Path, help="folder for trials and plots")
    arguments.add_argument("--serve-yaml", required=True, type=Path, help="where the recommended settings go")
    arguments.add_argument("--report", required=True, type=Path)
    return core.run(arguments, _step, argv)


def _step(options: argparse.Namespace) -> None:
    drafts = {quant: Path(file) for quant, _, file in (one.partition("=") for one in options.drafts)}
    names = [load.name for load in workloads.load_all(options.bench["workloads"])]
    workload = options.tune.get("workload", names[0])
    if workload not in names:
        raise BuildError(f"no workload {workload}", "tune.workload", f"use one of: {', '.join(names)}")
    found = tune(
        options.server,
        served.first_file(options.target),
        drafts,
        settings=options.settings,
        block_size=options.block_size,
        bench=options.bench,
        tuning=options.tune,
    )
    report = write(found, workload, options.out, options.serve_yaml)
    report.write(options.report)
    print(table(found).to_markdown(index=False))
    for warning in report.figures["warnings"]:
        core.say(f"warning: {warning}")
    advice = report.figures["recommended"]
    core.say(
        f"recommended for {workload}: {', '.join(f'{key} {value}' for key, value in advice.items() if key != 'for')}"
    )


if __name__ == "__main__":
    sys.exit(main())
