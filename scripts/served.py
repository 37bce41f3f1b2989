"""Download the target as it is served, to measure or serve with it on this machine.

Only the files of one quant are fetched, checked against the lock and put into one flat folder, with a report beside
them that names them in order. Building a draft never needs them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts import core, fetch, hub
from scripts.core import BuildError, Report
from scripts.gguf_remote import choose

REPORT = "files.json"
"""Name of the report, in the folder of the files."""


def download(entry: Mapping[str, Any], quant: str, out: Path) -> Report:
    """Put the files that llama.cpp serves for a quant into ``out``, each checked against its lock entry.

    Raises:
        BuildError: no such quant, a part is missing, or a file is not what the lock says.
    """
    known = {file["path"]: file for file in entry["files"]}
    chosen = choose(list(known), quant, hub.page(entry["repo"]))
    names = {path: path.rpartition("/")[2] for path in chosen}
    out.mkdir(parents=True, exist_ok=True)
    for path, name in names.items():
        core.link_or_copy(fetch.checked(entry, known[path]), out / name)
    for stray in out.glob("*.gguf"):
        if stray.name not in names.values():
            stray.unlink()
    report = Report(
        figures={
            **{key: entry[key] for key in ("repo", "commit")},
            "quant": quant,
            "files": list(names.values()),
            "bytes": sum(known[path]["size"] for path in chosen),
        }
    )
    report.check("checksums", True, f"{len(names)} files match the lock at commit {entry['commit']}")
    return report


def first_file(where: Path) -> Path:
    """The file to give llama-server: ``where`` itself, or the first that the report ``where`` names.

    Raises:
        BuildError: the file is not there.
    """
    path = where.parent / core.read_json(where)["files"][0] if where.name == REPORT else where
    if not path.is_file():
        raise BuildError("the served target is missing", path, "delete its report and run again, or mend target_gguf")
    return path


def main(argv: list[str] | None = None) -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--lock", required=True, type=Path, help="report of the lock step")
    arguments.add_argument("--quant", required=True, help="quant of the files to fetch")
    arguments.add_argument("--out", required=True, type=Path, help="folder to put them in")
    return core.run(arguments, _step, argv)


def _step(options: argparse.Namespace) -> None:
    locked = core.read_json(options.lock)["inputs"]
    if "target_gguf" not in locked:
        raise BuildError("the lock has no target_gguf", options.lock, "lock the pair again")
    report = download(locked["target_gguf"], options.quant, options.out)
    report.write(options.out / REPORT)
    core.say(f"{', '.join(report.figures['files'])}: {core.human(report.figures['bytes'])}")


if __name__ == "__main__":
    sys.exit(main())
