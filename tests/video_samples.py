"""Captured streams for the tests of the demo video, made by hand."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from scripts.llama_server import Piece
from scripts.serve_settings import Settings
from scripts.video_stream import Stream, Timings, write

SETTINGS = Settings(
    source="local",
    context=1024,
    kv_type="f16",
    draft_kv_type="f16",
    draft_quant="Q8_0",
    n_max=15,
    host="127.0.0.1",
    port=8080,
    checkpoints=2,
    fit_target=256,
    gpu_layers=0,
    threads=1,
    parallel=1,
)
"""How the embedded pair is served to be captured."""

WORDS = ["```", "go", "\n", "func", " Sum", "(", "a", ",", " b", " int", ")", " {", "\n", "}", "\n", "```"]
PROMPT = "<|im_start|>user\nWrite a function.<|im_end|>\n"


def stream(times: Sequence[float], draft: str | None = None, accepted: int = 0, words: Sequence[str] = WORDS) -> Stream:
    """A stream whose tokens come at ``times``, in seconds; ``accepted`` of them were drafted."""
    pieces = [Piece(at, words[number % len(words)], [number]) for number, at in enumerate(times)]
    return Stream(
        title="Write a function.",
        prompt=PROMPT,
        format="chat",
        predict=64,
        seed=42,
        engine="b1-abc",
        target="Target-Q8_0.gguf",
        draft=draft,
        stop="eos",
        timings=Timings(
            prompt_n=9,
            predicted_n=len(times),
            predicted_ms=1000 * (times[-1] - times[0]),
            draft_n=2 * accepted if draft else None,
            draft_n_accepted=accepted if draft else None,
            first_token_s=times[0],
        ),
        pieces=tuple(pieces),
    )


def baseline() -> Stream:
    """Sixteen tokens, one every 70 ms from 113 ms on."""
    return stream([0.113 + 0.07 * number for number in range(16)])


def dflash() -> Stream:
    """The same tokens in four passes: the first token, then five at a time, 0.1 ms apart."""
    times = [0.121] + [0.121 + 0.163 * (1 + number // 5) + 0.0001 * (number % 5) for number in range(15)]
    return stream(times, "Draft-Q4_K_M.gguf", accepted=12)


def other() -> Stream:
    """The answer of DFlash with another token in the eighth place."""
    made = dflash()
    pieces = list(made.pieces)
    pieces[7] = replace(pieces[7], text=";", tokens=[99])
    return replace(made, pieces=tuple(pieces))


def written(folder: Path, left: Stream, right: Stream) -> tuple[Path, Path]:
    """Both streams as files."""
    paths = folder / "baseline.jsonl", folder / "dflash.jsonl"
    for made, path in zip((left, right), paths, strict=True):
        write(made, path)
    return paths
