from __future__ import annotations

import contextlib
import hashlib
import http.server
import io
import json
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TINY = Path(__file__).parent / "tiny"
VERSION = "9.9.9"
COMMIT = "abcdef012"
CHANGELOG = f"""# Changelog

## [Unreleased]

## [{VERSION}]

- feat: update llama.cpp to ggml-org/llama.cpp@{COMMIT}

## [9.9.8]

- feat: update llama.cpp to ggml-org/llama.cpp@111111111
"""


def sdist(changelog: str = CHANGELOG, extra: dict[str, bytes] | None = None, tree: Path = TINY) -> bytes:
    """A source distribution of the tiny llama.cpp; ``extra`` are further members (name: content)."""
    root = f"llama_cpp_python-{VERSION}"
    members = {f"{root}/CHANGELOG.md": changelog.encode(), f"{root}/setup.py": b"raise SystemExit('was run')\n"}
    members[f"{root}/vendor/llama.cpp/.git"] = b"gitdir: ../../.git/modules/llama.cpp\n"
    for file in sorted(tree.rglob("*")):
        if file.is_file():
            members[f"{root}/vendor/llama.cpp/{file.relative_to(tree).as_posix()}"] = file.read_bytes()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in (members | (extra or {})).items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def pypi(content: bytes, **changes: str) -> dict[str, str]:
    """The config value for an archive of this content."""
    value = {"source": "pypi", "package": "llama-cpp-python", "version": VERSION}
    return value | {"sha256": hashlib.sha256(content).hexdigest()} | changes


@dataclass
class Index:
    """A package index on this machine with one file, and what it was asked for."""

    content: bytes
    hashes: dict[str, str] = field(default_factory=dict)
    drop_after: list[int] = field(default_factory=list)
    """For each of the next answers with the file: bytes sent before the connection is closed."""
    statuses: list[int] = field(default_factory=list)
    """Statuses of the next answers, before any that works."""
    ranges: bool = True
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    """(path, Range header) of each request."""
    accept: list[str] = field(default_factory=list)
    listing: bytes | None = None
    url: str = ""


@contextlib.contextmanager
def serve(index: Index) -> Iterator[Index]:
    """Run the index on a free port for as long as the block lasts."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            index.asked.append((self.path, wanted))
            if index.statuses:
                self.send_error(index.statuses.pop(0))
            elif self.path == "/simple/llama-cpp-python/":
                index.accept.append(self.headers.get("Accept", ""))
                name = f"llama_cpp_python-{VERSION}"
                files = [
                    {"filename": f"{name}-cp311-cp311-linux_x86_64.whl", "url": "../../wheel", "hashes": {}},
                    {"filename": f"{name}.tar.gz", "url": f"../../files/{name}.tar.gz", "hashes": index.hashes},
                ]
                body = index.listing or json.dumps({"meta": {"api-version": "1.1"}, "files": files}).encode()
                self.answer(200, body, {})
            elif self.path.startswith("/files/"):
                start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and index.ranges else 0
                size = len(index.content)
                if start >= size:
                    self.answer(416, b"", {"Content-Range": f"bytes */{size}"})
                elif start:
                    headers = {"Content-Range": f"bytes {start}-{size - 1}/{size}"}
                    self.answer(206, index.content[start:], headers, drop=True)
                else:
                    self.answer(200, index.content, {}, drop=True)
            else:
                self.send_error(404)

        def answer(self, status: int, body: bytes, headers: dict[str, str], drop: bool = False) -> None:
            self.send_response(status)
            for name, value in (headers | {"Content-Length": str(len(body))}).items():
                self.send_header(name, value)
            self.end_headers()
            end = index.drop_after.pop(0) if drop and index.drop_after else len(body)
            self.wfile.write(body[:end])

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        index.url = f"http://127.0.0.1:{server.server_port}/simple"
        try:
            yield index
        finally:
            server.shutdown()
            thread.join()


def repository(folder: Path, changes: dict[str, str] | None = None) -> tuple[Path, str, str]:
    """A git repository of the tiny llama.cpp with two commits: its path, the older and the newer commit.

    ``changes`` replaces contents of files (name: text) in the newer commit.
    """
    shutil.copytree(TINY, folder)
    git(folder, "init", "--quiet", "--initial-branch", "master")
    commits = []
    for step in ("first", "second"):
        if step == "second":
            (folder / "NEWS").write_text(step)
            for name, text in (changes or {}).items():
                (folder / name).write_text(text)
        git(folder, "add", "--all")
        git(folder, "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet", "-m", step)
        commits.append(git(folder, "rev-parse", "HEAD"))
    return folder, commits[0], commits[1]


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def script(path: Path, text: str) -> Path:
    """A shell script that can be run, with folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path
