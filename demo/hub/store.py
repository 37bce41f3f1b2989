"""Repositories on disk: one JSON state with settings, refs and discussions, and commits and blobs beside it.

The state file is the only thing that ever changes. Blobs and commits are written first, then the state is replaced
in one rename, so a reader sees the commit before or the commit after and nothing between.
"""

from __future__ import annotations

import contextlib
import copy
import fcntl
import os
import re
import shutil
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from demo.hub.commits import Commit, History
from demo.hub.errors import HubError, entry_not_found, repo_not_found, revision_not_found
from demo.hub.objects import GITATTRIBUTES, SHA1, Blobs, FileEntry, is_lfs
from scripts.core import BuildError, read_json, write_json

NAME = re.compile(r"(?!.*(\.\.|--))[A-Za-z0-9_](?:[\w.-]{0,94}[\w])?", re.ASCII)
BRANCH = re.compile(r"(?!.*(\.\.|//|@\{))[A-Za-z0-9_][\w./+-]{0,126}", re.ASCII)
SYSTEM = "system"
RESERVED = ("api", "cdn", "lfs")


def valid_repo_id(owner: str, name: str) -> bool:
    """Whether these are names the Hub allows (and no path could be made of)."""
    valid = NAME.fullmatch(owner) and NAME.fullmatch(name) and owner not in RESERVED
    return bool(valid) and not name.endswith(".git")


class Repo:
    """One repository. Writers work inside ``change()``."""

    def __init__(self, repo_id: str, root: Path) -> None:
        self.id, self.root = repo_id, root
        self.blobs = Blobs(root / "blobs")
        self.history = History(root / "commits")
        self.lock = threading.RLock()
        self.state: dict[str, Any] = read_json(root / "repo.json")

    @property
    def owner(self) -> str:
        """The namespace."""
        return self.id.split("/")[0]

    @property
    def private(self) -> bool:
        """Whether only members of the namespace see it."""
        return bool(self.state["private"])

    @property
    def gated(self) -> str | bool:
        """False, or how access to its files is granted: "auto" or "manual"."""
        gated: str | bool = self.state["gated"]
        return gated

    def save(self) -> None:
        """Replace the state file."""
        write_json(self.root / "repo.json", self.state)

    @contextlib.contextmanager
    def change(self) -> Iterator[None]:
        """Hold the lock, then save the state; on an error the state is what it was before."""
        with self.lock:
            before = copy.deepcopy(self.state)
            try:
                yield
                self.save()
            except BaseException:
                self.state = before
                raise

    def refs(self) -> dict[str, str]:
        """Every ref by its full name (``refs/heads/main``, ``refs/tags/v1``, ``refs/pr/1``), with its commit id."""
        refs: dict[str, str] = self.state["refs"]
        return refs

    def full_ref(self, revision: str) -> str | None:
        """The full name of a branch, tag or pull request, or None."""
        candidates = (f"refs/heads/{revision}", f"refs/tags/{revision}", revision)
        return next((name for name in candidates if name in self.refs()), None)

    def resolve(self, revision: str) -> Commit:
        """The commit of a branch, tag, ``refs/pr/N``, commit id or a unique beginning of one (7 digits or more).

        Raises:
            HubError: 404 RevisionNotFound.
        """
        if ref := self.full_ref(revision):
            return self.history.get(self.refs()[ref])
        if SHA1.fullmatch(revision) and self.history.has(revision):
            return self.history.get(revision)
        if re.fullmatch(r"[0-9a-f]{7,39}", revision):
            found = [path.stem for path in self.history.root.glob(f"{revision}*.json")]
            if len(found) == 1:
                return self.history.get(found[0])
        raise revision_not_found(revision)

    def entry(self, revision: str, path: str) -> tuple[Commit, FileEntry]:
        """A file at a revision.

        Raises:
            HubError: 404 RevisionNotFound or EntryNotFound.
        """
        commit = self.resolve(revision)
        if path not in commit.files:
            raise entry_not_found(path, commit.id)
        return commit, commit.files[path]

    def attributes(self, commit: Commit) -> str:
        """The text of ``.gitattributes`` at a commit."""
        entry = commit.files.get(".gitattributes")
        return self.blobs.read(entry).decode("utf-8", "replace") if entry and not entry.sha256 else ""

    def is_lfs(self, commit: Commit, path: str, size: int, lfs_over: int) -> bool:
        """Whether a file of this name and size (bytes) is stored as LFS."""
        return is_lfs(path, size, self.attributes(commit), lfs_over)

    def add_commit(self, ref: str, files: Mapping[str, FileEntry], author: str, title: str, message: str) -> Commit:
        """Commit a file table on top of a ref (a full name) and move the ref there; inside ``change()``."""
        commit = self.history.add(files, (self.refs()[ref],), author, title, message)
        self.set_ref(ref, commit.id)
        return commit

    def set_ref(self, ref: str, oid: str | None) -> None:
        """Create or move a ref, or delete it (None); inside ``change()``."""
        refs = {name: value for name, value in self.refs().items() if name != ref}
        self.state["refs"] = dict(sorted({**refs, **({ref: oid} if oid else {})}.items()))

    def new_ref(self, kind: str, name: str, oid: str) -> None:
        """Create a branch (``kind`` "heads") or a tag ("tags"); inside ``change()``.

        Raises:
            HubError: 400 for a name git or the Hub refuses, 409 when it exists.
        """
        if not BRANCH.fullmatch(name) or name.startswith("refs/") or name.endswith(("/", ".", ".lock")):
            raise HubError(400, f"Invalid reference name: {name!r}")
        if SHA1.fullmatch(name):
            raise HubError(400, f"A reference cannot be named like a commit: {name!r}")
        if f"refs/{kind}/{name}" in self.refs():
            raise HubError(409, f"Reference already exists: refs/{kind}/{name}")
        self.set_ref(f"refs/{kind}/{name}", oid)


