"""The access log: one entry per request, in memory and as JSON lines."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from demo.hub.commits import to_json_line
from scripts.core import human


@dataclass
class Entry:
    """One request.

    ``bytes`` counts the body handed to the connection (0 for HEAD), ``received`` the body taken from it. ``cdn`` is
    true on the second host, where file contents live; ``authorization`` tells whether the request carried that
    header, which it must not do there. ``user`` is "anonymous" without a valid token.
    """

    at: float
    method: str
    path: str
    host: str
    cdn: bool = False
    repo: str | None = None
    revision: str | None = None
    file: str | None = None
    range: str | None = None
    user: str = "anonymous"
    authorization: bool = False
    status: int = 0
    bytes: int = 0
    received: int = 0
    fault: str | None = None


class AccessLog:
    """Entries in the order of their requests.

    An entry is here before the first byte of its answer is sent, and its bytes are counted before they are sent, so
    a client that has its answer finds it in the log. The line in the file follows when the answer is complete.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._entries: list[Entry] = []
        self._lock = threading.Lock()

    @classmethod
    def load(cls, path: Path) -> AccessLog:
        """Read a finished log file; fields of other versions are left out."""
        log, known = cls(), {item.name for item in fields(Entry)}
        for line in path.read_text(encoding="utf-8").splitlines():
            log._entries.append(Entry(**{key: value for key, value in json.loads(line).items() if key in known}))
        return log

    def start(self, method: str, path: str, host: str) -> Entry:
        """Add the entry of a request that has just arrived."""
        entry = Entry(round(time.time(), 3), method, path, host)
        with self._lock:
            self._entries.append(entry)
        return entry

    def finish(self, entry: Entry) -> None:
        """Write the line of a request whose answer is complete, or was broken off."""
        if self.path is not None:
            with self._lock, self.path.open("a", encoding="utf-8") as stream:
                stream.write(to_json_line(asdict(entry)))

    def clear(self) -> None:
        """Forget the entries in memory; the file keeps its lines."""
        with self._lock:
            self._entries.clear()

    def entries(
        self,
        repo: str | None = None,
        *,
        suffix: str | tuple[str, ...] = "",
        method: str | None = None,
        status: int | None = None,
        cdn: bool | None = None,
    ) -> list[Entry]:
        """The entries that match every condition given; ``suffix`` is that of the file asked for."""
        with self._lock:
            entries = list(self._entries)
        return [
            entry
            for entry in entries
            if (repo is None or entry.repo == repo)
            and (not suffix or (entry.file or "").endswith(suffix))
            and (method is None or entry.method == method)
            and (status is None or entry.status == status)
            and (cdn is None or entry.cdn == cdn)
        ]

    def requests_for(self, repo: str, suffix: str | tuple[str, ...] = "") -> list[Entry]:
        """Every request about a repository, or about its files with a suffix, whatever its method and status."""
        return self.entries(repo, suffix=suffix)

    def bytes_for(self, repo: str, suffix: str | tuple[str, ...] = "") -> int:
        """Bytes of bodies sent for a repository, or for its files with a suffix."""
        return sum(entry.bytes for entry in self.requests_for(repo, suffix))

    def received_for(self, repo: str) -> int:
        """Bytes of bodies (uploads and API calls) received for a repository."""
        return sum(entry.received for entry in self.requests_for(repo))

    def summary(self) -> str:
        """A table with a line per repository: requests, errors, bytes sent and received, users."""
        groups: dict[str, list[Entry]] = {}
        for entry in self.entries():
            groups.setdefault(entry.repo or "(no repository)", []).append(entry)
        rows = [("repository", "requests", "errors", "sent", "received", "users")]
        rows += [_row(name, entries) for name, entries in sorted(groups.items())]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def _row(name: str, entries: Iterable[Entry]) -> tuple[str, str, str, str, str, str]:
    items = list(entries)
    return (
        name,
        str(len(items)),
        str(sum(item.status >= 400 for item in items)),
        human(sum(item.bytes for item in items)),
        human(sum(item.received for item in items)),
        ", ".join(sorted({item.user for item in items})),
    )
