"""Committing a folder straight into the store, without HTTP."""

from __future__ import annotations

import json
import time
from pathlib import Path

from demo.hub.commits import Commit
from demo.hub.errors import HubError
from demo.hub.objects import FileEntry, check_path, is_lfs, lfs_entry
from demo.hub.store import SYSTEM, Repo, Store
from scripts.core import BuildError, sha256_file, write_json

CACHED_OVER = 1 << 20
SETTLED_NS = 100_000_000


class HashCache:
    """The sha256 of large files by inode, size and time of change, kept beside the store.

    Only files that have not changed for a moment are remembered: a write within the clock's grain would go unseen.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._known: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            self._known = {}

    def sha256(self, path: Path) -> str:
        """The sha256 of a file, from the cache where that is safe; shows progress."""
        stat = path.stat()
        key = f"{stat.st_dev}:{stat.st_ino}:{stat.st_size}:{stat.st_mtime_ns}"
        if key not in self._known:
            digest = sha256_file(path, f"hashing {path.name}")
            if stat.st_size < CACHED_OVER or time.time_ns() - stat.st_mtime_ns < SETTLED_NS:
                return digest
            self._known[key] = digest
            write_json(self.path, self._known)
        return self._known[key]


def _files(folder: Path) -> dict[str, Path]:
    found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {
        name: path for name, path in found.items() if not {".git", ".cache", "__pycache__"} & set(name.split("/")[:-1])
    }


def _checked(name: str, path: Path) -> str:
    try:
        return check_path(name)
    except HubError as error:
        raise BuildError(error.message, path, "rename the file") from error


def commit_folder(
    store: Store,
    repo: Repo,
    folder: Path,
    message: str,
    *,
    revision: str = "main",
    author: str = SYSTEM,
    link: bool = True,
    lfs_over: int,
) -> Commit:
    """Make a branch hold exactly what a folder holds (and the ``.gitattributes`` it has, if the folder has none).

    Large files become hard links where ``link`` allows it and the file system can: do not edit them in place after
    that. Nothing is committed when nothing changed.

    Raises:
        BuildError: the folder is missing or empty, or there is no such branch.
    """
    folder = Path(folder)
    files = _files(folder) if folder.is_dir() else {}
    if not files:
        raise BuildError("nothing to put on the Hub", folder, "give a folder that exists and holds files")
    ref = f"refs/heads/{revision}"
    cache = HashCache(store.root / "hashes.json")
    with repo.change():
        if ref not in repo.refs():
            raise BuildError(f"no branch {revision!r}", repo.id, "create the branch first")
        head = repo.resolve(ref)
        attributes = repo.attributes(head)
        if ".gitattributes" in files:
            attributes = files[".gitattributes"].read_text(encoding="utf-8")
        table: dict[str, FileEntry] = {}
        if ".gitattributes" in head.files:
            table[".gitattributes"] = head.files[".gitattributes"]
        for name, path in files.items():
            size = path.stat().st_size
            if is_lfs(_checked(name, path), size, attributes, lfs_over):
                sha256 = cache.sha256(path)
                repo.blobs.add_file(path, sha256, link)
                table[name] = lfs_entry(sha256, size)
            else:
                table[name] = repo.blobs.add_bytes(path.read_bytes())
        if table == dict(head.files):
            return head
        title, _, text = message.partition("\n")
        return repo.add_commit(ref, table, author, title, text.strip())