class Store:
    """All repositories under a root folder; one process at a time."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self._repos: dict[str, Repo] = {}
        self._lock = threading.RLock()
        self._handle: int | None = None

    def __enter__(self) -> Store:
        """Take the folder.

        Raises:
            BuildError: another process, or another Store here, has it.
        """
        (self.root / "repos").mkdir(parents=True, exist_ok=True)
        handle = os.open(self.root / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            raise BuildError("another Hub already uses this folder", self.root, "stop it or take another") from error
        self._handle = handle
        for repo_id in self.ids():
            Blobs(self._folder(repo_id) / "blobs").discard_leftovers()
        return self

    def __exit__(self, *_: object) -> None:
        """Release the folder."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        self._repos.clear()

    def _folder(self, repo_id: str) -> Path:
        owner, _, name = repo_id.partition("/")
        if not valid_repo_id(owner, name):
            raise HubError(400, f"Invalid repository name: {repo_id!r}")
        return self.root / "repos" / owner / name

    def ids(self) -> list[str]:
        """The ids of all repositories, sorted."""
        found = (self.root / "repos").glob("*/*/repo.json")
        return sorted("/".join(path.parent.parts[-2:]) for path in found)

    def find(self, repo_id: str) -> Repo | None:
        """A repository, or None; the same object every time."""
        owner, _, name = repo_id.partition("/")
        if not valid_repo_id(owner, name):
            return None
        with self._lock:
            if repo_id not in self._repos:
                folder = self._folder(repo_id)
                if not (folder / "repo.json").exists():
                    return None
                self._repos[repo_id] = Repo(repo_id, folder)
            return self._repos[repo_id]

    def get(self, repo_id: str) -> Repo:
        """A repository.

        Raises:
            HubError: 404 RepoNotFound.
        """
        repo = self.find(repo_id)
        if repo is None:
            raise repo_not_found(anonymous=False)
        return repo

    def create(self, repo_id: str, *, private: bool = False, gated: str | bool = False) -> Repo:
        """Create a repository with the first commit every repository has (``.gitattributes``).

        Raises:
            HubError: 400 for an impossible name, 409 when it exists.
        """
        with self._lock:
            folder = self._folder(repo_id)
            if (folder / "repo.json").exists():
                raise HubError(409, "You already created this model repo")
            files = {".gitattributes": Blobs(folder / "blobs").add_bytes(GITATTRIBUTES)}
            first = History(folder / "commits").add(files, (), SYSTEM, "initial commit", "")
            state: dict[str, Any] = {
                "private": private,
                "gated": gated,
                "approved": [],
                "refs": {"refs/heads/main": first.id},
                "tag_messages": {},
                "discussions": [],
            }
            write_json(folder / "repo.json", state)
            return self.get(repo_id)

    def delete(self, repo_id: str) -> None:
        """Delete a repository with all it holds.

        Raises:
            HubError: 404 RepoNotFound.
        """
        with self._lock:
            repo = self.get(repo_id)
            with repo.lock:
                self._repos.pop(repo_id)
                # without its state it is no repository, whatever happens to the rest
                (repo.root / "repo.json").unlink()
                shutil.rmtree(repo.root)
