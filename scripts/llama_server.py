"""Start a llama-server, ask it over HTTP, and end it: what serving, measuring, tuning and the demo share.

Answers are streamed, so that every token has the time at which it came; the server's own figures come with the last
event. A server that dies is said with the end of its log.
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2 as httpx

from scripts import locks, process
from scripts.core import BuildError

HOST = "127.0.0.1"

START = 600.0
"""Seconds that a server may take to load its models."""

ANSWER = 600.0
"""Seconds that it may take between two tokens."""

SEED = 42
"""Of every request, so that runs repeat even where somebody raises the temperature."""

LOG_LINES = 4
"""Lines from the end of a server's log that an error shows."""

LOG_BYTES = 1 << 16
"""Bytes from the end of a server's log that are searched for them."""


@dataclass(frozen=True)
class Piece:
    """A part of an answer as it came.

    ``at`` is in seconds since the request was sent.
    """

    at: float
    text: str
    tokens: list[int]


@dataclass(frozen=True)
class Answer:
    """What a server said to one prompt, with its own figures (``timings`` of its last event)."""

    text: str
    tokens: list[int]
    """Token ids of the answer."""
    stop: str
    """Why it ended, in the server's words: ``eos``, ``limit``, ``word``."""
    prompt_n: int
    """Tokens of the prompt that were evaluated."""
    prompt_ms: float
    predicted_n: int
    predicted_ms: float
    """Milliseconds from the first token to the last."""
    draft_n: int | None
    """Drafted tokens; None when no draft ran."""
    draft_n_accepted: int | None
    first_token_s: float
    """Seconds from the request to the first token, as seen by the client."""
    pieces: list[Piece] = field(default_factory=list, repr=False)

    @property
    def per_second(self) -> float | None:
        """Decoded tokens per second, as the server counts; None for an answer too short to be timed.

        The first token comes with the pass over the prompt, before the clock starts.
        """
        steps = self.predicted_n - 1
        return 1000 * steps / self.predicted_ms if steps > 0 and self.predicted_ms > 0 else None


class Client:
    """A running llama-server, wherever it runs."""

    def __init__(self, url: str, timeout: float = ANSWER) -> None:
        """``url`` is ``http://host:port``; ``timeout`` in seconds is that between two tokens."""
        self.url = url.rstrip("/")
        # Never through a proxy: the servers are this machine's or the user's own.
        self._http = httpx.Client(base_url=self.url, timeout=httpx.Timeout(timeout, connect=10), trust_env=False)

    def __enter__(self) -> Client:
        """Use the client for a block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close its connections."""
        self._http.close()

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send one request and read its JSON answer.

        Raises:
            BuildError: the server cannot be reached, or answers with an error.
        """
        with self._explained(path):
            response = self._http.request(method, path, json=body)
        self._accepted(response, path)
        return response.json()

    def props(self) -> dict[str, Any]:
        """What the server says of itself: model_path, build_info, chat_template, default settings."""
        return dict(self.call("GET", "/props"))

    def tokenize(self, text: str) -> list[int]:
        """Token ids of a text, special tokens recognised."""
        return list(self.call("POST", "/tokenize", {"content": text, "parse_special": True})["tokens"])

    def apply_template(self, messages: Sequence[Mapping[str, str]], thinking: bool | None = None) -> str:
        """The prompt that the model's chat template makes of messages; ``thinking`` sets the template's switch."""
        body: dict[str, Any] = {"messages": list(messages)}
        if thinking is not None:
            body["chat_template_kwargs"] = {"enable_thinking": thinking}
        return str(self.call("POST", "/apply-template", body)["prompt"])

    def complete(self, prompt: str | Sequence[int], predict: int, **settings: Any) -> Answer:
        """Answer one prompt at temperature 0, without the prompt cache; ``settings`` change or add to the request.

        Args:
            prompt: text, or token ids.
            predict: upper limit on the tokens of the answer.
            settings: further fields of the request body.

        Raises:
            BuildError: the server cannot be reached, answers with an error, or ends without its figures.
        """
        body = {
            "prompt": prompt if isinstance(prompt, str) else list(prompt),
            "n_predict": predict,
            "temperature": 0,
            "seed": SEED,
            "cache_prompt": False,
            "return_tokens": True,
            "stream": True,
        } | settings
        pieces: list[Piece] = []
        path, started = "/completion", time.monotonic()
        with self._explained(path), self._http.stream("POST", path, json=body) as response:
            if response.status_code != httpx.codes.OK:
                response.read()
            self._accepted(response, path)
            for event in _events(response.iter_lines()):
                if "error" in event:
                    raise BuildError(f"llama-server answered {event['error']}", self.url + path, "see its log")
                if event["content"] or event["tokens"]:
                    pieces.append(Piece(time.monotonic() - started, event["content"], list(event["tokens"])))
                if event["stop"]:
                    return _answer(pieces, event, self.url + path)
        raise BuildError("the answer ended without its figures", self.url + path, "see the server's log")

    @contextlib.contextmanager
    def _explained(self, path: str) -> Iterator[None]:
        try:
            yield
        except httpx.HTTPError as error:
            what = f"no answer from llama-server: {error or type(error).__name__}"
            raise BuildError(what, self.url + path, "check that the server runs, see its log") from error

    def _accepted(self, response: httpx.Response, path: str) -> None:
        if response.status_code != httpx.codes.OK:
            what = f"llama-server answered {response.status_code}: {response.text[:200]}"
            raise BuildError(what, self.url + path, "see its log")


def _events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The JSON of each server-sent event."""
    for line in lines:
        name, _, value = line.partition(":")
        if name in ("data", "error") and value.strip() != "[DONE]":
            found = json.loads(value)
            yield {"error": found} if name == "error" else found


