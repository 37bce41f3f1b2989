"""The text of a pane: syntax colours of an answer, and its lines wrapped to a width."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Literal, Name, Number, String
from pygments.util import ClassNotFound

from scripts.llama_server import Piece

TAB = 4
HANG = 2
"""Blanks by which the rest of a wrapped line is indented further."""

BLANK = -1
"""The part of the answer that brought such a blank: none."""

FENCE = re.compile(r"^ {0,3}```[ \t]*([\w+#.-]*)[^\n]*(?:\n|\Z)", re.MULTILINE)

TEXT, FAINT = "text", "faint"
STYLES = (
    (Comment, FAINT),
    (Keyword.Type, "type"),
    (Keyword, "keyword"),
    (Name.Function, "function"),
    (Name.Class, "type"),
    (Name.Builtin, "type"),
    (Name.Tag, "keyword"),
    (String, "string"),
    (Number, "number"),
    (Literal, "string"),
)
"""Pygments' tokens and what they are called here; the first that fits is taken."""


class Cell(NamedTuple):
    """A character of a pane: how it looks and which part of the answer brought it."""

    char: str
    style: str
    piece: int


def styles(prompt: str, answer: str) -> list[str]:
    """The style of every character of an answer.

    Code is what stands in Markdown fences, open ones included. The prompt counts, because a raw prompt may have opened
    the fence that the answer goes on in.
    """
    whole, code = prompt + answer, ""
    found: list[str] = []
    at, opened = 0, False
    for fence in FENCE.finditer(whole):
        found += _coloured(whole[at : fence.start()], code if opened else "")
        found += [FAINT] * (fence.end() - fence.start())
        at, opened, code = fence.end(), not opened, fence[1]
    found += _coloured(whole[at:], code if opened else "")
    return found[len(prompt) :]


def _coloured(text: str, language: str) -> Iterator[str]:
    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return iter([TEXT] * len(text))
    looks = [TEXT] * len(text)
    for start, kind, value in lexer.get_tokens_unprocessed(text):
        style = next((style for token, style in STYLES if kind in token), TEXT)
        looks[start : start + len(value)] = [style] * len(value)
    return iter(looks)


def cells(pieces: Sequence[Piece], looks: Sequence[str]) -> list[Cell]:
    """The characters of an answer in order; tabs and line breaks are still what they are."""
    places = [(char, number) for number, piece in enumerate(pieces) for char in piece.text]
    return [Cell(char, look, number) for (char, number), look in zip(places, looks, strict=True)]


def lines(text: Sequence[Cell], columns: int) -> list[list[Cell]]:
    """Rows of at most ``columns`` cells: broken at line breaks, then at the last blank that fits, else anywhere.

    Tabs become blanks, wide characters are followed by an empty cell, and what cannot be shown becomes a question mark.
    """
    rows: list[list[Cell]] = [[]]
    for cell in text:
        if cell.char == "\n":
            rows.append([])
        else:
            rows[-1] += _shown(cell, len(rows[-1]))
    return [row for line in rows for row in _wrapped(line, columns)]


def _shown(cell: Cell, column: int) -> list[Cell]:
    if cell.char == "\t":
        return [cell._replace(char=" ")] * (TAB - column % TAB)
    if cell.char == "\r" or unicodedata.combining(cell.char):
        return []
    if not cell.char.isprintable():
        return [cell._replace(char="\N{REPLACEMENT CHARACTER}")]
    wide = unicodedata.east_asian_width(cell.char) in ("W", "F")
    return [cell, cell._replace(char="")] if wide else [cell]


def _wrapped(line: list[Cell], columns: int) -> Iterator[list[Cell]]:
    indent = next((at for at, cell in enumerate(line) if cell.char != " "), 0) + HANG
    hung = [Cell(" ", TEXT, BLANK)] * (indent if indent < columns // 2 else 0)
    while len(line) > columns:
        blanks = [at for at in range(len(hung) + 1, columns + 1) if line[at].char == " " and line[at - 1].char != " "]
        cut = blanks[-1] if blanks else columns
        if not blanks and line[cut].char == "":  # never between the halves of a wide character
            cut -= 1
        yield line[:cut]
        line = hung + (line[cut + 1 :] if blanks else line[cut:])
    yield line
