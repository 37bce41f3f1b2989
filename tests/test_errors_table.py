"""The table of errors fails when it should: a row that differs, and a row that nothing shows any more."""

import contextlib
from pathlib import Path

import pytest

from scripts.config import ROOT
from tests import errors_table
from tests.errors_table import Row

ROWS = [
    Row("A: one", "what \\| is `it` (…/f): do", "test_lock.py::test_unknown_revision"),
    Row("B: x", "y (z): w", "b"),
]


def test_rows_are_read_as_they_are_written() -> None:
    assert list(errors_table.read(errors_table.render(reversed(ROWS))).values()) == ROWS


def test_what_differs_from_run_to_run_is_left_out(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    text = f"{tmp_path}/a/b ({ROOT}/docs): http://127.0.0.1:4711/o/n at {'ab' * 20}, {'ab' * 32}, transformers 5.24.0"
    assert errors_table.plain(text, tmp_path_factory.getbasetemp()) == (
        "…/a/b (docs): $HF_ENDPOINT/o/n at <commit>, <sha256>, transformers <version>"
    )


def test_every_row_names_a_test() -> None:
    rows = errors_table.read(errors_table.DOCS.read_text(encoding="utf-8")).values()
    assert [row.test for row in rows if not errors_table.exists(row.test)] == []
    assert len(rows) > 100


SHOWN = Row("A: one", "not there (…/f): do", "test_errors_table.py::test_rows_are_read_as_they_are_written")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (SHOWN._replace(message="elsewhere (…/f): do"), "docs/errors.md has no such row"),
        (SHOWN._replace(title="A: two"), "docs/errors.md has no such row"),
        (SHOWN._replace(message="something is wrong"), "no line of what, where and what to do"),
        (SHOWN._replace(message="two\nlines (f): do"), "no line of what, where and what to do"),
    ],
)
def test_a_row_that_is_not_in_the_file_fails(row: Row, message: str) -> None:
    for given, fails in ((SHOWN, False), (row, True)):
        table = errors_table.ErrorsTable(write=False, partial=False)
        table.old = {SHOWN.title: SHOWN}
        with pytest.raises(AssertionError, match=message) if fails else contextlib.nullcontext():
            table.record(given)


def test_rows_stay_only_while_their_test_is_there_and_did_not_run() -> None:
    table = errors_table.ErrorsTable(write=False, partial=False)
    gone = SHOWN._replace(title="A: gone", test="test_errors_table.py::test_gone")
    table.old = {row.title: row for row in (SHOWN, gone)}
    assert table.kept() == {SHOWN.title: SHOWN}
    table.ran.add(SHOWN.test)
    assert table.kept() == {}
