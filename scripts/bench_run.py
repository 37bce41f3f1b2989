"""Send the prompts of workloads to the baseline server and to the one with the draft, in alternating order.

One server runs at a time. A second one would hold memory that the first then lacks (llama-server fits its layers into
what is free, so on a GPU the second would be measured in worse conditions), and on a CPU it could still be settling
while the first is timed. The order alternates by repeat (baseline, DFlash; DFlash, baseline; ...), so that a machine
that warms up or slows down favours neither; neighbours of one side share a server. Every start is followed by one
answer that is thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any

from scripts import core
from scripts.bench_loops import loop
from scripts.core import BuildError
from scripts.llama_server import SEED, Answer, Client
from scripts.workloads import Prompt, Workload

BASELINE, DFLASH = SIDES = ("baseline", "dflash")

WARM_UP = 32
"""Most tokens of the answer that is thrown away."""

Open = Callable[[], AbstractContextManager[Client]]
"""Starts a server, or connects to one."""


@dataclass(frozen=True)
class Request:
    """One prompt in one format, as it is sent."""

    workload: str
    prompt: str
    """Its id in the workload."""
    format: str
    thinking: str
    """``on``, ``off``; ``no switch`` where the template has none; ``raw`` where none is used."""
    text: str
    tokens: int
    """Length in tokens."""


@dataclass(frozen=True)
class Run:
    """One answer of one side to one request, in one repeat (counted from 1)."""

    side: str
    repeat: int
    request: Request
    answer: Answer

    @property
    def loop(self) -> str | None:
        """Why the answer counts as a loop; None for one that does not."""
        return loop(self.answer.tokens, self.answer.text)


@dataclass
class Measured:
    """All answers, in the order in which they came."""

    runs: list[Run] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    """Formats that were left out, and why."""
    props: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What each side's server says of itself."""

    @property
    def requests(self) -> list[Request]:
        """What was sent, once each."""
        return list(dict.fromkeys(run.request for run in self.runs))


def order(sides: Sequence[str], repeats: int) -> list[tuple[str, int]]:
    """Side and repeat (from 1) of every round: forwards, backwards, forwards, ..."""
    return [
        (side, repeat) for repeat in range(1, repeats + 1) for side in (sides if repeat % 2 else list(reversed(sides)))
    ]


def requests(
    client: Client, workloads: Sequence[Workload], formats: Sequence[str]
) -> tuple[list[Request], dict[str, str]]:
    """What to send, by workload and format, and the formats that are left out with the reason.

    ``chat-thinking`` is left out where the template gives the same text with thinking on and off.

    Raises:
        BuildError: the server answers with an error, or no format is left.
    """
    made: list[Request] = []
    skipped: dict[str, str] = {}
    for workload in workloads:
        for name in formats:
            for prompt in workload.prompts:
                text, thinking = _text(client, prompt, name)
                if name == "chat-thinking" and thinking == "no switch":
                    skipped[name] = "the chat template gives the same text with thinking on and off"
                    continue
                made.append(Request(workload.name, prompt.id, name, thinking, text, len(client.tokenize(text))))
    if not made:
        raise BuildError(f"no format is left: {skipped}", "bench.formats", "add chat or raw")
    return made, skipped


def _text(client: Client, prompt: Prompt, name: str) -> tuple[str, str]:
    if name == "raw":
        return prompt.text, "raw"
    on, off = (client.apply_template(prompt.messages, thinking) for thinking in (True, False))
    if on == off:
        return off, "no switch"
    return (on, "on") if name == "chat-thinking" else (off, "off")


