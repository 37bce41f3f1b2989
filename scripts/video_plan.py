"""What every frame of the demo shows: pure functions of two captured streams and the frames' times.

A frame shows what had come by its own time, and nothing else. Frame times lie on a grid and are whole hundredths of a
second, GIF's unit, so that rounding never adds up.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from scripts.video_stream import Stream, first_difference

HUNDREDTHS = 100
"""A second in GIF's unit of time."""

HOLD = 300
"""Hundredths of a second that the last frame stays."""


@dataclass(frozen=True)
class Side:
    """What one pane shows."""

    pieces: int
    """How many parts of the answer are there."""
    tokens: int
    newest: int
    """The first part of the newest pass; equal to ``pieces`` where nothing is new."""
    ended: bool
    seconds: float
    """Captured time; that of the last token once the answer has ended."""
    per_second: float | None
    """Tokens so far over the time since the first; the server's own figure at the end."""
    per_pass: float | None
    """Tokens so far over passes so far."""
    acceptance: float | None
    """The server's figure, known at the end."""


@dataclass(frozen=True)
class View:
    """What one frame shows. Frames with equal views are one picture."""

    clock: float
    """Captured seconds, rounded down to hundredths."""
    left: Side
    right: Side
    differs_at: int | None
    """The first differing token, once both sides have shown it or ended."""

    @property
    def ended(self) -> bool:
        """Whether both answers have ended."""
        return self.left.ended and self.right.ended


class Track:
    """A stream, prepared to be asked what is there at a time."""

    def __init__(self, stream: Stream) -> None:
        """Find the passes and count tokens once."""
        self.stream = stream
        self.times = [piece.at for piece in stream.pieces]
        self.counts = [0, *itertools.accumulate(len(piece.tokens) for piece in stream.pieces)]
        self.starts = pass_starts(self.times, stream.timings.passes)

    def at(self, now: float) -> Side:
        """What has come by ``now``, in seconds since the request."""
        stream, count = self.stream, bisect_right(self.times, now)
        tokens, ended = self.counts[count], now >= stream.end
        passes = bisect_right(self.starts, count - 1)
        since_first = now - self.times[0]
        running = tokens / since_first if count and since_first > 0 else None
        return Side(
            pieces=count,
            tokens=tokens,
            newest=count if ended or not count else self.starts[passes - 1],
            ended=ended,
            seconds=_floor(min(now, stream.end)),
            per_second=_rounded(stream.timings.per_second if ended else running, 1 if ended else 0),
            per_pass=_rounded(tokens / passes if count else None, 1),
            acceptance=stream.timings.acceptance if ended else None,
        )


def pass_starts(times: list[float], passes: int) -> list[int]:
    """Index of the first part of every pass, from when the parts came and how many passes the server counted.

    The parts of one pass are sent at once, so the longest pauses lie between passes.
    """
    gaps = sorted(range(1, len(times)), key=lambda index: (times[index - 1] - times[index], index))
    return [0, *sorted(gaps[: passes - 1])]


def _floor(seconds: float) -> float:
    return math.floor(seconds * HUNDREDTHS + 1e-6) / HUNDREDTHS


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


@dataclass(frozen=True)
class Frame:
    """A picture and for how many hundredths of a second of playback it stands."""

    view: View
    start: int
    length: int


@dataclass(frozen=True)
class Plan:
    """Two streams and how they are played."""

    baseline: Stream
    dflash: Stream
    fps: int
    """Frames per second of playback, at most 50: GIF players slow down what is faster."""
    speed: float
    """Captured seconds per second of playback."""

    @cached_property
    def difference(self) -> int | None:
        """The first token in which the answers differ."""
        return first_difference(self.baseline.tokens, self.dflash.tokens)

    @cached_property
    def tracks(self) -> tuple[Track, Track]:
        """Left and right."""
        return Track(self.baseline), Track(self.dflash)

    def view(self, now: float) -> View:
        """What is there at ``now``, in captured seconds."""
        left, right = (track.at(now) for track in self.tracks)
        known = self.difference is not None and all(
            side.ended or side.tokens > self.difference for side in (left, right)
        )
        end = max(self.baseline.end, self.dflash.end)
        return View(_floor(min(now, end)), left, right, self.difference if known else None)

    def frames(self) -> list[Frame]:
        """Every picture in turn; the last one has both answers whole and stays for :data:`HOLD`."""
        end = max(self.baseline.end, self.dflash.end)
        made: list[Frame] = []
        for number in itertools.count():
            start, after = (round(HUNDREDTHS * count / self.fps) for count in (number, number + 1))
            now = start / HUNDREDTHS * self.speed
            view, last = self.view(now), now >= end
            length = HOLD if last else after - start
            if made and made[-1].view == view:
                made[-1] = Frame(view, made[-1].start, made[-1].length + length)
            else:
                made.append(Frame(view, start, length))
            if last:
                return made
        raise AssertionError("unreachable")
