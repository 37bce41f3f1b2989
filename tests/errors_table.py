"""docs/errors.md: what is said about every bad input. The tests write it (``--write-errors``) and compare with it.

A test hands each message to the ``said`` fixture with a title, ``"Topic: what is wrong"``. Rows of tests that did not
run stay as they are in the file, so that any part of the tests can be run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from scripts import core
from scripts.config import ROOT
from scripts.core import BuildError

DOCS = ROOT / "docs" / "errors.md"
HEAD = """# Errors

Every bad input that the tests know, and the one line that is said about it. The step ends with exit code 1 and leaves
nothing half-written. `make docs` writes this file from the tests, and the tests compare with it. `…` is a folder of the
test, `$HF_ENDPOINT` the Hub.
"""

Said = Callable[[str, BuildError | str], None]
"""Record a title and the error (or its line of output, with or without ``error:``)."""


class Row(NamedTuple):
    """One bad input, as the cells of the table have it."""

    title: str
    message: str
    test: str


def plain(text: str, basetemp: Path) -> str:
    """A message without what differs from run to run and machine to machine."""
    text = re.sub(rf"{re.escape(str(basetemp))}/[^/\s):',]+", "…", text).replace(f"{ROOT}/", "")
    text = re.sub(r"http://(127\.0\.0\.1|localhost):\d+", "$HF_ENDPOINT", text)
    text = re.sub(r"\b[0-9a-f]{64}\b", "<sha256>", re.sub(r"\b[0-9a-f]{40}\b|\b[0-9a-f]{12}\b", "<commit>", text))
    return re.sub(r"\btransformers \d+\.\d+\.\d+\b", "transformers <version>", text)


def cell(text: str) -> str:
    """Text as it stands in a cell of a Markdown table."""
    return text.replace("|", "\\|")


def read(text: str) -> dict[str, Row]:
    """The rows of the file by title, topic included."""
    rows: dict[str, Row] = {}
    topic = ""
    for line in text.splitlines():
        if line.startswith("## "):
            topic = line.removeprefix("## ")
        elif found := re.fullmatch(r"\| (.+) \| `` (.+) `` \| `(.+)` \|", line):
            rows[f"{topic}: {found[1]}"] = Row(f"{topic}: {found[1]}", found[2], found[3])
    return rows


def render(rows: Iterable[Row]) -> str:
    """The file: a table a topic, in alphabetical order."""
    topics: dict[str, list[str]] = {}
    for row in sorted(rows):
        topic, _, title = row.title.partition(": ")
        topics.setdefault(topic, []).append(f"| {title} | `` {row.message} `` | `{row.test}` |\n")
    table = "\n## {}\n\n| what is wrong | message | shown by |\n| --- | --- | --- |\n{}"
    return HEAD + "".join(table.format(topic, "".join(lines)) for topic, lines in topics.items())


class ErrorsTable:
    """The plugin: keeps what this run recorded, compares it with the file or writes it."""

    def __init__(self, write: bool, partial: bool) -> None:
        """``partial``: single cases of a test may have been chosen, so that missing ones say nothing."""
        self.write, self.partial = write, partial
        self.old = read(DOCS.read_text(encoding="utf-8")) if DOCS.exists() else {}
        self.new: dict[str, Row] = {}
        self.ran: set[str] = set()
        self.stale: list[str] = []

    @pytest.fixture
    def said(self, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Said:
        """Record what is said about a bad input; ``{id}`` in the title is the id of the test's case."""
        function = getattr(request.node, "originalname", request.node.name)
        test = f"{request.path.relative_to(ROOT / 'tests').as_posix()}::{function}"
        case = request.node.callspec.id if hasattr(request.node, "callspec") else ""
        self.ran.add(test)

        def record(title: str, error: BuildError | str) -> None:
            message = plain(str(error).removeprefix("error: "), tmp_path_factory.getbasetemp())
            self.record(Row(cell(title.replace("{id}", case)), cell(message), test))

        return record

    def record(self, row: Row) -> None:
        """Keep a row; fail where it is no line of what, where and what to do, or not the one in the file."""
        assert re.fullmatch(r"\S.* \(.+\): .+", row.message), f"no line of what, where and what to do: {row.message!r}"
        assert self.new.setdefault(row.title, row) == row, f"two messages for {row.title!r}"
        assert self.write or self.old.get(row.title) == row, f"docs/errors.md has no such row, run `make docs`: {row}"

    def kept(self) -> dict[str, Row]:
        """The file's rows of tests that did not run and are still there."""
        return {title: row for title, row in self.old.items() if row.test not in self.ran and exists(row.test)}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Writing the table runs only the tests that have a row in it."""
        if self.write:
            chosen = [item for item in items if "said" in getattr(item, "fixturenames", ())]
            config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
            items[:] = chosen

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the table, or find rows that no test shows any more, which only a run without failures can tell."""
        if self.write:
            kept = self.old if session.testsfailed else self.kept()
            with core.atomic(DOCS) as temporary:
                temporary.write_text(render((kept | self.new).values()), encoding="utf-8")
        elif not self.partial and not session.testsfailed:
            self.stale = sorted(self.old.keys() - self.kept().keys() - self.new.keys())
            if self.stale:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say which rows of the file are stale."""
        for title in self.stale:
            terminalreporter.write_line(f"docs/errors.md: no test shows {title!r} any more: run `make docs`", red=True)


def exists(test: str) -> bool:
    """Whether ``file.py::function`` is still there."""
    file, _, function = test.partition("::")
    path = ROOT / "tests" / file
    return path.exists() and f"def {function}(" in path.read_text(encoding="utf-8")


def plugin(config: pytest.Config) -> ErrorsTable:
    """The plugin for one run."""
    chosen = config.option.keyword or getattr(config.option, "lf", False) or any("::" in arg for arg in config.args)
    return ErrorsTable(config.getoption("--write-errors"), bool(chosen))
