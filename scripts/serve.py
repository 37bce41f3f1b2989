"""Serve a pair: start llama-server with target and draft, after saying how much memory they will take.

Everything comes from the pair's config and, where it was tuned, from results/<pair>/serve.yaml. What follows ``--``
goes to llama-server as it is. The server takes the place of this program; interrupt or terminate it to end it.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from scripts import config, core, locks, memory_free, memory_plan, process, serve_command
from scripts.core import BuildError
from scripts.memory_model import Sizes
from scripts.serve_settings import Settings, draft_file, present, read_tuned, served, settings, tuned_file
from scripts.toolchain_probe import check_flags
from scripts.toolchain_spec import parse_spec, toolchain_id

TOKEN = "HF_TOKEN"  # noqa: S105  (the name of a variable)
"""What llama-server downloads with, where it is asked to."""

SIZED = {
    "context": ("-c", "--ctx-size"),
    "parallel": ("-np", "--parallel"),
    "ubatch": ("-ub", "--ubatch-size"),
    "batch": ("-b", "--batch-size"),
    "checkpoints": ("-ctxcp", "--ctx-checkpoints"),
}
"""Flags that change how much memory is taken, by what they set; a later one counts."""


@dataclasses.dataclass(frozen=True)
class Start:
    """What is about to be started."""

    command: list[str]
    settings: Settings
    target: serve_command.Model
    draft: serve_command.Model


def prepare(
    pair: Mapping[str, Any], results: Path, binary: Path, mode: str | None, where: str | Path, extra: Sequence[str] = ()
) -> Start:
    """The command for a pair; every file that it names is there, and the binary knows every flag of it.

    Args:
        pair: its entry of the checked config.
        results: its folder of results.
        binary: the llama-server.
        mode: name of an alternative target.
        where: the config, for messages.
        extra: further arguments for llama-server.

    Raises:
        BuildError: a setting is wrong, a file is missing, or the binary is too old.
    """
    chosen = settings(pair, read_tuned(tuned_file(results)), where)
    found = served(pair, mode, results, where)
    target: serve_command.Model
    draft: serve_command.Model
    if found.path is None:
        if "publish" not in pair:
            what = "serve.source is hub and the config does not say where the draft is published"
            raise BuildError(what, f"{where}, publish.repo", "name the repository, or use serve.source: local")
        target, draft = f"{found.repo}:{found.quant}", f"{pair['publish']['repo']}:{chosen.draft_quant}"
    else:
        target, draft = found.path, draft_file(pair, chosen.draft_quant, results)
        present(target, "target", "name a GGUF on this machine in target_gguf.path or the mode's path")
        present(draft, "draft", f"build it first: snakemake --cores all {draft}")
    ours = [*serve_command.command(chosen, target, draft, binary), *serve_command.listening(chosen)]
    if not binary.is_file():
        raise BuildError("llama-server is not there", binary, "build it: snakemake --cores all serve, or give --server")
    check_flags(binary, serve_command.flags(ours[1:]))
    return Start([*ours, *extra], chosen, target, draft)


def plan(start: Start, binary: Path) -> memory_plan.Plan:
    """The memory that the command will take, by the headers of its models.

    Raises:
        BuildError: a model is no whole GGUF, or the Hub does not give its header.
    """
    chosen = start.settings
    sizes = Sizes(
        context=chosen.context,
        kv_type=chosen.kv_type,
        draft_kv_type=chosen.draft_kv_type,
        n_max=chosen.n_max,
        checkpoints=chosen.checkpoints,
        parallel=chosen.parallel,
    )
    changed: dict[str, Any] = _sized(start.command)
    sizes = dataclasses.replace(sizes, **changed)
    target, draft = memory_plan.read(str(start.target)), memory_plan.read(str(start.draft))
    pool = memory_free.machine() if chosen.gpu_layers == 0 else memory_free.find(binary)
    return memory_plan.plan(target, draft, sizes, pool, chosen.fit_target * memory_plan.MIB if pool.gpu else 0)


def _sized(command: Sequence[str]) -> dict[str, int]:
    """What the command's last flags of each kind set."""
    names = {flag: key for key, flags in SIZED.items() for flag in flags}
    pairs = itertools.pairwise(command)
    return {names[flag]: int(value) for flag, value in pairs if flag in names and value.isdecimal() and int(value)}


def environment(source: str) -> dict[str, str]:
    """The server's environment: no secrets, but for the Hub's token where the server downloads."""
    token = os.environ.get(TOKEN)
    return process.environment({TOKEN: token} if source == "hub" and token else None)


def execute(start: Start) -> NoReturn:
    """Become the server; the locks of a run that this is a step of stay held until it ends."""
    for descriptor in locks.held():
        os.set_inheritable(descriptor, True)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(start.command[0], start.command, environment(start.settings.source))  # noqa: S606
    except OSError as error:
        what = f"llama-server does not start: {error.strerror}"
        raise BuildError(what, start.command[0], "build it for this machine") from error


def main(argv: Sequence[str] | None = None) -> int:
    """Command-line front."""
    given = list(sys.argv[1:] if argv is None else argv)
    split = given.index("--") if "--" in given else len(given)
    arguments = core.parser(__doc__)
    arguments.usage = "%(prog)s PAIR [options] [-- further arguments of llama-server]"
    arguments.add_argument("pair", help="key of the pair in the config")
    source = arguments.add_mutually_exclusive_group()
    source.add_argument("--configfile", type=Path, default=Path("config.yaml"), help="config (%(default)s)")
    source.add_argument("--options", type=json.loads, help='JSON: {"pair", "llama_cpp"}, as in the checked config')
    arguments.add_argument("--mode", help="an alternative target of serve.modes")
    arguments.add_argument("--server", help="a llama-server of your own, for a GPU for example")
    arguments.add_argument("--print", action="store_true", help="print the command and do not run it")
    arguments.add_argument("--no-plan", action="store_true", help="do not look at the models' headers before the start")
    arguments.set_defaults(extra=given[split + 1 :])
    return core.run(arguments, _step, given[:split])


def _step(options: argparse.Namespace) -> None:
    if options.options:
        pair, llama_cpp, where = options.options["pair"], options.options["llama_cpp"], "the config"
    else:
        loaded, where = config.load(options.configfile), str(options.configfile)
        if options.pair not in loaded["pairs"]:
            raise BuildError(f"no pair {options.pair}", where, f"use one of: {', '.join(loaded['pairs'])}")
        pair, llama_cpp = loaded["pairs"][options.pair], loaded["llama_cpp"]
    toolchain = Path("results", "toolchain", toolchain_id(parse_spec(llama_cpp)))
    binary = _named(options.server) if options.server else toolchain / "bin" / "llama-server"
    start = prepare(pair, Path("results", options.pair), binary, options.mode, where, options.extra)
    if options.print:
        print(shlex.join(start.command))
        return
    if start.settings.tuned_for:
        core.say(f"settings as tuned for {start.settings.tuned_for}")
    if not options.no_plan:
        memory_plan.show(plan(start, binary))
    execute(start)


def _named(server: str) -> Path:
    """A llama-server by its path, or by its name alone where PATH has it."""
    return Path(shutil.which(server) or server)


if __name__ == "__main__":
    sys.exit(main())
