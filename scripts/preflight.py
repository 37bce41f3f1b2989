"""Before the first job of a run: say at once what would only show after minutes of compiling.

The toolchain is built beside the downloads, and Snakemake waits for running jobs after a failure; a Hub that cannot be
reached is therefore looked for first, and so is a folder that cannot be written.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache

from scripts import hub, lock
from scripts.core import BuildError


def needed(pairs: Mapping[str, Mapping[str, Any]], locks: Path, results: Path) -> Iterable[tuple[str, str]]:
    """(repo, revision) of every input that the Hub has to be asked for, because nothing local has it.

    An input that was fetched before, or whose config is in the Hub cache at the locked commit, needs no Hub.
    """
    for key, pair in pairs.items():
        path = locks / f"{key}.yaml"
        locked = lock.read(path) if path.exists() else {}
        for role, (repo, revision) in lock.wanted(pair).items():
            entry = locked.get(role)
            if not entry:
                yield repo, revision
            elif role != "target_gguf" and not (results / key / "reports" / f"fetch-{role}.json").exists():
                found = try_to_load_from_cache(repo, "config.json", revision=entry["commit"])
                if not isinstance(found, str):
                    yield repo, entry["commit"]


def writable(folders: Iterable[Path]) -> None:
    """Make the folders and check that files can be made in them.

    Raises:
        BuildError: they cannot.
    """
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder, prefix=".writable."):
                pass
        except OSError as error:
            raise BuildError(f"cannot write: {error.strerror}", folder, "check its permissions and its disk") from error


def check(pairs: Mapping[str, Mapping[str, Any]], locks: Path, results: Path = Path("results")) -> None:
    """Ask the Hub for every input that is needed.

    Raises:
        BuildError: the Hub cannot be reached, or an input does not exist or may not be read.
    """
    for repo, revision in needed(pairs, locks, results):
        hub.info(repo, revision)
