"""The servers of a measurement: how they are started, and what the report says of them without a path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from scripts import core, llama_server, serve_command
from scripts.bench_run import BASELINE, DFLASH, Open
from scripts.core import BuildError
from scripts.gguf_remote import parts
from scripts.llama_server import Client
from scripts.serve_settings import Settings


def plain(words: list[str]) -> list[str]:
    """A command as a report shows it: names in the place of paths."""
    return [Path(part).name if "/" in part else part for part in words]


def target_files(given: Path) -> list[Path]:
    """The target's GGUF files, first part first.

    Args:
        given: a GGUF, of a split one the first file; or a JSON file ``{"files": [...]}`` in the folder of these files.

    Raises:
        BuildError: a file is missing.
    """
    if given.suffix == ".json":
        files = [given.parent / name for name in core.read_json(given)["files"]]
    else:
        names = [path.name for path in given.parent.glob("*.gguf")] if given.parent.is_dir() else []
        files = [given.parent / name for name in parts(given.name, names, str(given))]
    for path in files:
        if not path.is_file():
            raise BuildError("the target's GGUF is missing", path, "fetch it, or name another in target_gguf")
    return files


def describe(files: list[Path], label: str) -> dict[str, Any]:
    """Names, sizes and sha256 of a model's files."""
    return {
        "files": [path.name for path in files],
        "bytes": sum(path.stat().st_size for path in files),
        "sha256": [core.sha256_file(path, f"checking the {label}") for path in files],
    }


@dataclass(frozen=True)
class Models:
    """The files of this machine that servers are started from."""

    binary: Path
    target: list[Path]
    draft: Path
    settings: Settings
    logs: Path
    """Path of the servers' logs, but for their ending."""

    def __post_init__(self) -> None:
        """Check what is there.

        Raises:
            BuildError: the program or the draft is missing.
        """
        for path, do in ((self.binary, "build llama-server"), (self.draft, "build the draft")):
            if not path.is_file():
                raise BuildError("file is missing", path, do)

    def commands(self) -> dict[str, list[str]]:
        """The command of each side."""
        return {
            BASELINE: serve_command.command(self.settings, self.target[0], None, self.binary),
            DFLASH: serve_command.command(self.settings, self.target[0], self.draft, self.binary),
        }

    def openers(self) -> dict[str, Open]:
        """What starts each side's server."""
        return {
            side: partial(llama_server.running, one, self.logs.with_suffix(f".{side}.txt"))
            for side, one in self.commands().items()
        }

    def figures(self) -> dict[str, Any]:
        """What a report says of them."""
        return {
            "target": describe(self.target, "target"),
            "draft": describe([self.draft], "draft"),
            "flags": {side: plain(one)[1:] for side, one in self.commands().items()},
            "n_max": self.settings.n_max,
        }


def connections(urls: Mapping[str, str]) -> dict[str, Open]:
    """What connects to the two running servers of ``bench.urls``."""
    return {side: partial(Client, urls[side]) for side in (BASELINE, DFLASH)}
