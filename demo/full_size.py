"""Take a draft of the real 9B size through the whole chain, and compare with the commands a person would type.

The draft has random weights in the real shapes and lies on a local Hub, so the chain downloads it, checks it, converts,
quantizes and verifies it as it would the real one. After that the converter runs once and llama-quantize twice by
themselves, with the same binaries and threads, on the same files. Printed are what every step cost, and whether the
targets were met. Nothing is published.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from demo import full_draft, full_tables, run
from demo.full_tables import Plain, Run, Target
from demo.hub import HubServer
from scripts import config, core, process, toolchain, usage
from scripts.core import BuildError
from scripts.usage import Usage

CONFIG = config.ROOT / "demo" / "full-size.yaml"
WORK = Path("results") / "full-size"
"""Hub, locks, download cache and usages of the run, below the working directory."""


def clear(work: Path, results: Path) -> None:
    """Forget earlier runs, so that all is fetched and built again; toolchain, repositories and Hub stay."""
    for folder in (results, work / "locks", work / "hf-home", work / "hf-cache", work / "usage", work / "plain"):
        shutil.rmtree(folder, ignore_errors=True)


def chain(hub: HubServer, work: Path, results: Path, cores: int) -> Run:
    """Run the chain on the repositories of the Hub.

    Raises:
        BuildError: Snakemake failed.
    """
    env = run.environment(hub, work) | {usage.VARIABLE: str((work / "usage").resolve())}
    hub.log.clear()
    os.sync()  # what earlier work left to be written is not this run's
    started, before = time.monotonic(), os.times()
    code = run.snakemake(["--cores", str(cores), "all"], env, configfile=CONFIG)
    wall, after = time.monotonic() - started, os.times()
    if code:
        raise BuildError(f"snakemake ended with exit code {code}", "the messages above", "do what they say")
    spent = (after.children_user + after.children_system) - (before.children_user + before.children_system)
    own = (after.user + after.system) - (before.user + before.system)
    verified = [core.read_json(path) for path in sorted((results / "reports").glob("gguf-*.json"))]
    return Run(
        steps=usage.read(work / "usage"),
        wall=wall,
        cpu=spent,
        hub_cpu=own,
        fetched=sum(entry.bytes for entry in hub.log.entries()),
        sizes={report["quant"]: report["bytes"] for report in verified},
        checks=sum(len(core.read_json(path)["checks"]) for path in (results / "reports").glob("*.json")),
    )


def plain(tools: Path, results: Path, work: Path, quants: list[str], threads: int) -> Plain:
    """Convert and quantize as one would by hand: the same programs on the same files, nothing else.

    Raises:
        BuildError: a program failed.
    """
    folder = work / "plain"
    folder.mkdir(parents=True)
    env = process.environment({"HF_HUB_OFFLINE": "1", "HF_HOME": str((folder / "home").resolve())})
    bf16 = folder / "bf16.gguf"
    script = tools / "llama.cpp" / "convert_hf_to_gguf.py"
    convert: list[str | Path] = [sys.executable, script, results / "source" / "draft", "--outtype", "bf16"]
    commands = {"convert": [*convert, "--target-model-dir", results / "target", "--outfile", bf16]}
    for quant in quants:
        out = folder / f"{quant}.gguf"
        commands[f"quantize {quant}"] = [tools / "bin" / "llama-quantize", bf16, out, quant, str(threads)]
    os.sync()
    started = time.monotonic()
    with (work / "plain.log").open("w", encoding="utf-8") as log:
        steps = [_timed(name, command, env, log) for name, command in commands.items()]
    wall = time.monotonic() - started
    shutil.rmtree(folder)
    return Plain(steps, wall)


def _timed(name: str, command: list[str | Path], env: dict[str, str], log: IO[str]) -> Usage:
    core.say(f"plain sequence: {name}")
    code, used = usage.timed(name, command, env, log)
    if code:
        raise BuildError(f"{name} ended with exit code {code}", log.name, "read its last lines")
    return used


def judge(targets: Iterable[Target], *, strict: bool) -> None:
    """Fail where a binding target was missed, or any in a strict run.

    Raises:
        BuildError: names the first one and counts the others.
    """
    missed = [target for target in targets if not target.met and (target.binding or strict)]
    if missed:
        first, more = missed[0], f" (and {len(missed) - 1} more)" if len(missed) > 1 else ""
        what = f"target missed: {first.name} is {first.found}, the target is {first.limit}{more}"
        raise BuildError(what, "the tables above", "look for the step that takes it")


def main(argv: list[str] | None = None) -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="default: all")
    arguments.add_argument("--strict", action="store_true", help="fail where the chain is slower, too")
    return core.run(arguments, _step, argv)


def _step(options: argparse.Namespace) -> None:
    settings = config.load(CONFIG)
    key, pair = next(iter(settings["pairs"].items()))
    work, results = config.ROOT / WORK, config.ROOT / "results" / key
    spec = toolchain.parse_spec(settings["llama_cpp"])
    tools = config.ROOT / "results" / "toolchain" / toolchain.toolchain_id(spec)
    core.say("1/3 toolchain and full-size draft")
    toolchain.fetch_source(spec, tools)
    toolchain.build(spec, tools, "llama-quantize", options.cores)
    folder = full_draft.repositories(toolchain.cache_root() / "full-size")
    clear(work, results)
    with HubServer(work / "hub") as hub:
        for repo, name in full_draft.FOLDERS.items():
            hub.commit_folder(repo, folder / name, "Add the full-size repositories")
        core.say(f"2/3 snakemake all, from the local Hub at {hub.endpoint}")
        done = chain(hub, work, results, options.cores)
    core.say("3/3 the plain sequence")
    by_hand = plain(tools, results, work, [quant for quant in pair["quants"] if quant != "bf16"], options.cores)
    # The downloaded files are linked into the results; what is left of the cache are names.
    shutil.rmtree(work / "hf-cache", ignore_errors=True)
    targets = full_tables.targets(done, by_hand)
    print(full_tables.report(done, by_hand, targets, options.cores))
    judge(targets, strict=options.strict)


if __name__ == "__main__":
    sys.exit(main())
