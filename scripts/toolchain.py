"""The pinned llama.cpp: fetch its sources (with the converter), compile llama-quantize and llama-server.

``source`` writes ``OUT/llama.cpp`` and ``OUT/source.json``; ``build`` writes ``OUT/bin/PROGRAM`` and
``OUT/PROGRAM.json``. What was fetched or compiled once is taken from the cache (``$DFLASH_CACHE``, else
``$XDG_CACHE_HOME/dflash-drafts``, else ``~/.cache/dflash-drafts``).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from scripts.core import BuildError, parser, run, say
from scripts.toolchain_build import build
from scripts.toolchain_cache import cache_root
from scripts.toolchain_probe import probe, quant_types
from scripts.toolchain_source import fetch_source
from scripts.toolchain_spec import PROGRAMS, GitSpec, PathSpec, Program, PypiSpec, Spec, parse_spec, toolchain_id

__all__ = [
    "PROGRAMS",
    "GitSpec",
    "PathSpec",
    "Program",
    "PypiSpec",
    "Spec",
    "build",
    "cache_root",
    "fetch_source",
    "parse_spec",
    "probe",
    "quant_types",
    "read_spec",
    "toolchain_id",
]


def read_spec(config: Path) -> Spec:
    """The ``llama_cpp`` key of a config file (YAML or JSON).

    Raises:
        BuildError: no such file, not YAML, no such key, or a value :func:`parse_spec` refuses.
    """
    try:
        value = yaml.safe_load(config.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BuildError("no such file", config, "give the config file") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BuildError(f"not valid YAML: {error}", config, "correct the file") from error
    if not isinstance(value, dict) or "llama_cpp" not in value:
        raise BuildError("no key llama_cpp at the top", config, "add llama_cpp with source: pypi, git or path")
    return parse_spec(value["llama_cpp"])


def _threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _arguments() -> argparse.ArgumentParser:
    arguments = parser(__doc__)
    arguments.add_argument("step", choices=("source", "build"), help="source: the tree and converter; build: a program")
    given = arguments.add_mutually_exclusive_group(required=True)
    given.add_argument("--config", type=Path, help="YAML or JSON file with a top-level key llama_cpp")
    given.add_argument("--spec", help="the value of llama_cpp itself, as JSON")
    arguments.add_argument("--out", type=Path, required=True, help="folder of this toolchain")
    arguments.add_argument("--program", choices=PROGRAMS, help="what to build")
    arguments.add_argument(
        "--threads", type=int, default=_threads(), help="files compiled at a time (default: all CPUs)"
    )
    return arguments


def _step(options: argparse.Namespace) -> None:
    if options.config:
        spec = read_spec(options.config)
    else:
        try:
            spec = parse_spec(json.loads(options.spec))
        except json.JSONDecodeError as error:
            raise BuildError(f"not JSON: {error}", "--spec", "give the value of llama_cpp as JSON") from error
    if options.step == "source":
        fetch_source(spec, options.out)
    elif options.program is None:
        raise BuildError("no program given", "--program", f"use one of {', '.join(PROGRAMS)}")
    else:
        build(spec, options.out, options.program, options.threads)
    say(f"{toolchain_id(spec)}: {options.program or 'source'} is in {options.out}")


def main(argv: Sequence[str] | None = None) -> int:
    """The command-line front; returns the exit code."""
    return run(_arguments(), _step, argv)


if __name__ == "__main__":
    sys.exit(main())
