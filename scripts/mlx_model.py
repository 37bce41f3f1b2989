"""Download the target in MLX form, weights and all, to measure with dflash-mlx on this machine.

Every file is checked against the lock. Comparing the target with the draft never needs the weights.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts import core, fetch
from scripts.core import BuildError, Report
from scripts.served import REPORT

ENDINGS = (".safetensors", ".json", ".jinja", ".txt")
"""What mlx-lm reads of a model; code and pickles are never fetched."""


def download(entry: Mapping[str, Any], out: Path) -> Report:
    """Put the files of a locked MLX model into ``out``, each checked, and nothing else.

    Raises:
        BuildError: the repository has no weights, or a file is not what the lock says.
    """
    files = [file for file in entry["files"] if "/" not in file["path"] and file["path"].endswith(ENDINGS)]
    if not any(file["path"].endswith(".safetensors") for file in files):
        raise BuildError("mlx_target has no safetensors", entry["repo"], "name a target that mlx-lm made")
    out.mkdir(parents=True, exist_ok=True)
    for file in files:
        core.link_or_copy(fetch.checked(entry, file), out / file["path"])
    names = {file["path"] for file in files}
    for stray in out.iterdir():
        if stray.is_file() and stray.name not in names | {REPORT}:
            stray.unlink()
    figures = {**{key: entry[key] for key in ("repo", "commit")}, "files": sorted(names)}
    report = Report(figures=figures | {"bytes": sum(file["size"] for file in files)})
    report.check("checksums", True, f"{len(files)} files match the lock at commit {entry['commit']}")
    return report


def main(argv: list[str] | None = None) -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--lock", required=True, type=Path, help="report of the lock step")
    arguments.add_argument("--out", required=True, type=Path, help="folder to put the files in")
    return core.run(arguments, _step, argv)


def _step(options: argparse.Namespace) -> None:
    report = download(core.read_json(options.lock)["inputs"]["mlx_target"], options.out)
    report.write(options.out / REPORT)
    core.say(f"{report.figures['repo']}: {core.human(report.figures['bytes'])}")


if __name__ == "__main__":
    sys.exit(main())
