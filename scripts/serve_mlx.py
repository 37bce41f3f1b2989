"""Serve a pair with dflash-mlx on Apple Silicon: print or run the command that the pair's config calls for.

The target is the one that was checked, at its locked commit; ``--target`` names another folder or repository instead.
What follows ``--`` goes to dflash-mlx as it is.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts import config, core, hub, mlx_env, mlx_quant, process
from scripts.core import BuildError, read_json
from scripts.draft_config import read_draft_config

WEIGHTS = ("*.json", "*.safetensors", "*.jinja", "*.txt")
"""What is downloaded of the target, tokenizer files included."""


def command(pair: Mapping[str, Any], program: str | Path, draft: Path, target: str) -> list[str]:
    """The command that serves a draft's MLX folder.

    The cap on a block is called ``--verify-len-cap`` here and ``--block-tokens`` in dflash-mlx's benchmark alone.

    Args:
        pair: the pair's entry of the checked config.
        program: dflash-mlx's ``dflash``.
        draft: the MLX folder.
        target: folder of the target, or its repository.

    Raises:
        BuildError: the MLX folder is not made yet, or the draft cannot be quantized as asked.
    """
    if not (draft / "config.json").is_file():
        raise BuildError("the MLX folder is not there", draft, "build it first: snakemake --cores all, with mlx: true")
    settings = pair["serve_mlx"]
    quant = mlx_quant.parse(settings["draft_quant"], "serve_mlx.draft_quant")
    if quant:
        mlx_quant.check_rows(read_draft_config(draft / "config.json"), quant.group_size, "serve_mlx.draft_quant")
    return [str(program), "serve", *arguments(settings, draft, target)]


def arguments(settings: Mapping[str, Any], draft: Path, target: str) -> list[str]:
    """The arguments of ``dflash serve`` that a pair's ``serve_mlx`` section calls for, the target's first."""
    return [
        *("--model", target, "--draft-model", str(draft)),
        *("--draft-quant", settings["draft_quant"], "--verify-len-cap", str(settings["block_tokens"])),
        *("--host", settings["host"], "--port", str(settings["port"]), "--max-tokens", str(settings["max_tokens"])),
    ]


def check_flags(program: Path, flags: Iterable[str]) -> None:
    """Look for every flag in what ``dflash serve --help`` lists.

    Raises:
        BuildError: it does not run, or lacks one.
    """
    try:
        asked = subprocess.run(
            [program, "serve", "--help"], env=process.environment(), capture_output=True, text=True, timeout=120
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"dflash does not run: {error}", program, mlx_env.HINT) from error
    if asked.returncode:
        last = (asked.stderr.strip().splitlines() or ["no output"])[-1]
        raise BuildError(f"dflash serve does not run: {last}", program, "use the versions of envs/mlx.txt")
    known = set(re.findall(r"--[a-z][a-z0-9-]*", asked.stdout))
    if lacking := [flag for flag in flags if flag not in known]:
        raise BuildError(
            f"dflash serve does not know {', '.join(lacking)}", program, "use the versions of envs/mlx.txt"
        )


def checked_target(results: Path) -> tuple[str, str]:
    """Repository and commit of the MLX target that was compared with the draft.

    Raises:
        BuildError: it was not compared.
    """
    report = results / "reports" / "mlx-target.json"
    if not report.is_file():
        raise BuildError("no MLX target was checked", report, f"set mlx_target, run: snakemake --cores 1 {report}")
    found = read_json(report)
    return found["repo"], found["commit"]


def download(repo: str, commit: str) -> str:
    """The target's folder in the Hub's cache, downloaded where it is not there.

    Raises:
        BuildError: the Hub said no.
    """
    from huggingface_hub import snapshot_download

    with hub.explained(repo, f"its files at {commit}"):
        return str(snapshot_download(repo, revision=commit, allow_patterns=list(WEIGHTS), library_name=hub.LIBRARY))


def main(argv: Sequence[str] | None = None) -> int:
    """Command-line front."""
    given = list(sys.argv[1:] if argv is None else argv)
    split = given.index("--") if "--" in given else len(given)
    arguments = core.parser(__doc__)
    arguments.usage = "%(prog)s PAIR [options] [-- further arguments of dflash serve]"
    arguments.add_argument("pair", help="key of the pair in the config")
    arguments.add_argument("--configfile", type=Path, default=Path("config.yaml"), help="config (%(default)s)")
    arguments.add_argument("--target", help="another target: a folder, or a repository that dflash-mlx downloads")
    arguments.add_argument("--print", action="store_true", help="print the command and do not run it")
    arguments.set_defaults(extra=given[split + 1 :])
    return core.run(arguments, _step, given[:split])


def _step(options: argparse.Namespace) -> None:
    loaded = config.load(options.configfile)
    if options.pair not in loaded["pairs"]:
        what, known = f"no pair {options.pair}", ", ".join(loaded["pairs"])
        raise BuildError(what, options.configfile, f"use one of: {known}")
    pair, results = loaded["pairs"][options.pair], Path("results", options.pair)
    repo, commit = (options.target, None) if options.target else checked_target(results)
    if options.print:
        ours = [*command(pair, "dflash", results / "mlx", repo), *options.extra]
        # dflash-mlx takes no revision: the shell puts the folder of the checked commit in the repository's place.
        folder = f'"$(hf download {shlex.quote(repo)} --revision {commit} --quiet)"' if commit else shlex.quote(repo)
        print(" ".join(folder if at == 3 else shlex.quote(part) for at, part in enumerate(ours)))
        return
    program = mlx_env.program("dflash")
    ours = command(pair, program, results / "mlx", repo)
    check_flags(program, [part for part in ours if part.startswith("--")])
    if commit:
        ours[3] = download(repo, commit)
    # Only a repository that was named on the command line is looked up on the Hub by dflash-mlx itself.
    variables = mlx_env.environment({"HF_HUB_OFFLINE": "1"} if commit else {})
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(program, [*ours, *options.extra], variables)  # noqa: S606


if __name__ == "__main__":
    sys.exit(main())
