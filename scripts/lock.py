"""Resolve every input of a pair once to a commit and write it to locks/<pair>.yaml.

A branch or a tag is not a pin: repositories replace weights in place. The lock names the commit and, for every file at
it, the size and the sha256 (LFS files) or git blob id (others) that the Hub vouches for, so later steps check what they
get without asking again.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from scripts import core, hub
from scripts.core import BuildError, Report

ROLES = ("draft", "target", "base", "target_gguf", "mlx_target")
"""The inputs of a pair, by config key; those after target are optional, and a target_gguf may lie on this machine."""

HEADER = "# Written by `snakemake lock`. Commit it: the build reads these commits, whatever the branches do later.\n"


def wanted(pair: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Role -> (repo, revision) of every input that a pair's config names; the served GGUFs follow their main branch."""
    named = {role: pair[role] for role in ROLES if "repo" in pair.get(role, {})}
    return {role: (entry["repo"], entry.get("revision", "main")) for role, entry in named.items()}


def resolve(repo: str, revision: str) -> dict[str, Any]:
    """Ask the Hub which commit a revision is and which files it holds.

    Raises:
        BuildError: the repository or the revision does not exist, is gated, or the Hub cannot be reached.
    """
    info = hub.info(repo, revision, files=True)
    if not info.sha or not info.siblings:
        raise BuildError(f"revision {revision} of {repo} is empty", hub.page(repo), "name a revision with files")
    files = []
    for file in sorted(info.siblings, key=lambda sibling: sibling.rfilename):
        identity = {"sha256": file.lfs.sha256} if file.lfs else {"git": file.blob_id}
        files.append({"path": file.rfilename, "size": file.size, **identity})
    return {"repo": repo, "revision": revision, "commit": info.sha, "files": files}


def read(path: Path) -> dict[str, Any]:
    """Read a lock file.

    Raises:
        BuildError: it is not a lock file.
    """
    try:
        lock = core.parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BuildError(
            f"cannot read the lock: {error}", path, "restore it from git or run `snakemake lock`"
        ) from error
    if not isinstance(lock, dict) or not all(map(_is_entry, lock.values())):
        raise BuildError("not a lock file", path, "restore it from git or run `snakemake lock`")
    return dict(lock)


def _is_entry(entry: Any) -> bool:
    """Whether a value has the form of what :func:`resolve` returns."""
    if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("repo", "revision")):
        return False
    files = entry.get("files")
    return (
        re.fullmatch("[0-9a-f]{40}", str(entry.get("commit"))) is not None
        and isinstance(files, list)
        and all(isinstance(file, dict) and _is_file(file) for file in files)
    )


def _is_file(file: Mapping[str, Any]) -> bool:
    path, size, digest = file.get("path"), file.get("size"), file.get("sha256", file.get("git"))
    return (
        isinstance(path, str)
        and type(size) is int
        and size >= 0
        and re.fullmatch("[0-9a-f]{64}" if "sha256" in file else "[0-9a-f]{40}", str(digest)) is not None
    )


def lock(pair: Mapping[str, Any], path: Path, *, frozen: bool = False, move: bool = False) -> dict[str, Any]:
    """The lock of a pair, role -> {repo, revision, commit, files}.

    An entry that matches the config is kept as it is; a missing one, or one whose repository or revision the config has
    changed, is resolved and written, unless ``frozen``. ``move`` resolves every entry again.

    Raises:
        BuildError: frozen and something would have to be resolved, or the Hub said no.
    """
    old = read(path) if path.exists() else {}
    new: dict[str, Any] = {}
    for role, (repo, revision) in wanted(pair).items():
        entry = old.get(role)
        if entry and not move and (entry["repo"], entry["revision"]) == (repo, revision):
            new[role] = entry
            continue
        if frozen:
            raise BuildError(
                f"{role} {repo} at {revision} is not locked and the run is frozen",
                path,
                "run `snakemake lock` without frozen and commit the lock",
            )
        new[role] = resolve(repo, revision)
        before = f"{entry['commit'][:12]} -> " if entry else ""
        core.say(f"locked {role}: {repo} at {revision} is {before}{new[role]['commit'][:12]}")
    if new != old:
        with core.atomic(path) as temporary:
            text = yaml.safe_dump(new, sort_keys=False, allow_unicode=True, width=120)
            temporary.write_text(HEADER + text, encoding="utf-8")
    return new


def report(locked: Mapping[str, Any]) -> Report:
    """The lock as a step's report: one check an input, the entries as figures."""
    result = Report(figures={"inputs": dict(locked)})
    for role, entry in locked.items():
        result.check(f"{role} locked", True, f"{entry['repo']} at {entry['revision']} is commit {entry['commit']}")
    return result


def main() -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--pairs", required=True, type=json.loads, help="JSON object: pair key -> its config")
    arguments.add_argument("--locks", required=True, type=Path, help="folder of the lock files")
    arguments.add_argument("--frozen", action="store_true", help="fail where something would have to be resolved")
    arguments.add_argument("--move", action="store_true", help="resolve every input again")
    arguments.add_argument("--report", type=Path, help="write the lock of the one pair given as a report")
    return core.run(arguments, _step)


def _step(options: argparse.Namespace) -> None:
    for key, pair in options.pairs.items():
        locked = lock(pair, options.locks / f"{key}.yaml", frozen=options.frozen, move=options.move)
        if options.report:
            report(locked).write(options.report)


if __name__ == "__main__":
    sys.exit(main())
