"""Before the first job of a run: say at once what would only show after minutes of compiling.

The toolchain is built beside the downloads, and Snakemake waits for running jobs after a failure; a Hub that cannot be
reached is therefore looked for first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache

from scripts import hub, lock
from scripts.core import BuildError


def needed(pairs: Mapping[str, Mapping[str, Any]], locks: Path, results: Path) -> Iterable[tuple[str, str]]:
    """(repo, revision) of every input that the Hub has to be asked for, because nothing local has it.

    An input that was fetched before, or whose config is in the Hub cache at the locked commit, needs no Hub; nor does a
    served target that was looked at before.
    """
    for key, pair in pairs.items():
        path = locks / f"{key}.yaml"
        locked = lock.read(path) if path.exists() else {}
        for role, (repo, revision) in lock.wanted(pair).items():
            entry = locked.get(role)
            step = "target" if role == "target_gguf" else f"fetch-{role}"
            if not entry:
                yield repo, revision
            elif not (results / key / "reports" / f"{step}.json").exists():
                # What is read of a served target is not kept in the cache.
                cached = try_to_load_from_cache(repo, "config.json", revision=entry["commit"])
                if role == "target_gguf" or not isinstance(cached, str):
                    yield repo, entry["commit"]


def check_local(pairs: Mapping[str, Mapping[str, Any]]) -> None:
    """Look for every file of this machine that the config names.

    Raises:
        BuildError: one is not there.
    """
    for key, pair in pairs.items():
        path = pair.get("target_gguf", {}).get("path")
        if path and not Path(path).is_file():
            raise BuildError(f"pairs.{key}.target_gguf.path: no such file", path, "name the target's GGUF, or its repo")


def check(pairs: Mapping[str, Mapping[str, Any]], locks: Path, results: Path = Path("results")) -> None:
    """Ask the Hub for every input that is needed.

    Raises:
        BuildError: the Hub cannot be reached, or an input does not exist or may not be read.
    """
    for repo, revision in needed(pairs, locks, results):
        with hub.explained(repo, f"revision {revision}"):
            hub.api().model_info(repo, revision=revision)
