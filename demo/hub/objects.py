"""Content-addressed blobs, LFS pointers and git's object ids for trees and commits."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from demo.hub.errors import HubError
from scripts.core import link_or_copy

LFS_SUFFIXES = (".safetensors", ".gguf", ".bin", ".png", ".gif", ".mp4")
GITATTRIBUTES = "".join(f"*{suffix} filter=lfs diff=lfs merge=lfs -text\n" for suffix in LFS_SUFFIXES).encode()
"""What every new repository starts with, as on the Hub: the patterns that are stored as LFS."""

SHA256 = re.compile(r"[0-9a-f]{64}")
SHA1 = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class FileEntry:
    """A file of a commit.

    ``oid`` is the git blob id, of the pointer for an LFS file; ``sha256`` is None for a regular file; ``size`` is
    that of the content in bytes, ``pointer_size`` that of the pointer (0 for a regular file).
    """

    oid: str
    size: int
    sha256: str | None = None
    pointer_size: int = 0

    @property
    def etag(self) -> str:
        """What the client caches and compares by: the sha256 of an LFS file, the blob id of another."""
        return self.sha256 or self.oid


def _git_id(kind: str, content: bytes) -> str:
    return hashlib.sha1(f"{kind} {len(content)}\0".encode() + content, usedforsecurity=False).hexdigest()


def blob_id(content: bytes) -> str:
    """The git object id of a file's content."""
    return _git_id("blob", content)


def lfs_entry(sha256: str, size: int) -> FileEntry:
    """The entry of an LFS file: its pointer's blob id, and the content's sha256 and size."""
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()
    return FileEntry(blob_id(pointer), size, sha256, len(pointer))


def tree_ids(files: Mapping[str, FileEntry]) -> dict[str, str]:
    """The git tree id of every folder of a file table, by path; the root is ``""``."""
    folders: dict[str, dict[str, str]] = {"": {}}
    for path, entry in files.items():
        parts = path.split("/")
        for depth in range(1, len(parts)):
            folders.setdefault("/".join(parts[:depth]), {})
        folders["/".join(parts[:-1])][parts[-1]] = entry.oid
    result: dict[str, str] = {}
    for folder in sorted(folders, key=lambda path: path.count("/") + bool(path), reverse=True):
        items = [(name.encode(), b"100644", oid) for name, oid in folders[folder].items()]
        prefix = f"{folder}/" if folder else ""
        for child, oid in result.items():
            if child.startswith(prefix) and "/" not in child[len(prefix) :]:
                items.append((child[len(prefix) :].encode(), b"40000", oid))
        # git orders a folder as if its name ended in a slash
        items.sort(key=lambda item: item[0] + (b"/" if item[1] == b"40000" else b""))
        body = b"".join(mode + b" " + name + b"\0" + bytes.fromhex(oid) for name, mode, oid in items)
        result[folder] = _git_id("tree", body)
    return result


def commit_id(tree: str, parents: tuple[str, ...], author: str, timestamp: int, message: str) -> str:
    """The id git gives to this commit (``timestamp`` in seconds since 1970, UTC)."""
    who = f"{author} <{author}@users.noreply.hub> {timestamp} +0000"
    lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents), f"author {who}", f"committer {who}"]
    return _git_id("commit", ("\n".join(lines) + f"\n\n{message}\n").encode())


def check_path(path: str) -> str:
    """Return a path inside a repository unchanged.

    Raises:
        HubError: 400, it is absolute, climbs, has empty parts or characters no checkout could hold.
    """
    parts = path.split("/")
    bad = (
        not path
        or "\\" in path
        or any(ord(char) < 32 or ord(char) == 127 or 0xD800 <= ord(char) < 0xE000 for char in path)
    )
    if bad or any(part in ("", ".", "..") or part.lower() == ".git" or len(part.encode()) > 255 for part in parts):
        raise HubError(400, f"Invalid path in repository: {path!r}")
    return path