def _answer(pieces: list[Piece], last: Mapping[str, Any], where: str) -> Answer:
    try:
        timings = last["timings"]
        return Answer(
            text="".join(piece.text for piece in pieces),
            tokens=[token for piece in pieces for token in piece.tokens],
            stop=last["stop_type"],
            prompt_n=timings["prompt_n"],
            prompt_ms=timings["prompt_ms"],
            predicted_n=timings["predicted_n"],
            predicted_ms=timings["predicted_ms"],
            draft_n=timings.get("draft_n"),
            draft_n_accepted=timings.get("draft_n_accepted"),
            first_token_s=pieces[0].at if pieces else 0.0,
            pieces=pieces,
        )
    except KeyError as error:
        raise BuildError(f"the answer carries no {error}", where, "use a newer llama-server") from error


def free_port() -> int:
    """A port of this machine on which nothing listens."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(
    command: Sequence[str | Path],
    log: Path,
    *,
    port: int | None = None,
    start: float = START,
    answer: float = ANSWER,
    env: Mapping[str, str] | None = None,
) -> Iterator[Client]:
    """Run a llama-server on a loopback port until the block ends; yields a client once it is ready.

    Args:
        command: the program and its options, without host and port.
        log: file for what it prints.
        port: where it listens; a free port where none is given.
        start: seconds that it may take to get ready.
        answer: seconds that it may take between two tokens.
        env: variables added to its environment, which has no secrets.

    Raises:
        BuildError: it does not start, ends early, or is not ready in time; the message has the end of its log.
    """
    port = port or free_port()
    whole = [*map(str, command), "--host", HOST, "--port", str(port)]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as stream, terminated_as_interrupted():
        try:
            server = subprocess.Popen(
                whole,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=process.environment(env),
                pass_fds=locks.held(),
            )
        except OSError as error:
            raise BuildError(f"llama-server does not start: {error}", whole[0], "build it for this machine") from error
        with Client(f"http://{HOST}:{port}", answer) as client:
            yield from _serve(server, client, start, log)


def _serve(server: subprocess.Popen[bytes], client: Client, start: float, log: Path) -> Iterator[Client]:
    try:
        _wait(server, client, start, log)
        yield client
        if server.poll() is not None:
            raise _dead(server, log)
    except BuildError as error:
        with contextlib.suppress(subprocess.TimeoutExpired):  # a crash shows a moment after the broken connection
            server.wait(2)
        if server.poll() is not None:
            raise _dead(server, log) from error
        raise
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@contextlib.contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Turn SIGTERM into KeyboardInterrupt, so that whoever ends this process does not leave its server behind."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers, and only it gets the exception
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _tail(log: Path) -> str:
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - LOG_BYTES))
        text = stream.read().decode("utf-8", errors="replace")
    return " | ".join([line for line in text.splitlines() if line.strip()][-LOG_LINES:]) or "empty log"


def _dead(server: subprocess.Popen[bytes], log: Path) -> BuildError:
    return BuildError(f"llama-server ended with code {server.returncode}: {_tail(log)}", log, "see the end of its log")


def _wait(server: subprocess.Popen[bytes], client: Client, start: float, log: Path) -> None:
    deadline = time.monotonic() + start
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise _dead(server, log)
        with contextlib.suppress(BuildError):
            client.call("GET", "/health")
            return
        time.sleep(0.1)
    what = f"llama-server is not ready after {start:.0f} s: {_tail(log)}"
    raise BuildError(what, log, "free the machine, run again")
