"""Measure how much of a draft llama-server accepts, and whether the draft changes the output.

Acceptance is accepted over drafted tokens, as llama.cpp counts them. Every prompt is sent once with the draft and once
without, at temperature 0 and without the prompt cache; the answers must be the same token for token.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.pair import corpus
from scripts import core

THRESHOLD = 0.7
"""Acceptance that the pair must exceed on each kind of prompt it was trained on."""
PREDICT = 300
"""Upper limit on the tokens of an answer; the longest of the corpus has under 200."""
HOST = "127.0.0.1"


@dataclass(frozen=True)
class Answer:
    """What the server said to one prompt, and its own figures."""

    sample: corpus.Sample
    text: str
    tokens: list[int]
    predicted_n: int
    predicted_per_second: float
    draft_n: int | None
    """Drafted tokens; None when no draft ran."""
    draft_n_accepted: int | None


@dataclass(frozen=True)
class Row:
    """Figures over all prompts of one kind."""

    kind: str
    acceptance: float
    """Accepted over drafted tokens, 0 to 1."""
    tokens_per_pass: float
    """Tokens the target gives per pass: the accepted ones and one of its own."""
    identical: bool
    """Whether every answer is the same with and without the draft."""
    speed_ratio: float
    """Tokens per second with the draft over without, in this one run."""


@contextlib.contextmanager
def server(
    binary: Path, target_gguf: Path, draft_gguf: Path | None, n_max: int, timeout: float, threads: int
) -> Iterator[int]:
    """Run llama-server on a free loopback port until the block ends; yields the port once it is ready.

    Raises:
        BuildError: it ends or is not ready within ``timeout`` seconds; the message ends with the end of its log.
    """
    for path in filter(None, (binary, target_gguf, draft_gguf)):
        if not path.is_file():
            raise core.BuildError("file is missing", path, "run the step that writes it")
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    command = [str(binary), "-m", str(target_gguf), "--host", HOST, "--port", str(port), "--offline", "--no-webui"]
    command += ["-t", str(threads), "-c", "2048", "-np", "1", "-ngl", "0", "-fit", "off", "--cache-ram", "0"]
    if draft_gguf:
        command += ["-md", str(draft_gguf), "-ngld", "0", "--spec-type", "draft-dflash"]
        command += ["--spec-draft-n-max", str(n_max)]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        with log.open("wb") as stream, _terminated_as_interrupted():
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT)
            yield from _serve(process, port, timeout, log)


def _serve(process: subprocess.Popen[bytes], port: int, timeout: float, log: Path) -> Iterator[int]:
    try:
        _wait(process, port, timeout, log)
        yield port
        if process.poll() is not None:
            raise _dead(process, log)
    except (OSError, http.client.HTTPException) as error:
        with contextlib.suppress(subprocess.TimeoutExpired):  # a crash shows a moment after the broken connection
            process.wait(2)
        if process.poll() is not None:
            raise _dead(process, log) from error
        raise
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
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
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return " | ".join(lines[-4:]) or "empty log"


def _dead(process: subprocess.Popen[bytes], log: Path) -> core.BuildError:
    return core.BuildError(
        f"llama-server ended with code {process.returncode}: {_tail(log)}", "llama-server", "see the end of its log"
    )


def _wait(process: subprocess.Popen[bytes], port: int, timeout: float, log: Path) -> None:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise _dead(process, log)
        with contextlib.suppress(OSError, http.client.HTTPException, core.BuildError):
            request(port, "GET", "/health", None, 5)
            return
        time.sleep(0.2)
    raise core.BuildError(
        f"llama-server is not ready after {timeout:.0f} s: {_tail(log)}", "llama-server", "free the machine, run again"
    )


def request(port: int, method: str, path: str, body: dict[str, Any] | None, timeout: float) -> Any:
    """Send one request to a local server and read its JSON answer.

    Raises:
        BuildError: the server answers with another status than 200.
    """
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout)
    try:
        payload = None if body is None else json.dumps(body)
        connection.request(method, path, payload, {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read().decode("utf-8", errors="replace")
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise core.BuildError(f"llama-server answered {response.status}: {text[:200]}", path, "see its log")
    return json.loads(text)


def measure(
    llama_server: Path,
    target_gguf: Path,
    draft_gguf: Path | None,
    prompts: Sequence[corpus.Sample],
    n_max: int = 15,
    timeout: float = 180,
    threads: int = 1,
    predict: int = PREDICT,
) -> list[Answer]:
    """Answer every prompt in turn at temperature 0, with the draft when there is one.

    Args:
        llama_server: the binary.
        target_gguf: the target model.
        draft_gguf: the draft; None measures the target alone.
        prompts: what to send, as raw text.
        n_max: drafted tokens a pass, at most block size - 1.
        timeout: seconds for the server to get ready, and for each answer.
        threads: of the server; more than one wait for each other and crawl on a machine that is busy.
        predict: upper limit on the tokens of an answer.

    Raises:
        BuildError: the server fails, or speculation did not run although a draft was given.
    """
    answers = []
    with server(llama_server, target_gguf, draft_gguf, n_max, timeout, threads) as port:
        for sample in prompts:
            body = {
                "prompt": sample.prompt,
                "n_predict": predict,
                "temperature": 0,
                "cache_prompt": False,
                "return_tokens": True,
            }
            reply = request(port, "POST", "/completion", body, timeout)
            timings = reply["timings"]
            if draft_gguf and "draft_n" not in timings:
                raise core.BuildError(
                    "speculation did not run: the timings carry no draft_n", draft_gguf, "check --spec-type and the log"
                )
            answers.append(
                Answer(
                    sample=sample,
                    text=reply["content"],
                    tokens=reply["tokens"],
                    predicted_n=timings["predicted_n"],
                    predicted_per_second=timings["predicted_per_second"],
                    draft_n=timings.get("draft_n"),
                    draft_n_accepted=timings.get("draft_n_accepted"),
                )
            )
    return answers


def table(with_draft: Sequence[Answer], without: Sequence[Answer]) -> list[Row]:
    """Figures by kind, seen prompts first; the answers of both runs must be to the same prompts in the same order."""
    kinds: dict[str, list[tuple[Answer, Answer]]] = {}
    for drafted, plain in zip(with_draft, without, strict=True):
        kind = drafted.sample.kind if drafted.sample.seen else f"{drafted.sample.kind} (unseen)"
        kinds.setdefault(kind, []).append((drafted, plain))
    rows = []
    for kind, pairs in sorted(kinds.items(), key=lambda item: ("unseen" in item[0], item[0])):
        drafted_n = sum(drafted.draft_n or 0 for drafted, _ in pairs)
        accepted = sum(drafted.draft_n_accepted or 0 for drafted, _ in pairs)
        predicted = sum(drafted.predicted_n for drafted, _ in pairs)
        seconds = [sum(a.predicted_n / a.predicted_per_second for a in side) for side in zip(*pairs, strict=True)]
        rows.append(
            Row(
                kind=kind,
                acceptance=accepted / drafted_n if drafted_n else 0.0,
                tokens_per_pass=predicted / max(1, predicted - accepted),
                identical=all(a.tokens == b.tokens and a.text == b.text for a, b in pairs),
                speed_ratio=seconds[1] / seconds[0],
            )
        )
    return rows


def main(argv: list[str] | None = None) -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--server", type=Path, required=True, help="the llama-server binary")
    arguments.add_argument("--target", type=Path, required=True, help="GGUF of the target")
    arguments.add_argument("--draft", type=Path, required=True, help="GGUF of the draft")
    arguments.add_argument("--n-max", type=int, default=15, help="drafted tokens a pass (%(default)s)")
    arguments.add_argument("--threads", type=int, default=1, help="threads of the server (%(default)s)")
    arguments.add_argument("--predict", type=int, default=PREDICT, help="tokens an answer at most (%(default)s)")
    arguments.add_argument("--per-kind", type=int, default=6, help="prompts of each kind at most (%(default)s)")
    arguments.add_argument("--json", type=Path, help="also write a report here")

    def step(options: argparse.Namespace) -> None:
        samples = corpus.evaluation_samples(options.per_kind)

        def answers(draft: Path | None) -> list[Answer]:
            limits = {"n_max": options.n_max, "threads": options.threads, "predict": options.predict}
            return measure(options.server, options.target, draft, samples, **limits)

        without = answers(None)
        rows = table(answers(options.draft), without)
        print(f"{'kind':<20} {'acceptance':>10} {'tokens/pass':>11} {'identical':>9} {'speed':>6}")
        for row in rows:
            figures = f"{row.acceptance:>10.3f} {row.tokens_per_pass:>11.2f}"
            print(f"{row.kind:<20} {figures} {'yes' if row.identical else 'no':>9} {row.speed_ratio:>5.2f}x")
        report = core.Report(figures={"rows": [vars(row) for row in rows], "cpus": os.cpu_count()})
        for row in rows:
            report.check(f"{row.kind}: same output", row.identical, "token ids with and without the draft")
            if "unseen" not in row.kind:
                report.check(f"{row.kind}: acceptance", row.acceptance > THRESHOLD, f"{row.acceptance:.3f}")
        if options.json:
            report.write(options.json)
        failed = [f"{check.name} ({check.detail})" for check in report.checks if not check.ok]
        if failed:
            raise core.BuildError("; ".join(failed), options.draft, f"acceptance must exceed {THRESHOLD}")

    return core.run(arguments, step, argv)


if __name__ == "__main__":
    sys.exit(main())