def measure(
    servers: Mapping[str, Open],
    workloads: Sequence[Workload],
    formats: Sequence[str],
    *,
    repeats: int,
    predict: int,
    label: str | None = None,
) -> Measured:
    """Answer every prompt in every format ``repeats`` times on every side.

    Args:
        servers: how to reach each side, ``baseline`` and ``dflash`` or one of them.
        workloads: what to send.
        formats: ``raw``, ``chat``, ``chat-thinking``.
        repeats: measured answers to each prompt and side.
        predict: upper limit on the tokens of an answer.
        label: shown with the progress; None shows none.

    Raises:
        BuildError: a server fails, a prompt does not fit its context, the two serve different targets, the baseline
            drafts, or the draft never engages.
    """
    measured = Measured()
    to_send: list[Request] = []
    for side, rounds in groupby(order(list(servers), repeats), key=lambda one: one[0]):
        with servers[side]() as client:
            measured.props.setdefault(side, client.props())
            check_same_target(measured.props, client.url)
            if not to_send:
                to_send, measured.skipped = requests(client, workloads, formats)
            check_fits(to_send, predict, measured.props[side], client.url)
            client.complete(to_send[0].text, min(predict, WARM_UP))
            for _, repeat in rounds:
                shown = f"{label}, {side}, repeat {repeat}" if label else None
                with core.Progress(shown, len(to_send), "answers") as progress:
                    for request in to_send:
                        answer = client.complete(request.text, predict)
                        measured.runs.append(Run(side, repeat, request, answer))
                        progress.add(1)
                check_engaged(side, [run.answer for run in measured.runs if run.side == side], client.url)
    return measured


def model_name(props: Mapping[str, Any]) -> str:
    """File name of the model that a server serves, whatever system it runs on."""
    return str(props["model_path"]).replace("\\", "/").rpartition("/")[2]


def check_same_target(props: Mapping[str, Mapping[str, Any]], where: str) -> None:
    """Refuse to compare servers that serve different models, or render prompts differently.

    Raises:
        BuildError: file names or chat templates differ.
    """
    names = {model_name(prop) for prop in props.values()}
    templates = {str(prop["chat_template"]) for prop in props.values()}
    if len(names) > 1 or len(templates) > 1:
        what = f"the two servers serve different targets: {' and '.join(sorted(names))}"
        raise BuildError(what, where, "start both with one target")


def check_fits(to_send: Sequence[Request], predict: int, props: Mapping[str, Any], where: str) -> None:
    """See that no answer ends for want of context.

    Raises:
        BuildError: a prompt and ``predict`` tokens exceed the server's context.
    """
    context = props["default_generation_settings"]["n_ctx"]
    longest = max(to_send, key=lambda request: request.tokens)
    if longest.tokens + predict > context:
        what = f"prompt {longest.prompt} of {longest.tokens} tokens and {predict} of an answer exceed {context}"
        raise BuildError(what, where, "raise serve.context or lower bench.predict")


def check_engaged(side: str, answers: Sequence[Answer], where: str) -> None:
    """Fail early: a side whose server does not do what its name says makes every figure wrong.

    Raises:
        BuildError: the draft never engaged, or the baseline drafts.
    """
    drafted = sum(answer.draft_n or 0 for answer in answers)
    if side == DFLASH and not drafted:
        what = f"the draft never engaged: no tokens were drafted in {len(answers)} answers"
        raise BuildError(what, where, "check --spec-type draft-dflash, the draft's file and the server's log")
    if side == BASELINE and drafted:
        raise BuildError(f"the baseline drafts: {drafted} tokens", where, "start it without a draft")


def records(runs: Sequence[Run], predict: int) -> Iterator[dict[str, Any]]:
    """Every answer as a line of the raw file: what was sent, what came, and when."""
    for run in runs:
        answer = asdict(run.answer)
        pieces = answer.pop("pieces")
        sent = {"n_predict": predict, "temperature": 0, "seed": SEED, "cache_prompt": False}
        yield {
            "side": run.side,
            "repeat": run.repeat,
            **{key: value for key, value in asdict(run.request).items() if key not in ("text", "tokens")},
            "request": {"prompt": run.request.text, **sent},
            **answer,
            "tokens_per_second": run.answer.per_second,
            "loop": run.loop,
            "pieces": [{"at": round(piece["at"], 6), "tokens": len(piece["tokens"])} for piece in pieces],
        }
