"""The ASGI application: routes on the raw path, authenticates, logs, breaks on demand, and answers errors."""

from __future__ import annotations

import re
import traceback
from typing import cast

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from demo.hub import lfs, xet
from demo.hub.accesslog import Entry
from demo.hub.call import Call, Route, Services
from demo.hub.config import Account
from demo.hub.errors import HubError
from demo.hub.faults import Connection, FaultRule
from demo.hub.routes import commits, discussions, pages, repos, resolve, trees
from demo.hub.store import valid_repo_id
from scripts.core import say

ROUTES: list[Route] = [
    *repos.ROUTES,
    *trees.ROUTES,
    *commits.ROUTES,
    *discussions.ROUTES,
    *lfs.ROUTES,
    *xet.ROUTES,
    *resolve.ROUTES,
    *pages.ROUTES,
]
# the client's file system does not quote the special refs, the Hub takes them either way
_SPECIAL_REF = re.compile(
    r"^(/api/models/[^/]+/[^/]+/(?:revision|tree|commits|paths-info|preupload|commit)|/[^/]+/[^/]+/(?:resolve|tree))"
    r"/refs/pr/(\d+)(?=/|$)"
)
_Found = tuple[Route, dict[str, str]] | None
_LOOPBACK = re.compile(r"(localhost|127\.0\.0\.1):\d+")


class App:
    """The Hub as an ASGI application; the connection comes as ``scope["connection"]``."""

    def __init__(self, services: Services) -> None:
        self.services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        raw = scope["raw_path"].decode("latin-1")
        request = Request(scope, receive)
        host = request.headers.get("host", "")
        entry = self.services.log.start(scope["method"], raw, host)
        entry.cdn = raw.startswith(("/cdn/", "/lfs/"))
        entry.range = request.headers.get("range")
        entry.authorization = "authorization" in request.headers
        found = _route("GET" if scope["method"] == "HEAD" else scope["method"], raw, entry)
        connection = cast(Connection, scope["connection"])
        rule = self.services.faults.match(scope["method"], raw)
        entry.fault = rule.kind if rule else None
        counting = _counting(send, entry, scope["method"] == "HEAD")
        try:
            if rule and rule.kind in ("status", "body"):
                response = _broken(rule)
            else:
                response = await self._answer(request, host, entry, found)
            outgoing = counting
            if rule and rule.kind not in ("status", "body"):
                outgoing = self.services.faults.wrap(rule, counting, connection)
            await response(scope, receive, outgoing)
        except ClientDisconnect:
            entry.status = 499
        finally:
            self.services.log.finish(entry)

    async def _answer(self, request: Request, host: str, entry: Entry, found: _Found) -> Response:
        try:
            if not _LOOPBACK.fullmatch(host):
                raise HubError(421, f"This Hub does not answer for the host {host!r}")
            account = self._account(request)
            entry.user = account.name if account else "anonymous"
            if found is None:
                raise HubError(404, f"This Hub has no {entry.method} {entry.path}")
            return await self._handle(Call(self.services, request, found[1], account, entry), found[0])
        except HubError as error:
            return error.response()
        except ClientDisconnect:
            raise
        except Exception as error:  # a defect here is an answer too: the client must not hang
            say(traceback.format_exc())
            return HubError(500, f"Internal error: {type(error).__name__}: {error}").response()

    def _account(self, request: Request) -> Account | None:
        header = request.headers.get("authorization")
        if header is None or request.url.path.startswith("/xet/"):  # a token of its own, for one upload
            return None
        kind, _, token = header.partition(" ")
        account = self.services.config.account(token.strip()) if kind.lower() == "bearer" else None
        if account is None:
            raise HubError(401, "Invalid credentials in Authorization header")
        return account

    async def _handle(self, call: Call, route: Route) -> Response:
        if route.stream is not None:
            return await route.stream(call)
        call.body = await _read_body(call.request, self.services.config.max_body)
        call.entry.received = len(call.body)
        assert route.handler is not None
        return await run_in_threadpool(route.handler, call)


def _route(method: str, raw: str, entry: Entry) -> _Found:
    """The route of a request and its parameters, or None; the log learns what it is about."""
    segments = _SPECIAL_REF.sub(r"\1/refs%2Fpr%2F\2", raw).strip("/").split("/")
    for route in ROUTES:
        params = route.match(method, segments)
        if params is None:
            continue
        if "owner" in params and valid_repo_id(params["owner"], params["name"]):
            entry.repo = f"{params['owner']}/{params['name']}"
        entry.revision, entry.file = params.get("revision"), params.get("path")
        return route, params
    return None


async def _read_body(request: Request, most: int) -> bytes:
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise HubError(413, f"The body is larger than {most} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


def _broken(rule: FaultRule) -> Response:
    if rule.kind == "body":
        return Response(rule.body, 200, media_type=rule.content_type)
    headers = {} if rule.retry_after is None else {"Retry-After": str(rule.retry_after)}
    return HubError(rule.status, f"Broken on purpose: {rule.status}", headers=headers).response()


def _counting(send: Send, entry: Entry, head: bool) -> Send:
    async def counting(message: Message) -> None:
        if message["type"] == "http.response.start":
            entry.status = message["status"]
        elif not head:
            entry.bytes += len(message.get("body", b""))
        await send(message)

    return counting
