"""Colours and letters of the demo: one palette for all frames, made before the first is drawn.

A picture is drawn as palette indexes. Every ink has a ramp of mixtures with each paper it is used on, so that smooth
letters need no quantizing, and the same streams give the same bytes.
"""

from __future__ import annotations

import functools
from pathlib import Path

import matplotlib
from PIL import Image, ImageColor, ImageDraw, ImageFont

STEPS = 7
"""Steps from paper to ink in a letter's edge."""

PAPERS = {
    "desk": "#0b0e14",
    "pane": "#141923",
    "bar": "#1b2230",
    "baseline-new": "#50401f",
    "dflash-new": "#1d4a35",
    "differs": "#7a1f2b",
    "line": "#2b3445",
}
INKS = {
    "text": "#dde4ee",
    "faint": "#7f8b9e",
    "keyword": "#ff8f84",
    "string": "#9fd6ff",
    "number": "#ffc777",
    "function": "#cfa8ff",
    "type": "#7fe0d0",
    "baseline": "#f0b86c",
    "dflash": "#4fd68b",
    "warning": "#ff8f84",
}
CODE = ("text", "faint", "keyword", "string", "number", "function", "type")
PAIRS = (
    *((ink, paper) for paper in ("pane", "baseline-new", "dflash-new", "differs") for ink in CODE),
    *((ink, "bar") for ink in ("text", "faint", "baseline", "dflash")),
    *((ink, "desk") for ink in ("text", "faint", "baseline", "dflash", "warning")),
)
"""Every ink and paper that meet."""


def _mixed() -> tuple[dict[tuple[int, int, int], int], dict[tuple[str, str], tuple[int, ...]]]:
    """Index of every colour, and the ramp of every pair, paper first."""
    known: dict[tuple[int, int, int], int] = {}

    def index(red: int, green: int, blue: int) -> int:
        return known.setdefault((red, green, blue), len(known))

    for paper in PAPERS.values():
        index(*ImageColor.getrgb(paper)[:3])
    ramps = {}
    for ink, paper in PAIRS:
        ends = [ImageColor.getrgb(colour)[:3] for colour in (PAPERS[paper], INKS[ink])]
        mixes = [
            [round(low + (high - low) * step / STEPS) for low, high in zip(*ends, strict=True)]
            for step in range(STEPS + 1)
        ]
        ramps[ink, paper] = tuple(index(*mix) for mix in mixes)
    return known, ramps


COLOURS, RAMPS = _mixed()
PALETTE = bytes(part for colour in COLOURS for part in colour)
"""Red, green and blue of every index in turn."""

UNCHANGED = len(COLOURS)
"""An index that no picture uses: it stands for pixels that stay as they were."""


def paper(name: str) -> int:
    """Index of a paper's colour."""
    return COLOURS[ImageColor.getrgb(PAPERS[name])[:3]]  # type: ignore[index]  # three parts, by the slice


def ink(name: str, on: str) -> int:
    """Index of an ink's colour."""
    return RAMPS[name, on][-1]


@functools.cache
def font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """DejaVu Sans Mono as matplotlib brings it along: the same letters on every machine."""
    name = "DejaVuSansMono-Bold.ttf" if bold else "DejaVuSansMono.ttf"
    path = Path(matplotlib.get_data_path(), "fonts", "ttf", name)
    return ImageFont.truetype(path, size, layout_engine=ImageFont.Layout.BASIC)


def advance(size: int) -> int:
    """Pixels from one letter to the next."""
    return round(font(size).getlength("M"))


@functools.cache
def letters(text: str, size: int, bold: bool, name: str, on: str) -> Image.Image:
    """A text as palette indexes: as wide as its letters, as high as the font's line."""
    face = font(size, bold)
    ascent, descent = face.getmetrics()
    cover = Image.new("L", (advance(size) * len(text), ascent + descent))
    pen = ImageDraw.Draw(cover)
    for place, char in enumerate(text):
        pen.text((place * advance(size), ascent), char, fill=255, font=face, anchor="ls")
    ramp = RAMPS[name, on]
    return cover.point([ramp[round(level * STEPS / 255)] for level in range(256)])
