"""One request on its way through a handler: parameters, account, body, and what the account may do."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote, unquote, urlencode

from starlette.requests import Request
from starlette.responses import Response

from demo.hub.accesslog import AccessLog, Entry
from demo.hub.config import Account, HubConfig
from demo.hub.errors import HubError, repo_not_found
from demo.hub.faults import Faults
from demo.hub.store import Repo, Store

Right = Literal["see", "files", "discuss", "write"]


@dataclass
class Services:
    """What all handlers share. ``secret`` signs the addresses of the second host, for the life of the server."""

    store: Store
    config: HubConfig
    log: AccessLog
    faults: Faults = field(default_factory=Faults)
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    uploads: dict[str, Any] = field(default_factory=dict)


@dataclass
class Call:
    """A request with its path parameters (percent-decoded), account and body."""

    services: Services
    request: Request
    params: dict[str, str]
    account: Account | None
    entry: Entry
    body: bytes = b""

    @property
    def store(self) -> Store:
        """The repositories."""
        return self.services.store

    @property
    def config(self) -> HubConfig:
        """Accounts and limits."""
        return self.services.config

    @property
    def endpoint(self) -> str:
        """The address the client used, without a slash at the end."""
        return f"http://{self.request.headers['host']}"

    @property
    def other_host(self) -> str:
        """The same server under its other name: what the client must take for another host (a CDN)."""
        name, _, port = self.request.headers["host"].rpartition(":")
        return f"http://{'localhost' if name == '127.0.0.1' else '127.0.0.1'}:{port}"

    @property
    def user(self) -> str:
        """The user's name.

        Raises:
            HubError: 401 for an anonymous request.
        """
        if self.account is None:
            raise HubError(401, "Invalid username or password.")
        return self.account.name

    def query(self, name: str) -> str | None:
        """A query parameter."""
        value: str | None = self.request.query_params.get(name)
        return value

    def flag(self, name: str) -> bool:
        """Whether a query parameter says yes."""
        return (self.query(name) or "").lower() in ("1", "true")

    def number(self, name: str, default: int, most: int) -> int:
        """A query parameter between 0 and ``most``.

        Raises:
            HubError: 400, it is no such number.
        """
        text = self.query(name)
        if text is None:
            return default
        if not re.fullmatch(r"[0-9]{1,9}", text):
            raise HubError(400, f"{name} must be a number, not {text!r}")
        return min(int(text), most)

    def json(self) -> dict[str, Any]:
        """The JSON object of the body (empty for no body).

        Raises:
            HubError: 400, it is no JSON object.
        """
        try:
            value = json.loads(self.body) if self.body.strip() else {}
        except (ValueError, RecursionError) as error:
            raise HubError(400, "The body is not JSON") from error
        if value is not None and not isinstance(value, dict):
            raise HubError(400, "The body is not a JSON object")
        return value or {}

    def repo(self, right: Right) -> Repo:
        """The repository of the path, if the account has a right on it.

        "see" metadata, "files" contents (a gate stands before them), "discuss" open discussions and pull requests,
        "write" change it.

        Raises:
            HubError: 401 or 404 RepoNotFound, 401 or 403 GatedRepo, 401 or 403 for a right that is missing.
        """
        repo = self.store.find(f"{self.params['owner']}/{self.params['name']}")
        if repo is None or not can_see(self.account, repo):
            raise repo_not_found(self.account is None)
        if right == "files":
            self._check_gate(repo)
        elif right != "see":
            self.check_writer(repo.owner if right == "write" else None)
        return repo

    def check_writer(self, namespace: str | None) -> None:
        """Check for a write token and, if a namespace is given, for membership in it.

        Raises:
            HubError: 401 for an anonymous request, 403 for a right that is missing.
        """
        user = self.user
        if self.account is None or self.account.role != "write":
            raise HubError(403, "Forbidden: you must use a write token to upload to a repository.")
        if namespace is not None and not self.account.member_of(namespace):
            raise HubError(403, f"Forbidden: {user} doesn't have the rights to write under the namespace {namespace}")

    def _check_gate(self, repo: Repo) -> None:
        if not repo.gated:
            return
        where = f"Access to model {repo.id} is restricted"
        if self.account is None:
            message = f"{where}. You must have access to it and be authenticated to access it. Please log in."
            raise HubError(401, message, "GatedRepo")
        if self.account.role == "none" or not (
            self.account.member_of(repo.owner) or self.account.name in repo.state["approved"]
        ):
            message = (
                f"{where} and you are not in the authorized list. Visit {self.endpoint}/{repo.id} to ask for access."
            )
            raise HubError(403, message, "GatedRepo")

    def sign(self, path: str, **values: str | int) -> str:
        """An address on the other host that needs no token, because it is signed."""
        query = urlencode({**values, "signature": self._signature(path, {k: str(v) for k, v in values.items()})})
        return f"{self.other_host}{path}?{query}"

    def xet_token(self, repo_id: str) -> str:
        """The token for uploads to a repository by Xet, for the life of the server."""
        return self._signature("xet", {"repo": repo_id})

    def check_signature(self) -> dict[str, str]:
        """The signed query values of this request.

        Raises:
            HubError: 403, the signature is not ours.
        """
        values = dict(self.request.query_params)
        given = values.pop("signature", "")
        path = self.request.scope["raw_path"].decode("latin-1")
        if not hmac.compare_digest(given.encode(), self._signature(path, values).encode()):
            raise HubError(403, "The signature of this address is not valid")
        return values

    def _signature(self, path: str, values: dict[str, str]) -> str:
        text = f"{path}?{urlencode(sorted(values.items()))}"
        return hmac.new(self.services.secret, text.encode(), hashlib.sha256).hexdigest()


def can_see(account: Account | None, repo: Repo) -> bool:
    """Whether a repository exists for an account."""
    return not repo.private or (account is not None and account.role != "none" and account.member_of(repo.owner))


Handler = Callable[[Call], Response]
StreamHandler = Callable[[Call], Coroutine[Any, Any, Response]]


@dataclass(frozen=True)
class Route:
    """A method, a path and its handler; ``stream`` handlers read the request's body themselves.

    In ``path``, ``{name}`` is one segment and ``{name*}`` all that follow (one or more). Segments are split before
    they are percent-decoded, so ``refs%2Fpr%2F1`` is one.
    """

    method: str
    path: str
    handler: Handler | None = None
    stream: StreamHandler | None = None

    def match(self, method: str, segments: list[str]) -> dict[str, str] | None:
        """The decoded path parameters, or None if this is another route."""
        wanted = self.path.strip("/").split("/")
        if method != self.method or (
            len(segments) < len(wanted) if self.path.endswith("*}") else len(segments) != len(wanted)
        ):
            return None
        params: dict[str, str] = {}
        for position, want in enumerate(wanted):
            if want.endswith("*}"):
                params[want[1:-2]] = "/".join(unquote(segment) for segment in segments[position:])
            elif want.startswith("{"):
                suffix = want.partition("}")[2]
                value = unquote(segments[position])
                if not value.endswith(suffix) or value == suffix:
                    return None
                params[want[1 : want.index("}")]] = value.removesuffix(suffix)
            elif segments[position] != want:
                return None
        return params


def quoted(path: str) -> str:
    """A path inside a repository as part of an address."""
    return quote(path, safe="/")
