"""Capture one answer twice, without and with the draft, every token with the time at which it came.

The two servers run one after the other on the same flags, so that neither takes the machine from the other.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts import core, llama_server, serve_command, served, workloads
from scripts.core import BuildError
from scripts.llama_server import Client
from scripts.serve_settings import Settings
from scripts.video_stream import Stream, Timings, check_pair, write
from scripts.workloads import Prompt

WARM_UP = 8
"""Tokens of a first answer that is not kept: it pays for what only a first request does."""

FORMATS = ("raw", "chat", "chat-thinking")


def prompt_of(files: Sequence[Path], name: str, id_: str | None) -> Prompt:
    """A prompt of a workload by its id, or the workload's first.

    Args:
        files: the workloads of the config.
        name: of the workload.
        id_: of the prompt; the first where None.

    Raises:
        BuildError: no workload or prompt is called so, or a file is no workload.
    """
    loaded = {one.name: one for one in workloads.load_all(files)}
    if name not in loaded:
        known = ", ".join(loaded)
        raise BuildError(f"no workload is called {name}", "video.workload", f"use one of bench.workloads: {known}")
    prompts = {prompt.id: prompt for prompt in loaded[name].prompts}
    chosen = id_ or next(iter(prompts))
    if chosen not in prompts:
        what = f"the workload {name} has no prompt {chosen}"
        raise BuildError(what, "video.prompt", f"use one of: {', '.join(prompts)}")
    return prompts[chosen]


def text_of(client: Client, prompt: Prompt, format_: str) -> str:
    """The prompt as it is sent: raw, or through the chat template with thinking off or on."""
    if format_ == "raw":
        return prompt.text
    return client.apply_template(prompt.messages, thinking=format_ == "chat-thinking")


def capture(client: Client, prompt: Prompt, format_: str, predict: int, target: Path, draft: Path | None) -> Stream:
    """Ask a running server and keep what it said, after a warm-up that is not kept.

    Args:
        client: of the server.
        prompt: what to ask.
        format_: one of :data:`FORMATS`.
        predict: most tokens of the answer.
        target: GGUF that the server runs, for its name.
        draft: its draft, or None.

    Raises:
        BuildError: the server fails or says nothing, or the draft never engaged.
    """
    text = text_of(client, prompt, format_)
    client.complete(text, WARM_UP)
    answer = client.complete(text, predict)
    if not answer.tokens:
        raise BuildError("the answer has no token", client.url, "choose another prompt or format in video")
    if draft is not None and not answer.draft_n:
        raise BuildError("the draft never engaged: nothing was drafted", draft, "see the log of its server")
    return Stream(
        title=prompt.user.strip().partition("\n")[0],
        prompt=text,
        format=format_,
        predict=predict,
        seed=llama_server.SEED,
        engine=str(client.props()["build_info"]),
        target=target.name,
        draft=draft.name if draft else None,
        stop=answer.stop,
        timings=Timings(
            prompt_n=answer.prompt_n,
            predicted_n=answer.predicted_n,
            predicted_ms=answer.predicted_ms,
            draft_n=answer.draft_n,
            draft_n_accepted=answer.draft_n_accepted,
            first_token_s=answer.first_token_s,
        ),
        pieces=tuple(answer.pieces),
    )


def capture_both(
    binary: Path,
    target: Path,
    draft: Path,
    settings: Settings,
    prompt: Prompt,
    format_: str,
    predict: int,
    logs: tuple[Path, Path],
) -> tuple[Stream, Stream]:
    """Baseline, then DFlash, each from a server of its own; ``logs`` are for what they print.

    Raises:
        BuildError: a file is missing, a server fails, or the draft never engaged.
    """
    for path in (binary, target, draft):
        if not path.is_file():
            raise BuildError("file is missing", path, "run the step that writes it")
    made = []
    for used, log in zip((None, draft), logs, strict=True):
        core.say(f"capturing {'DFlash' if used else 'the baseline'}")
        command = serve_command.command(settings, target, used, binary)
        with llama_server.running(command, log) as client:
            made.append(capture(client, prompt, format_, predict, target, used))
    check_pair(made[0], made[1], draft)
    return made[0], made[1]


def main(argv: list[str] | None = None) -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--server", type=Path, required=True, help="the llama-server binary")
    arguments.add_argument("--target", type=Path, required=True, help="GGUF of the target, or its files.json")
    arguments.add_argument("--draft", type=Path, required=True, help="GGUF of the draft")
    arguments.add_argument("--settings", type=Settings.parse, required=True, help="how the pair is served, as JSON")
    arguments.add_argument("--workloads", type=Path, nargs="+", required=True, help="data files with prompts")
    arguments.add_argument("--workload", required=True, help="name of the workload")
    arguments.add_argument("--prompt", help="id of the prompt; the workload's first where absent")
    arguments.add_argument("--format", choices=FORMATS, required=True, help="how the prompt is sent")
    arguments.add_argument("--predict", type=int, required=True, help="most tokens of the answer")
    arguments.add_argument("--baseline-out", type=Path, required=True, help="write the baseline's stream here")
    arguments.add_argument("--dflash-out", type=Path, required=True, help="write DFlash's stream here")
    arguments.add_argument("--baseline-log", type=Path, required=True, help="what the baseline's server prints")
    arguments.add_argument("--dflash-log", type=Path, required=True, help="what the server with the draft prints")

    def step(options: argparse.Namespace) -> None:
        both = capture_both(
            options.server,
            served.first_file(options.target),
            options.draft,
            options.settings,
            prompt_of(options.workloads, options.workload, options.prompt),
            options.format,
            options.predict,
            (options.baseline_log, options.dflash_log),
        )
        for stream, path in zip(both, (options.baseline_out, options.dflash_out), strict=True):
            write(stream, path)
            rate = stream.timings.per_second
            core.say(f"{path}: {len(stream.tokens)} tokens, {rate or 0:.1f} tok/s, ended by {stream.stop}")

    return core.run(arguments, step, argv)


if __name__ == "__main__":
    sys.exit(main())
