"""Captured token streams as JSONL: a header line, then one line for each part of the answer as it came."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jsonschema

from scripts import core
from scripts.core import BuildError
from scripts.llama_server import Piece

AGAIN = "delete the file and capture the streams again"

_COUNT = {"type": "integer", "minimum": 0}
_TIME = {"type": "number", "minimum": 0}
_TEXT = {"type": "string"}
_TIMINGS = {
    "prompt_n": _COUNT,
    "predicted_n": {"type": "integer", "minimum": 1},
    "predicted_ms": _TIME,
    "draft_n": {"type": ["integer", "null"], "minimum": 0},
    "draft_n_accepted": {"type": ["integer", "null"], "minimum": 0},
    "first_token_s": _TIME,
}
_HEADER = {
    "title": _TEXT,
    "prompt": _TEXT,
    "format": _TEXT,
    "predict": _COUNT,
    "seed": {"type": "integer"},
    "engine": _TEXT,
    "target": _TEXT,
    "draft": {"type": ["string", "null"]},
    "stop": _TEXT,
    "timings": {
        "type": "object",
        "properties": _TIMINGS,
        "required": list(_TIMINGS),
        "additionalProperties": False,
    },
}
_PIECE = {"at": _TIME, "text": _TEXT, "tokens": {"type": "array", "items": _COUNT}}


def _schema(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


@dataclass(frozen=True)
class Timings:
    """The figures of an answer: the server's own, and the first token's time in seconds as the client saw it."""

    prompt_n: int
    predicted_n: int
    predicted_ms: float
    draft_n: int | None
    draft_n_accepted: int | None
    first_token_s: float

    @property
    def per_second(self) -> float | None:
        """Decoded tokens per second; None for an answer too short to be timed."""
        return 1000 * self.predicted_n / self.predicted_ms if self.predicted_ms > 0 else None

    @property
    def acceptance(self) -> float | None:
        """Accepted over drafted tokens, 0 to 1; None where nothing was drafted."""
        return (self.draft_n_accepted or 0) / self.draft_n if self.draft_n else None

    @property
    def passes(self) -> int:
        """Passes of the target over the answer: each gives the tokens it accepts and one of its own."""
        return max(1, self.predicted_n - (self.draft_n_accepted or 0))


@dataclass(frozen=True)
class Stream:
    """One captured answer: what was asked, of what, and every part of the answer with its time."""

    title: str
    """What the prompt is called in the picture."""
    prompt: str
    """The text as it was sent, chat template applied."""
    format: str
    predict: int
    """Upper limit on the tokens of the answer."""
    seed: int
    engine: str
    """The server's build."""
    target: str
    """File name of the target."""
    draft: str | None
    """File name of the draft; None in a baseline."""
    stop: str
    """Why the answer ended, in the server's words."""
    timings: Timings
    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        """The whole answer."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def tokens(self) -> list[int]:
        """Token ids of the whole answer."""
        return [token for piece in self.pieces for token in piece.tokens]

    @property
    def end(self) -> float:
        """Seconds from the request to the last part."""
        return self.pieces[-1].at


def write(stream: Stream, path: Path) -> None:
    """Write a stream atomically."""
    header = asdict(stream)
    pieces = header.pop("pieces")
    with core.atomic(path) as temporary:
        lines = [json.dumps(value) for value in (header, *pieces)]  # ASCII: no text can break a line
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read(path: Path) -> Stream:
    """Read a stream.

    Raises:
        BuildError: the file is missing or cut, a line is not what it should be, times run backwards, or there is no
            token; the message names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise BuildError(f"cannot read the stream: {error.strerror}", path, "capture the streams first") from error
    except UnicodeDecodeError as error:
        raise BuildError(f"not UTF-8: {error.reason}", path, AGAIN) from error
    if not lines:
        raise BuildError("the stream has no header", path, AGAIN)
    header = _line(lines[0], 1, _HEADER, path)
    pieces = tuple(Piece(**_line(line, number, _PIECE, path)) for number, line in enumerate(lines[1:], 2))
    if not any(piece.tokens for piece in pieces):
        raise BuildError("the stream has no token", path, AGAIN)
    for number, (before, after) in enumerate(itertools.pairwise(pieces), 3):
        if after.at < before.at:
            what = f"line {number}: its time, {after.at} s, is before that of the line above, {before.at} s"
            raise BuildError(what, path, AGAIN)
    return Stream(**header | {"timings": Timings(**header["timings"]), "pieces": pieces})


def _line(text: str, number: int, properties: dict[str, Any], path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BuildError(f"line {number}: not JSON: {error}", path, AGAIN) from error
    wrong = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(_schema(properties)).iter_errors(found))
    if wrong is not None:
        where = ".".join(map(str, wrong.absolute_path))
        raise BuildError(f"line {number}: {f'{where}: ' if where else ''}{wrong.message}", path, AGAIN)
    return found


def check_pair(baseline: Stream, dflash: Stream, where: Path) -> None:
    """See that two streams can stand side by side.

    Raises:
        BuildError: they answer different requests or come of different targets or builds; a draft ran on the left, or
            none on the right.
    """
    for key in ("prompt", "format", "predict", "seed", "target", "engine"):
        if getattr(baseline, key) != getattr(dflash, key):
            raise BuildError(f"the two streams have not the same {key}", where, AGAIN)
    if baseline.draft is not None or baseline.timings.draft_n:
        raise BuildError("a draft ran in the baseline", where, "give the stream without a draft first")
    if dflash.draft is None or not dflash.timings.draft_n:
        raise BuildError("no draft ran in the stream of DFlash", where, "give the stream with the draft second")


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """Index of the first token in which two answers differ; None where they are the same.

    An answer that ends earlier differs at its end.
    """
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return index
    return None if len(left) == len(right) else min(len(left), len(right))
