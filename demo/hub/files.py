"""Sending a file from disk in pieces, whole or one range of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import BinaryIO

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from demo.hub.errors import HubError

PIECE = 1 << 20
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


def byte_range(header: str | None, size: int) -> tuple[int, int] | None:
    """The first byte and the byte after the last of a Range header, or None for the whole file.

    A header that is not one range of bytes is ignored, as HTTP allows.

    Raises:
        HubError: 416, the range begins behind the end.
    """
    match = _RANGE.fullmatch(header.strip()) if header else None
    if match is None or match.group() == "bytes=-":
        return None
    first, last = match.groups()
    if first:
        start, end = int(first), min(int(last), size - 1) + 1 if last else size
        if last and int(last) < int(first):
            return None
    else:
        start, end = max(size - int(last), 0), size
    if start >= size:
        raise HubError(416, "Requested range not satisfiable", headers={"Content-Range": f"bytes */{size}"})
    return start, end


class FileAnswer(Response):
    """A file, or the part a Range header asks for (206); never in memory as a whole."""

    def __init__(self, path: Path, size: int, range_header: str | None, headers: dict[str, str]) -> None:
        """``size`` is what the commit says; a file of another size is damaged.

        Raises:
            HubError: 416 for a range behind the end, 500 for a damaged or missing file.
        """
        try:
            real = path.stat().st_size
        except FileNotFoundError:
            real = -1
        if real != size:
            raise HubError(500, f"The stored content is damaged: {real} bytes instead of {size}")
        part = byte_range(range_header, size)
        self._path, (self._start, self._end) = path, part or (0, size)
        super().__init__(None, 206 if part else 200)
        self.headers["Accept-Ranges"] = "bytes"
        self.headers["Content-Length"] = str(self._end - self._start)
        self.headers["Content-Type"] = "application/octet-stream"
        self.headers.update(headers)
        if part:
            self.headers["Content-Range"] = f"bytes {self._start}-{self._end - 1}/{size}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send headers and, unless this is HEAD, the bytes; stops when nobody listens any more."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        left = 0 if scope["method"] == "HEAD" else self._end - self._start
        if left:
            with self._path.open("rb") as stream:
                stream.seek(self._start)
                while left and not scope["connection"].closing:
                    piece = await run_in_threadpool(_read, stream, min(PIECE, left))
                    left -= len(piece)
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                    if not piece:
                        break
        if scope["connection"].closing:
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _read(stream: BinaryIO, size: int) -> bytes:
    return stream.read(size)
