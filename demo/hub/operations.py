"""The body of a commit request: newline-delimited JSON operations applied to a file table."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from typing import Any

from demo.hub.commits import Commit
from demo.hub.errors import HubError
from demo.hub.objects import FileEntry, check_path, lfs_entry
from demo.hub.store import Repo


@dataclass
class CommitRequest:
    """A parsed commit request: header fields and operations ``(key, value)`` in their order."""

    title: str = ""
    message: str = ""
    parent: str | None = None
    operations: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


def parse(body: bytes) -> CommitRequest:
    """Parse the lines of a commit request.

    Raises:
        HubError: 400, a line is no operation or there is no summary.
    """
    result = CommitRequest()
    for number, line in enumerate(body.splitlines(), 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
            key, value = item["key"], item["value"]
            if key == "header":
                result.title, result.message = str(value["summary"]), str(value.get("description") or "")
                f"{result.title}{result.message}".encode()  # half a surrogate pair is a ValueError
                result.parent = value.get("parentCommit")
            else:
                value["path"] = check_path(str(value["path"]).rstrip("/"))
                result.operations.append((key, value))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise HubError(400, f"Line {number} of the commit is not an operation") from error
    if not result.title.strip():
        raise HubError(400, "The commit has no summary")
    return result


def apply(repo: Repo, base: Commit, request: CommitRequest, lfs_over: int) -> dict[str, FileEntry]:
    """The file table after the operations; blobs of regular files are stored on the way.

    Raises:
        HubError: 400 for content that is missing, too large or contradicts a path, 404 EntryNotFound for a file to
            delete or copy that is not there.
    """
    files = dict(base.files)
    for key, value in request.operations:
        path: str = value["path"]
        if key == "file":
            files[path] = _regular(repo, path, value, lfs_over)
        elif key == "lfsFile":
            files[path] = _lfs(repo, path, value)
        elif key in ("deletedFile", "deletedFolder"):
            gone = [name for name in files if name == path] if key == "deletedFile" else _below(files, path)
            if not gone:
                kind = "file" if key == "deletedFile" else "folder"
                raise HubError(404, f"A {kind} with this name doesn't exist: {path}", "EntryNotFound")
            for name in gone:
                del files[name]
        elif key == "copyFile":
            source = str(value.get("srcPath"))
            table = repo.resolve(str(value["srcRevision"])).files if value.get("srcRevision") else base.files
            if source not in table:
                raise HubError(404, f"A file with this name doesn't exist: {source}", "EntryNotFound")
            files[path] = table[source]
        else:
            raise HubError(400, f"Unknown operation in the commit: {key!r}")
    _check_folders(files)
    return files


def _below(files: dict[str, FileEntry], folder: str) -> list[str]:
    return [name for name in files if name.startswith(f"{folder}/")]


def _regular(repo: Repo, path: str, value: dict[str, Any], lfs_over: int) -> FileEntry:
    if value.get("encoding") not in ("base64", "utf-8", None):
        raise HubError(400, f"Unknown encoding of {path}: {value['encoding']!r}")
    try:
        text = str(value["content"])
        content = base64.b64decode(text, validate=True) if value.get("encoding") == "base64" else text.encode()
    except (KeyError, binascii.Error) as error:
        raise HubError(400, f"The content of {path} is missing or not base64") from error
    if len(content) > lfs_over:
        raise HubError(400, f"{path} has {len(content)} bytes: files over {lfs_over} must be uploaded as LFS")
    return repo.blobs.add_bytes(content)


def _lfs(repo: Repo, path: str, value: dict[str, Any]) -> FileEntry:
    oid = str(value.get("oid"))
    size = repo.blobs.lfs_size(oid)
    if size is None:
        raise HubError(400, f"{path} points to an LFS object that was not uploaded: {oid}")
    if value.get("size") not in (None, size):
        raise HubError(400, f"{path} says {value['size']} bytes, its LFS object has {size}")
    return lfs_entry(oid, size)


def _check_folders(files: dict[str, FileEntry]) -> None:
    for path in files:
        parts = path.split("/")
        for depth in range(1, len(parts)):
            above = "/".join(parts[:depth])
            if above in files:
                raise HubError(400, f"{above} is a file, so {path} cannot lie below it")