def is_lfs(path: str, size: int, attributes: str, lfs_over: int) -> bool:
    """Whether a file is stored as LFS: by a pattern of ``.gitattributes`` or because it is larger than ``lfs_over``."""
    if size == 0:
        return False
    return size > lfs_over or any(_matches(path, pattern) for pattern in _lfs_patterns(attributes))


def _lfs_patterns(attributes: str) -> list[str]:
    lines = (line.split() for line in attributes.splitlines())
    return [line[0] for line in lines if len(line) > 1 and "filter=lfs" in line[1:] and not line[0].startswith("#")]


def _matches(path: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(path if "/" in pattern else path.rsplit("/", 1)[-1], pattern.lstrip("/"))


def is_ignored(path: str, gitignore: str) -> bool:
    """Whether simple ``.gitignore`` lines (names, globs, folders; no negation) match a path or a folder above it."""
    parts = path.split("/")
    above = ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
    for line in (text.strip() for text in gitignore.splitlines()):
        pattern = line.rstrip("/")
        if pattern and not line.startswith(("#", "!")) and any(_matches(item, pattern) for item in above):
            return True
    return False


class Blobs:
    """The blobs of one repository: regular files by git blob id, LFS files by sha256.

    A blob appears whole or not at all. Repositories share none, as on the Hub: to know the sha256 of a file in
    another repository is not to have it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.uploads = root / "uploads"

    def discard_leftovers(self) -> None:
        """Remove what uploads of an earlier run left behind."""
        for leftover in self.uploads.glob("*"):
            leftover.unlink()

    def path(self, entry: FileEntry) -> Path:
        """Where the content of an entry lies."""
        return self.lfs_path(entry.sha256) if entry.sha256 else self.root / "git" / entry.oid[:2] / entry.oid

    def lfs_path(self, sha256: str) -> Path:
        """Where the content of an LFS object lies.

        Raises:
            HubError: 422, this is no sha256.
        """
        if not SHA256.fullmatch(sha256):
            raise HubError(422, f"Not a sha256: {sha256!r}")
        return self.root / "lfs" / sha256[:2] / sha256

    def lfs_size(self, sha256: str) -> int | None:
        """The size of a stored LFS object in bytes, or None."""
        try:
            return self.lfs_path(sha256).stat().st_size
        except FileNotFoundError:
            return None

    def lfs_total(self) -> int:
        """Bytes of all stored LFS objects."""
        return sum(path.stat().st_size for path in (self.root / "lfs").glob("*/*"))

    def temporary(self) -> Path:
        """A new empty file to upload into."""
        self.uploads.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.uploads)
        os.close(handle)
        return Path(name)

    def add_bytes(self, content: bytes) -> FileEntry:
        """Store a regular file."""
        entry = FileEntry(blob_id(content), len(content))
        path = self.path(entry)
        if not path.exists():
            temporary = self.temporary()
            temporary.write_bytes(content)
            self._place(temporary, path)
        return entry

    def add_upload(self, temporary: Path, sha256: str) -> None:
        """Move a finished upload, whose sha256 was verified, to its place."""
        self._place(temporary, self.lfs_path(sha256))

    def add_file(self, source: Path, sha256: str, link: bool) -> None:
        """Store a local file whose sha256 was just computed, as a hard link where ``link`` allows it."""
        path = self.lfs_path(sha256)
        if path.exists() and path.stat().st_size == source.stat().st_size:
            return
        if link:
            link_or_copy(source, path)
        else:
            temporary = self.temporary()
            with source.open("rb") as reader, temporary.open("wb") as writer:
                while chunk := reader.read(4 << 20):
                    writer.write(chunk)
            self._place(temporary, path)

    def read(self, entry: FileEntry) -> bytes:
        """The content of a (small) file."""
        return self.path(entry).read_bytes()

    @staticmethod
    def _place(temporary: Path, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.chmod(0o644)
        temporary.replace(path)
