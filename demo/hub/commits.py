"""Commits: their record on disk, their history, and how two of them are merged."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from demo.hub.objects import FileEntry, commit_id, tree_ids
from scripts.core import read_json, write_json

FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)
"""Dates count minutes from here, never from a clock: the same history gives the same commit ids."""


def moment(count: int) -> str:
    """The ``count``-th minute after the first day, as the Hub writes dates."""
    return (FIRST_DAY + timedelta(minutes=count)).strftime("%Y-%m-%dT%H:%M:%S.000Z")


@dataclass(frozen=True)
class Commit:
    """A commit: ``depth`` is the length of the longest way to a root, ``files`` the whole table by path."""

    id: str
    parents: tuple[str, ...]
    author: str
    depth: int
    title: str
    message: str
    files: Mapping[str, FileEntry] = field(repr=False)

    @property
    def date(self) -> str:
        """The commit's date, a function of its depth."""
        return moment(self.depth)


class History:
    """The commits of one repository: immutable JSON files named by their ids."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._cache: dict[str, Commit] = {}

    def get(self, oid: str) -> Commit:
        """Read a commit that is known to exist."""
        if oid not in self._cache:
            data: dict[str, Any] = read_json(self.root / f"{oid}.json")
            data["files"] = {path: FileEntry(**entry) for path, entry in data["files"].items()}
            self._cache[oid] = Commit(**{**data, "parents": tuple(data["parents"])})
        return self._cache[oid]

    def has(self, oid: str) -> bool:
        """Whether a commit exists."""
        return oid in self._cache or (self.root / f"{oid}.json").exists()

    def add(
        self, files: Mapping[str, FileEntry], parents: tuple[str, ...], author: str, title: str, message: str
    ) -> Commit:
        """Write a commit and return it; its id is git's, from content, parents, author, text and depth."""
        ordered = dict(sorted(files.items()))
        depth = max((self.get(parent).depth + 1 for parent in parents), default=0)
        seconds = int((FIRST_DAY + timedelta(minutes=depth)).timestamp())
        text = f"{title}\n\n{message}" if message else title
        oid = commit_id(tree_ids(ordered)[""], parents, author, seconds, text)
        commit = Commit(oid, parents, author, depth, title, message, ordered)
        if not self.has(oid):
            write_json(self.root / f"{oid}.json", {**asdict(commit), "files": _table(ordered)})
        self._cache[oid] = commit
        return commit

    def log(self, oid: str) -> Iterator[Commit]:
        """The commits reachable from one, newest (deepest) first."""
        pending, seen = {oid}, {oid}
        while pending:
            newest = max((self.get(item) for item in pending), key=lambda commit: (commit.depth, commit.id))
            pending.discard(newest.id)
            yield newest
            fresh = [parent for parent in newest.parents if parent not in seen]
            seen.update(fresh)
            pending.update(fresh)

    def merge_base(self, left: str, right: str) -> Commit:
        """The newest commit reachable from both."""
        known = {commit.id for commit in self.log(left)}
        return next(commit for commit in self.log(right) if commit.id in known)

    def last_changes(self, oid: str) -> dict[str, Commit]:
        """For every path of a commit (files and folders), the newest commit that changed it."""
        head, result = self.get(oid), dict[str, Commit]()
        wanted = set(head.files)
        for commit in self.log(oid):
            parents = [self.get(parent).files for parent in commit.parents]
            for path in list(wanted):
                entry = commit.files.get(path)
                if entry == head.files[path] and all(files.get(path) != entry for files in parents):
                    wanted.discard(path)
                    parts = path.split("/")
                    for depth in range(1, len(parts) + 1):
                        above = "/".join(parts[:depth])
                        if above not in result or result[above].depth < commit.depth:
                            result[above] = commit
        return result


def _table(files: Mapping[str, FileEntry]) -> dict[str, Any]:
    return {path: asdict(entry) for path, entry in files.items()}


def merge(base: Commit, ours: Commit, theirs: Commit) -> tuple[dict[str, FileEntry], list[str]]:
    """Merge two file tables: the result, and the paths that both sides changed differently."""
    files, conflicts = dict(ours.files), []
    for path in sorted(set(base.files) | set(theirs.files)):
        before, mine, other = base.files.get(path), ours.files.get(path), theirs.files.get(path)
        if other in (before, mine):
            continue
        if mine != before:
            conflicts.append(path)
        elif other is None:
            files.pop(path, None)
        else:
            files[path] = other
    return files, conflicts


def to_json_line(value: Any) -> str:
    """One JSON line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"
