"""Draw what a frame shows: two panes with code, figures above it and below."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from PIL import Image, ImageDraw

from scripts.video_palette import PALETTE, advance, font, ink, letters, paper
from scripts.video_plan import Plan, Side, View
from scripts.video_stream import Stream
from scripts.video_text import Cell, cells, lines, styles

WIDTH, HEIGHT = 960, 540
EDGE = 16
TOP, BOTTOM = 48, 40
"""Heights of the strips above and below the panes."""
HEAD, FOOT = 50, 30
"""Heights of a pane's bars."""
GAP = 12
PANE = (WIDTH - 2 * EDGE - GAP) // 2
SIZE, LINE = 13, 18
"""Size of code and distance of its lines."""
SMALL, NAME, LARGE = 12, 16, 22
INSET, PAD = 12, 8
"""Pixels between a pane's edge and its text: at the sides, above it."""
COLUMNS = (PANE - 2 * INSET) // advance(SIZE)
ROWS = (HEIGHT - TOP - BOTTOM - HEAD - FOOT - PAD) // LINE


@dataclass(frozen=True)
class Pane:
    """A side's fixed parts."""

    name: str
    colour: str
    model: str
    x: int
    stream: Stream
    text: list[Cell]
    differs: int | None
    """The part of the answer in which it first differs from the other."""


class Painter:
    """Draws the frames of one plan."""

    def __init__(self, plan: Plan) -> None:
        """Colour both answers once, as the whole of them reads."""
        self.plan = plan
        target, draft = PurePath(plan.dflash.target).stem, PurePath(plan.dflash.draft or "").stem
        right = EDGE + PANE + GAP
        self.panes = (
            self._pane("baseline", "baseline", target, EDGE, plan.baseline),
            self._pane("DFlash", "dflash", draft, right, plan.dflash),
        )

    def _pane(self, name: str, colour: str, model: str, x: int, stream: Stream) -> Pane:
        text = cells(stream.pieces, styles(stream.prompt, stream.text))
        differs, count = None, 0
        if self.plan.difference is not None:
            for number, piece in enumerate(stream.pieces):
                count += len(piece.tokens)
                if count > self.plan.difference:
                    differs = number
                    break
        return Pane(name, colour, model, x, stream, text, differs)

    def draw(self, view: View) -> Image.Image:
        """The picture of a view, as palette indexes."""
        image = Image.new("L", (WIDTH, HEIGHT), paper("desk"))
        self._strips(image, view)
        for pane, side in zip(self.panes, (view.left, view.right), strict=True):
            _draw_pane(image, pane, side, view.differs_at is not None)
        image.putpalette(PALETTE)
        return image

    def _strips(self, image: Image.Image, view: View) -> None:
        y = TOP // 2
        speed = "" if self.plan.speed == 1 else f"{self.plan.speed:g}x speed"
        used = _right(image, WIDTH - EDGE, y, f"{view.clock:.2f} s", LARGE, "text", bold=True)
        used = _right(image, used - 14, y, speed, SMALL, "warning") if speed else used
        room = (used - 14 - EDGE) // advance(SIZE)
        _left(image, EDGE, y, _short(self.plan.dflash.title, room), SIZE, "text")
        y = HEIGHT - BOTTOM // 2
        engine = f"llama.cpp {self.plan.dflash.engine}, temperature 0, {self.plan.dflash.format}"
        _right(image, WIDTH - EDGE, y, _short(engine, 60), SMALL, "faint")
        x = EDGE
        for said, colour in verdict(self.plan, view):
            x = _left(image, x, y, said, SIZE, colour, bold=True) + 3 * advance(SIZE)


def verdict(plan: Plan, view: View) -> list[tuple[str, str]]:
    """What can be said by now about the two answers, each with the colour to say it in."""
    said = []
    speeds = (plan.dflash.timings.per_second, plan.baseline.timings.per_second)
    if view.ended and speeds[0] and speeds[1]:
        ratio = speeds[0] / speeds[1]
        said.append((f"DFlash: {ratio:.2f}x baseline tok/s", "dflash" if ratio >= 1 else "baseline"))
    if view.differs_at is not None:
        said.append((f"outputs differ from token {view.differs_at + 1} on", "warning"))
    elif view.ended:
        said.append(("same output", "dflash"))
    return said


