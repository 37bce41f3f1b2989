"""The servers of a measurement: how they are started, and what the report says of them without a path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from scripts import core, llama_server
from scripts.bench_run import BASELINE, DFLASH, Open
from scripts.core import BuildError
from scripts.gguf_remote import parts
from scripts.llama_server import Client

KEYS = ("context", "kv_type", "draft_kv_type", "n_max", "gpu_layers", "threads", "checkpoints", "fit_target")
"""The keys of the config's ``serve`` section that :func:`command` reads."""

KV_TYPE = "f16"
"""Of both models where nothing is said: quantized caches of a draft have cost acceptance in some builds."""


def command(settings: Mapping[str, Any], target: Path, draft: Path | None, binary: Path) -> list[str]:
    """The command that serves a target, with a draft or without; host and port are the caller's.

    Args:
        settings: the config's ``serve`` section, defaults filled in, ``n_max`` set.
        target: GGUF; of a split one, the first file.
        draft: GGUF of the draft; None for the baseline, which differs in nothing else.
        binary: llama-server.
    """
    kv, draft_kv = (settings.get(key, KV_TYPE) for key in ("kv_type", "draft_kv_type"))
    words = [str(binary), "-m", str(target), "-c", str(settings["context"]), "-ctk", kv, "-ctv", kv]
    words += ["--no-mmproj", "-fa", "on", "--jinja", "-ctxcp", str(settings["checkpoints"])]
    words += ["-fitt", str(settings["fit_target"]), "-np", "1", "--no-webui"]
    if "threads" in settings:
        words += ["-t", str(settings["threads"])]
    if "gpu_layers" in settings:
        words += ["-ngl", str(settings["gpu_layers"])]
    if draft is not None:
        words += ["-md", str(draft), "--spec-type", "draft-dflash", "--spec-draft-n-max", str(settings["n_max"])]
        words += ["-ctkd", draft_kv, "-ctvd", draft_kv]
        if "gpu_layers" in settings:
            words += ["-ngld", str(settings["gpu_layers"])]
    return words


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
    settings: Mapping[str, Any]
    """The config's ``serve`` section."""
    logs: Path
    """Path of the servers' logs, but for their ending."""

    def __post_init__(self) -> None:
        """Check what is there.

        Raises:
            BuildError: the program or the draft is missing, or the settings name no ``n_max``.
        """
        for path, do in ((self.binary, "build llama-server"), (self.draft, "build the draft")):
            if not path.is_file():
                raise BuildError("file is missing", path, do)
        if "n_max" not in self.settings:
            raise BuildError("serve names no n_max", "--serve", "give n_max, at most block size - 1")

    def commands(self) -> dict[str, list[str]]:
        """The command of each side."""
        return {
            BASELINE: command(self.settings, self.target[0], None, self.binary),
            DFLASH: command(self.settings, self.target[0], self.draft, self.binary),
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
            "n_max": self.settings["n_max"],
        }


def connections(urls: Mapping[str, str]) -> dict[str, Open]:
    """What connects to the two running servers of ``bench.urls``."""
    return {side: partial(Client, urls[side]) for side in (BASELINE, DFLASH)}
