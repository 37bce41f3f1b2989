"""The Hub as a running server: started in a thread on a loopback port, stopped for certain."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from pathlib import Path

import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from demo.hub import lfs, seed
from demo.hub.accesslog import AccessLog
from demo.hub.app import App
from demo.hub.call import Services
from demo.hub.commits import Commit
from demo.hub.config import HubConfig
from demo.hub.errors import HubError
from demo.hub.faults import Connection, FaultRule, Faults
from demo.hub.store import SYSTEM, Repo, Store
from scripts.core import BuildError

LOOPBACK = ("127.0.0.1", "localhost")
START_SECONDS = 20.0
STOP_SECONDS = 20.0


class _Protocol(H11Protocol):
    """uvicorn's own protocol; the application also gets the connection, which it may break on purpose."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        app, connection = self.app, Connection(transport)

        async def with_connection(scope: Scope, receive: Receive, send: Send) -> None:
            scope["connection"] = connection
            await app(scope, receive, send)  # type: ignore[arg-type]

        self.app = with_connection  # type: ignore[assignment]


class HubServer:
    """A Hub over a root folder; use it in a ``with`` block.

    ``port`` 0 takes a free one. Inside the block ``endpoint`` is what HF_ENDPOINT must be, ``log`` the access log
    (also written to ``<root>/access.jsonl``), and repositories can be made and filled without HTTP.
    """

    def __init__(self, root: Path, config: HubConfig | None = None, *, port: int = 0, host: str = "127.0.0.1") -> None:
        """Nothing is started yet.

        Raises:
            BuildError: ``host`` is not the loopback interface.
        """
        if host not in LOOPBACK:
            raise BuildError(f"the Hub serves this machine only, not {host!r}", "--host", "use 127.0.0.1")
        self.config = config or HubConfig()
        self.store = Store(Path(root))
        self.log = AccessLog(Path(root) / "access.jsonl")
        self._services = Services(self.store, self.config, self.log)
        self._wanted_port = port
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self.port = 0

    @property
    def endpoint(self) -> str:
        """The address for HF_ENDPOINT; contents of LFS files come from the same port of 127.0.0.1."""
        return f"http://localhost:{self.port}"

    @property
    def faults(self) -> Faults:
        """The rules by which answers are broken."""
        return self._services.faults

    def break_with(self, *rules: FaultRule) -> None:
        """Put fault rules in force."""
        self.faults.add(*rules)

    def token(self, key: str) -> str:
        """The token of an account by its key ("write", "read", "none", "stranger", "admin" by default).

        Raises:
            BuildError: there is no such account.
        """
        if key not in self.config.accounts:
            known = ", ".join(self.config.accounts)
            raise BuildError(f"no account {key!r} on this Hub", "HubConfig.accounts", f"use one of: {known}")
        return self.config.accounts[key].token

    def environment(self, key: str | None = None) -> dict[str, str]:
        """What a client process needs before it imports huggingface_hub, with an account's token if one is named."""
        result = {"HF_ENDPOINT": self.endpoint, "HF_HUB_DISABLE_XET": "0" if self.config.xet else "1"}
        return {**result, "HF_TOKEN": self.token(key)} if key else result

    def __enter__(self) -> HubServer:
        """Take the folder, bind the port and start.

        Raises:
            BuildError: the folder is in use, the port is taken, or the server did not start.
        """
        self.store.__enter__()
        try:
            listener = self._bind()
            self._start(listener)
        except BaseException:
            self.store.__exit__()
            raise
        return self

    def _bind(self) -> socket.socket:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", self._wanted_port))
        except OSError as error:
            listener.close()
            message = f"cannot listen on port {self._wanted_port}: {error.strerror}"
            raise BuildError(message, "127.0.0.1", "take another --port, or 0 for a free one") from error
        self.port = listener.getsockname()[1]
        return listener

    def _start(self, listener: socket.socket) -> None:
        config = uvicorn.Config(
            App(self._services),
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=60,
            timeout_graceful_shutdown=1,
        )
        self.faults.stopped.clear()
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name="hub", daemon=True)
        self._thread.start()
        until = time.monotonic() + START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > until:
                listener.close()
                raise BuildError("the Hub did not start", f"port {self.port}", "look at the messages above")
            time.sleep(0.005)

    def __exit__(self, *_: object) -> None:
        """Stop the server, end what is under way, and release the folder.

        Raises:
            BuildError: the server's thread did not end.
        """
        assert self._server is not None and self._thread is not None
        self.faults.stopped.set()
        self._server.should_exit = True
        self._thread.join(STOP_SECONDS)
        lfs.discard_uploads(self._services.uploads)
        self.store.__exit__()
        if self._thread.is_alive():
            raise BuildError("the Hub did not stop", f"port {self.port}", "end the process")

    def alive(self) -> bool:
        """Whether the server is running."""
        return self._thread is not None and self._thread.is_alive()

    def repo(self, repo_id: str) -> Repo:
        """A repository, for looking at it without HTTP.

        Raises:
            HubError: 404, there is none.
        """
        return self.store.get(repo_id)

    def create_repo(self, repo_id: str, *, private: bool = False, gated: str | bool = False) -> Repo:
        """Create a repository without HTTP; one that exists gets these settings."""
        try:
            return self.store.create(repo_id, private=private, gated=gated)
        except HubError as error:
            if error.status != 409:
                raise BuildError(error.message, repo_id, "name it owner/name") from error
        repo = self.store.get(repo_id)
        with repo.change():
            repo.state.update(private=private, gated=gated)
        return repo

    def grant(self, repo_id: str, user: str) -> None:
        """Let a user through the gate of a repository."""
        repo = self.store.get(repo_id)
        with repo.change():
            repo.state["approved"] = sorted({*repo.state["approved"], user})

    def commit_folder(
        self,
        repo_id: str,
        folder: Path,
        message: str,
        *,
        revision: str = "main",
        author: str = SYSTEM,
        link: bool = True,
    ) -> Commit:
        """Make a branch of a repository (created if missing) hold what a folder holds; see :mod:`demo.hub.seed`.

        Raises:
            BuildError: the folder is missing or empty, or there is no such branch.
        """
        repo = self.store.find(repo_id) or self.create_repo(repo_id)
        return seed.commit_folder(
            self.store,
            repo,
            folder,
            message,
            revision=revision,
            author=author,
            link=link,
            lfs_over=self.config.lfs_over,
        )
