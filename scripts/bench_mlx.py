"""Measure a pair in dflash-mlx: its loop with the draft against mlx-lm without, counted as llama-server's runs are.

The rows are made by the same code as those of llama-server (:mod:`scripts.bench_summary`), from the same workloads, and
acceptance is accepted over drafted tokens in both. Writes into OUT: ``raw.jsonl``, ``table.md``; the summary is REPORT.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts import bench_run, bench_summary, config, core, machine, mlx_env, mlx_quant, workloads
from scripts.bench_run import DFLASH, Measured, Request, Run
from scripts.core import BuildError, Report
from scripts.draft_config import read_draft_config
from scripts.llama_server import Answer, Piece

COPIES = "copyspec"
"""What dflash-mlx calls tokens that it drafts by copying earlier ones, without the draft."""


def asked(
    target: Path, draft: Path, serve: Mapping[str, Any], bench: Mapping[str, Any], *, copies: bool
) -> dict[str, Any]:
    """What ``on_mlx.answer`` is asked: every prompt of the workloads in every format.

    Args:
        target: folder of the target that mlx-lm loads.
        draft: the MLX folder of the draft.
        serve: the pair's ``serve_mlx`` section.
        bench: the config's ``bench`` section.
        copies: whether dflash-mlx may draft by copying too, as it does when it serves.

    Raises:
        BuildError: the draft cannot be quantized as asked, or is no draft.
    """
    shape = read_draft_config(draft / "config.json")
    quant = mlx_quant.parse(serve["draft_quant"], "serve_mlx.draft_quant")
    if quant:
        mlx_quant.check_rows(shape, quant.group_size, "serve_mlx.draft_quant")
    if serve["block_tokens"] > shape.block_size:
        what = f"block_tokens is {serve['block_tokens']}, the draft's block has {shape.block_size} tokens"
        raise BuildError(what, "serve_mlx.block_tokens", "lower it to the block size")
    prompts = [
        {"workload": one.name, "id": prompt.id, "raw": prompt.text, "messages": prompt.messages, "format": name}
        for one in workloads.load_all(bench["workloads"])
        for name in bench["formats"]
        for prompt in one.prompts
    ]
    return {
        "target": str(target.resolve()),
        "draft": str(draft.resolve()),
        "draft_quant": serve["draft_quant"],
        "block": serve["block_tokens"],
        "copies": copies,
        "sides": list(bench_run.SIDES),
        "predict": bench["predict"],
        "repeats": bench["repeats"],
        "prompts": prompts,
    }


def measured(given: Mapping[str, Any]) -> Measured:
    """The answers of ``on_mlx.answer`` in the form in which llama-server's are kept."""
    requests = [
        Request(one["workload"], one["id"], one["format"], one["thinking"], one["text"], one["tokens"])
        for one in given["prompts"]
    ]
    return Measured([Run(one["side"], one["repeat"], requests[one["prompt"]], answer(one)) for one in given["answers"]])


def answer(one: Mapping[str, Any]) -> Answer:
    """One answer with the figures that llama-server's ``timings`` would have."""
    times = one["times"]
    drafts = one["side"] == DFLASH
    return Answer(
        text=one["text"],
        tokens=one["tokens"],
        stop=one["stop"],
        prompt_n=one["prompt_tokens"],
        prompt_ms=1000 * one["prefill_s"],
        predicted_n=len(one["tokens"]),
        predicted_ms=1000 * (times[-1] - times[0]),
        draft_n=sum(cycle["drafted"] for cycle in one["cycles"]) if drafts else None,
        draft_n_accepted=sum(cycle["accepted"] for cycle in one["cycles"]) if drafts else None,
        first_token_s=times[0],
        pieces=[Piece(*row) for row in zip(times, one["texts"], [[token] for token in one["tokens"]], strict=True)],
    )


def report_of(given: Mapping[str, Any], serve: Mapping[str, Any], bench: Mapping[str, Any]) -> Report:
    """The summary.

    Raises:
        BuildError: every answer is a loop.
    """
    report = Report()
    found = bench_summary.rows(measured(given))
    drafts = [one for one in given["answers"] if one["side"] == DFLASH]
    cycles = [cycle for one in drafts for cycle in one["cycles"]]
    drafted = sum(cycle["drafted"] for cycle in cycles)
    report.check("draft engaged", drafted > 0, f"{drafted} tokens drafted in {len(drafts)} answers")
    report.figures = {
        "engine": "mlx",
        "versions": given["versions"],
        "machine": machine.describe(),
        "block_size": given["block_size"],
        "serve_mlx": {key: serve[key] for key in ("draft_quant", "block_tokens")},
        "predict": bench["predict"],
        "repeats": bench["repeats"],
        "formats": bench["formats"],
        "temperature": 0,
        "peak_gb": max(one["peak_gb"] for one in drafts),
        "copied_drafts": sum(cycle["drafted"] for cycle in cycles if cycle["source"] == COPIES),
        "their_acceptance": sum(cycle["accepted"] for cycle in cycles) / sum(len(one["tokens"]) for one in drafts),
        "warnings": bench_summary.warnings(found, {}),
        "rows": found,
    }
    return report


def main(argv: Sequence[str] | None = None) -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--target", type=Path, required=True, help="folder of the target, as mlx-lm loads it")
    arguments.add_argument("--draft", type=Path, required=True, help="the MLX folder of the draft")
    arguments.add_argument("--serve-mlx", type=json.loads, default={}, help="JSON: the pair's serve_mlx section")
    arguments.add_argument("--bench", type=json.loads, default={}, help="JSON: the config's bench section")
    arguments.add_argument("--no-copies", action="store_true", help="draft by the draft alone, never by copying")
    arguments.add_argument("--out", type=Path, required=True, help="folder for raw answers and table")
    arguments.add_argument("--report", type=Path, required=True, help="summary to write")
    return core.run(arguments, _step, argv)


def _step(options: argparse.Namespace) -> None:
    serve = config.section("serve_mlx", options.serve_mlx, "--serve-mlx")
    bench = config.section("bench", options.bench, "--bench")
    ask = asked(options.target, options.draft, serve, bench, copies=not options.no_copies)
    core.say(f"measuring {len(ask['prompts'])} prompts in dflash-mlx")
    given = mlx_env.call("answer", ask, options.target, "name a target that mlx-lm loads and the draft's MLX folder")
    report = report_of(given, serve, bench)
    with core.atomic(options.out / "raw.jsonl") as temporary, temporary.open("w", encoding="utf-8") as stream:
        for record in bench_run.records(measured(given).runs, bench["predict"]):
            stream.write(json.dumps(record, ensure_ascii=False) + "\n")
    table = bench_summary.table(report.figures["rows"]).to_markdown(index=False)
    with core.atomic(options.out / "table.md") as temporary:
        temporary.write_text(f"{table}\n", encoding="utf-8")
    for warning in report.figures["warnings"]:
        core.say(f"warning: {warning}")
    report.write(options.report)
    print(table)


if __name__ == "__main__":
    sys.exit(main())
