"""Breaking answers on purpose, by data: which requests, how often, and what goes wrong."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from starlette.types import Message, Send

Kind = Literal["status", "body", "flip", "short", "cut", "reset", "stall"]


@dataclass
class FaultRule:
    """What to break.

    ``path`` is a regular expression searched in the request's path as it is on the wire (file contents of LFS files
    come from ``/cdn/...``); the first ``skip`` matching requests are left alone, the next ``times`` are broken.

    ``kind``: ``status`` answers ``status`` (with ``Retry-After: retry_after`` if given); ``body`` answers 200 with
    ``body``; ``flip`` inverts one bit of the byte at ``after``; ``short`` ends the body after ``after`` bytes and says
    so in Content-Length; ``cut`` closes the connection after ``after`` bytes, ``reset`` resets it; ``stall`` stops
    for ``seconds`` after ``after`` bytes and then goes on. ``after`` counts bytes of this answer's body.
    """

    path: str
    kind: Kind
    times: int = 1
    skip: int = 0
    method: str | None = None
    after: int = 0
    status: int = 503
    retry_after: int | None = None
    seconds: float = 60.0
    body: str = "<!doctype html><title>Sign in</title>"
    content_type: str = "text/html"

    def __post_init__(self) -> None:
        re.compile(self.path)


class Connection:
    """The connection under an answer, for breaking it: closing, resetting, and whether it still stands."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    @property
    def closing(self) -> bool:
        """Whether nobody will receive what is sent from now on."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Close after what was sent so far: the client sees the end of the stream."""
        self._transport.close()

    def reset(self) -> None:
        """Reset: the client sees "connection reset by peer"."""
        raw: socket.socket | None = self._transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()


class Faults:
    """The rules in force and how often each was used."""

    def __init__(self) -> None:
        self._rules: list[tuple[FaultRule, list[int]]] = []
        self._lock = threading.Lock()
        self.stopped = threading.Event()

    def add(self, *rules: FaultRule) -> None:
        """Put rules in force, after those already there."""
        with self._lock:
            self._rules += [(rule, [0]) for rule in rules]

    def clear(self) -> None:
        """Take all rules away."""
        with self._lock:
            self._rules.clear()

    def match(self, method: str, path: str) -> FaultRule | None:
        """The first rule with work left for this request; counts it as used."""
        with self._lock:
            for rule, seen in self._rules:
                if rule.method not in (None, method) or not re.search(rule.path, path):
                    continue
                seen[0] += 1
                if rule.skip < seen[0] <= rule.skip + rule.times:
                    return rule
        return None

    def wrap(self, rule: FaultRule, send: Send, connection: Connection) -> Send:
        """A ``send`` that breaks the body of an answer as a flip, short, cut, reset or stall rule says."""
        return _Breaker(rule, send, connection, self.stopped.is_set)


class _Breaker:
    def __init__(self, rule: FaultRule, send: Send, connection: Connection, stopped: Callable[[], bool]) -> None:
        self.rule, self.send, self.connection, self.stopped = rule, send, connection, stopped
        self.sent, self.over, self.start = 0, False, None

    start: Message | None

    async def __call__(self, message: Message) -> None:
        if self.over:
            return
        if message["type"] == "http.response.start":
            await self._begin(message)
            return
        body: bytes = message.get("body", b"")
        here = self.rule.after - self.sent
        if here < 0 or (here >= len(body) and message.get("more_body")):
            await self._pass(body, message)
        elif self.rule.kind == "flip":
            if here < len(body):
                body = body[:here] + bytes([body[here] ^ 1]) + body[here + 1 :]
            await self._pass(body, message)
        else:
            await self._break(body, here, message)

    async def _begin(self, message: Message) -> None:
        if self.rule.kind == "short":
            headers = [(name, value) for name, value in message["headers"] if name.lower() != b"content-length"]
            length = next((int(value) for name, value in message["headers"] if name.lower() == b"content-length"), 0)
            headers.append((b"content-length", str(min(self.rule.after, length)).encode()))
            message = {**message, "headers": headers}
        await self.send(message)

    async def _pass(self, body: bytes, message: Message) -> None:
        self.sent += len(body)
        await self.send({**message, "body": body})

    async def _break(self, body: bytes, here: int, message: Message) -> None:
        kind, head = self.rule.kind, body[:here]
        if kind == "short":
            self.over = True
            await self.send({"type": "http.response.body", "body": head, "more_body": False})
            return
        await self.send({"type": "http.response.body", "body": head, "more_body": True})
        if kind == "stall":
            until = time.monotonic() + self.rule.seconds
            while time.monotonic() < until and not self.stopped() and not self.connection.closing:
                await asyncio.sleep(0.02)
            self.sent += len(body)
            await self.send({**message, "body": body[here:]})
            return
        self.over = True
        # what was written has to leave before the connection does
        await asyncio.sleep(0.05)
        self.connection.reset() if kind == "reset" else self.connection.close()
        await asyncio.sleep(0.05)
