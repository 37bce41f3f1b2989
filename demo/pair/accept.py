"""Measure how much of a draft llama-server accepts, and whether the draft changes the output.

Acceptance is accepted over drafted tokens, as llama.cpp counts them. Every prompt is sent once with the draft and once
without, at temperature 0 and without the prompt cache; the answers must be the same token for token.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from demo.pair import corpus
from scripts import core, llama_server

THRESHOLD = 0.7
"""Acceptance that the pair must exceed on each kind of prompt it was trained on."""
PREDICT = 300
"""Upper limit on the tokens of an answer; the longest of the corpus has under 200."""
N_MAX = 15
"""Tokens drafted a pass: block size - 1."""
CONTEXT = 2048
"""Context of the server in tokens; the longest prompt and answer of the corpus have under 500."""


@dataclass(frozen=True)
class Reply:
    """A prompt and what the server said to it."""

    sample: corpus.Sample
    answer: llama_server.Answer


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
    """Tokens per second with the draft over without, in this one run; nan for answers too short to be timed."""


@contextlib.contextmanager
def serving(
    binary: Path,
    target_gguf: Path,
    draft_gguf: Path | None,
    log: Path,
    *,
    n_max: int = N_MAX,
    timeout: float = 180,
    threads: int = 1,
    env: Mapping[str, str] | None = None,
) -> Iterator[llama_server.Client]:
    """Run llama-server with the pair on this machine's CPU until the block ends; see :func:`measure`.

    Raises:
        BuildError: a file is missing, or the server fails (see :func:`llama_server.running`).
    """
    for path in filter(None, (binary, target_gguf, draft_gguf)):
        if not path.is_file():
            raise core.BuildError("file is missing", path, "run the step that writes it")
    command: list[str | Path] = [
        binary,
        "-m",
        target_gguf,
        "--offline",
        "--no-webui",
        "-t",
        str(threads),
        "-c",
        str(CONTEXT),
    ]
    command += ["-np", "1", "-ngl", "0", "-fit", "off", "--cache-ram", "0"]
    if draft_gguf:
        command += ["-md", draft_gguf, "-ngld", "0", "--spec-type", "draft-dflash", "--spec-draft-n-max", str(n_max)]
    with llama_server.running(command, log, start=timeout, answer=timeout, env=env) as client:
        yield client


def measure(
    binary: Path,
    target_gguf: Path,
    draft_gguf: Path | None,
    prompts: Sequence[corpus.Sample],
    n_max: int = N_MAX,
    timeout: float = 180,
    threads: int = 1,
    predict: int = PREDICT,
) -> list[Reply]:
    """Answer every prompt in turn at temperature 0, with the draft when there is one.

    Args:
        binary: llama-server.
        target_gguf: the target model.
        draft_gguf: the draft; None measures the target alone.
        prompts: what to send, as raw text.
        n_max: drafted tokens a pass, at most block size - 1.
        timeout: seconds for the server to get ready, and between two tokens of an answer.
        threads: of the server; more than one wait for each other and crawl on a machine that is busy.
        predict: upper limit on the tokens of an answer.

    Raises:
        BuildError: the server fails, or speculation did not run although a draft was given.
    """
    replies = []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        with serving(binary, target_gguf, draft_gguf, log, n_max=n_max, timeout=timeout, threads=threads) as client:
            for sample in prompts:
                answer = client.complete(sample.prompt, predict)
                if draft_gguf and answer.draft_n is None:
                    what = "speculation did not run: the timings carry no draft_n"
                    raise core.BuildError(what, draft_gguf, "check --spec-type and the log")
                replies.append(Reply(sample, answer))
    return replies


def acceptance(replies: Sequence[Reply]) -> float:
    """Accepted over drafted tokens of all answers, 0 to 1; 0 where nothing was drafted."""
    drafted = sum(reply.answer.draft_n or 0 for reply in replies)
    return sum(reply.answer.draft_n_accepted or 0 for reply in replies) / drafted if drafted else 0.0


def table(with_draft: Sequence[Reply], without: Sequence[Reply]) -> list[Row]:
    """Figures by kind, seen prompts first; the answers of both runs must be to the same prompts in the same order."""
    kinds: dict[str, list[tuple[Reply, Reply]]] = {}
    for drafted, plain in zip(with_draft, without, strict=True):
        kind = drafted.sample.kind if drafted.sample.seen else f"{drafted.sample.kind} (unseen)"
        kinds.setdefault(kind, []).append((drafted, plain))
    rows = []
    for kind, pairs in sorted(kinds.items(), key=lambda item: ("unseen" in item[0], item[0])):
        answers = [drafted.answer for drafted, _ in pairs]
        accepted = sum(answer.draft_n_accepted or 0 for answer in answers)
        predicted = sum(answer.predicted_n for answer in answers)
        took, took_without = (sum(reply.answer.predicted_ms for reply in side) for side in zip(*pairs, strict=True))
        same = [(a.answer.tokens, a.answer.text) == (b.answer.tokens, b.answer.text) for a, b in pairs]
        rows.append(
            Row(
                kind=kind,
                acceptance=acceptance([drafted for drafted, _ in pairs]),
                tokens_per_pass=predicted / max(1, predicted - accepted),
                identical=all(same),
                speed_ratio=took_without / took if took > 0 else math.nan,
            )
        )
    return rows


def main(argv: list[str] | None = None) -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--server", type=Path, required=True, help="the llama-server binary")
    arguments.add_argument("--target", type=Path, required=True, help="GGUF of the target")
    arguments.add_argument("--draft", type=Path, required=True, help="GGUF of the draft")
    arguments.add_argument("--n-max", type=int, default=N_MAX, help="drafted tokens a pass (%(default)s)")
    arguments.add_argument("--threads", type=int, default=1, help="threads of the server (%(default)s)")
    arguments.add_argument("--predict", type=int, default=PREDICT, help="tokens an answer at most (%(default)s)")
    arguments.add_argument("--per-kind", type=int, default=6, help="prompts of each kind at most (%(default)s)")
    arguments.add_argument("--json", type=Path, help="also write a report here")

    def step(options: argparse.Namespace) -> None:
        samples = corpus.evaluation_samples(options.per_kind)

        def answers(draft: Path | None) -> list[Reply]:
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
