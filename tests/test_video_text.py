"""The text in a pane of the demo video: colours and wrapped lines."""

from scripts.llama_server import Piece
from scripts.video_text import Cell, cells, lines, styles


def _rows(text: str, columns: int) -> list[str]:
    made = cells([Piece(0.0, text, [1])], ["text"] * len(text))
    return ["".join(cell.char for cell in row) for row in lines(made, columns)]


def test_code_in_a_fence_is_coloured_and_prose_is_not() -> None:
    text = 'Type:\n```go\nfunc f() string { return "a" } // b\n```\nDone, return it.'
    looks = styles("", text)
    assert len(looks) == len(text)
    look = {word: looks[text.index(word)] for word in ("Type", "```", "func", "string", '"a"', "//", "Done")}
    assert look == {
        **{"Type": "text", "```": "faint", "func": "keyword", "string": "type"},
        **{'"a"': "string", "//": "faint", "Done": "text"},
    }


def test_an_open_fence_is_code() -> None:
    assert styles("", "```python\ndef f")[-5:-2] == ["keyword"] * 3


def test_a_raw_prompt_may_have_opened_the_fence() -> None:
    assert styles("Code:\n```python\n", "def f") == ["keyword"] * 3 + ["text", "function"]
    assert styles("Code:\n", "def f") == ["text"] * 5


def test_a_language_that_nobody_knows_is_plain() -> None:
    assert styles("", "```klingon\nreturn")[-6:] == ["text"] * 6


def test_a_character_knows_the_part_that_brought_it() -> None:
    made = cells([Piece(0.1, "ab", [1]), Piece(0.2, "c", [2])], ["text", "text", "faint"])
    assert made == [Cell("a", "text", 0), Cell("b", "text", 0), Cell("c", "faint", 1)]


def test_short_lines_stay() -> None:
    assert _rows("one\n\ntwo\n", 10) == ["one", "", "two", ""]


def test_long_lines_break_at_a_blank_and_hang() -> None:
    assert _rows("  call(first, second, third)", 16) == ["  call(first,", "    second,", "    third)"]


def test_a_word_that_is_too_long_breaks_anywhere() -> None:
    assert _rows("abcdefghijklmnopqrstuvwxyz", 12) == ["abcdefghijkl", "  mnopqrstuv", "  wxyz"]


def test_no_row_is_longer_than_the_pane_and_no_letter_is_lost() -> None:
    text = "\t\t" + "some words and averyveryverylongword, " * 20 + "\n" + " " * 40 + "x" * 50
    rows = _rows(text, 20)
    assert max(map(len, rows)) <= 20
    assert "".join("".join(rows).split()) == "".join(text.split())


def test_tabs_end_at_every_fourth_column() -> None:
    assert _rows("\ta\tb", 20) == ["    a   b"]


def test_wide_characters_take_two_cells_that_stay_together() -> None:
    made = cells([Piece(0.0, "漢字漢", [1])], ["text"] * 3)
    assert [len(row) for row in lines(made, 5)] == [4, 2]


def test_what_cannot_be_shown_is_said_to_be_there() -> None:
    assert _rows("a\x00b\r", 10) == ["a\N{REPLACEMENT CHARACTER}b"]