def _draw_pane(image: Image.Image, pane: Pane, side: Side, differs: bool) -> None:
    pen = ImageDraw.Draw(image)
    top, bottom = TOP, HEIGHT - BOTTOM
    right = pane.x + PANE
    pen.rectangle((pane.x, top, right - 1, bottom - 1), fill=paper("pane"), outline=paper("line"))
    pen.rectangle((pane.x, top, right - 1, top + HEAD - 1), fill=paper("bar"))
    pen.rectangle((pane.x, top, right - 1, top + 2), fill=ink(pane.colour, "bar"))
    pen.rectangle((pane.x, bottom - FOOT, right - 1, bottom - 1), fill=paper("bar"))
    inner, outer = pane.x + INSET, right - INSET
    _left(image, inner, top + 19, pane.name, NAME, pane.colour, on="bar", bold=True)
    room = PANE // advance(SMALL) - 20
    _left(image, inner, top + 38, _short(pane.model, room), SMALL, "faint", on="bar")
    unit = _right(image, outer, top + 29, "tok/s", SMALL, "faint", on="bar")
    colour = pane.colour if side.ended else "text"
    digits = 1 if side.ended else 0
    _right(image, unit - 8, top + 27, _number(side.per_second, digits), LARGE, colour, on="bar", bold=True)
    _figures(image, inner, bottom - FOOT // 2, pane, side)
    _code(image, inner, top + HEAD + PAD, pane, side, differs)


def _figures(image: Image.Image, x: int, y: int, pane: Pane, side: Side) -> None:
    stream = pane.stream
    tokens, end = f"{len(stream.tokens)}", f"{stream.end:.2f}"
    figures = [(f"{side.tokens}", len(tokens), "tokens"), (f"{side.seconds:.2f}", len(end), "s")]
    if stream.draft is not None:
        accepted = "-" if side.acceptance is None else f"{side.acceptance:.0%}"
        figures += [(_number(side.per_pass, 1), 4, "a pass"), (accepted, 4, "accepted")]
    for value, width, unit in figures:  # of a fixed width, so that nothing moves
        x = _left(image, x, y, value.rjust(width), SMALL, "text", on="bar", bold=True) + advance(SMALL)
        x = _left(image, x, y, unit, SMALL, "faint", on="bar") + 2 * advance(SMALL)


def _code(image: Image.Image, x: int, top: int, pane: Pane, side: Side, differs: bool) -> None:
    count = sum(len(piece.text) for piece in pane.stream.pieces[: side.pieces])
    for row, line in enumerate(lines(pane.text[:count], COLUMNS)[-ROWS:]):
        for column, cell in enumerate(line):
            fresh = f"{pane.colour}-new" if cell.piece >= side.newest else "pane"
            on = "differs" if differs and cell.piece == pane.differs else fresh
            if cell.char != " " or on != "pane":
                drawn = letters(cell.char or " ", SIZE, False, cell.style, on)
                image.paste(drawn, (x + column * advance(SIZE), top + row * LINE))


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else text[: max(0, length - 1)] + "…"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _left(
    image: Image.Image, x: int, y: int, text: str, size: int, name: str, *, on: str = "desk", bold: bool = False
) -> int:
    """Write a text whose line is centred on ``y``; returns where it ends."""
    drawn = letters(text, size, bold, name, on)
    if text:
        image.paste(drawn, (x, y - sum(font(size, bold).getmetrics()) // 2))
    return x + drawn.width


def _right(
    image: Image.Image, x: int, y: int, text: str, size: int, name: str, *, on: str = "desk", bold: bool = False
) -> int:
    """Write a text that ends at ``x``; returns where it begins."""
    start = x - advance(size) * len(text)
    _left(image, start, y, text, size, name, on=on, bold=bold)
    return start
