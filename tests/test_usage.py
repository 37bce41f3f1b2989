"""What a step cost: written where a folder is named, children included, and nothing else."""

import argparse
import json
import sys
from pathlib import Path

import pytest

from scripts import core, usage
from scripts.core import BuildError

CLAIM = """
import sys
block = b"x" * int(sys.argv[2])
print(len(open(sys.argv[1], "rb").read()))
sys.exit(3)
"""


def _run(log: Path, step: object = lambda _: None) -> int:
    assert callable(step)
    return core.run(core.parser("A step."), step, ["--log", str(log)])


def test_a_step_leaves_what_it_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(usage.VARIABLE, str(tmp_path / "usage"))
    assert _run(tmp_path / "logs" / "pair" / "verify-Q8_0.log") == 0
    (found,) = usage.read(tmp_path / "usage")
    assert found.name == "verify-Q8_0"
    assert (tmp_path / "usage" / "pair" / "verify-Q8_0.json").is_file()
    assert found.wall > 0.1
    assert found.cpu > 0.1
    assert found.peak > 20 << 20


def test_nothing_is_written_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(usage.VARIABLE, raising=False)
    assert _run(tmp_path / "logs" / "pair" / "step.log") == 0
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["step.log"]


def test_a_step_that_failed_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: argparse.Namespace) -> None:
        raise BuildError("what", "where", "do")

    monkeypatch.setenv(usage.VARIABLE, str(tmp_path / "usage"))
    assert _run(tmp_path / "step.log", fails) == 1
    assert not (tmp_path / "usage").exists()


def test_steps_come_in_the_order_in_which_they_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(usage.VARIABLE, str(tmp_path / "usage"))
    for name in ("zulu", "alpha", "mike"):
        usage.record(tmp_path / "pair" / f"{name}.log")
    assert [step.name for step in usage.read(tmp_path / "usage")] == ["zulu", "alpha", "mike"]


def test_a_program_is_timed_with_its_memory_and_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(3 << 20))
    claimed = usage.of_this_process("this").peak + (64 << 20)  # a child's peak counts from its fork on
    with (tmp_path / "log").open("w") as log:
        code, found = usage.timed("claim", [sys.executable, "-c", CLAIM, tmp_path / "data", str(claimed)], {}, log)
        _, small = usage.timed("small", [sys.executable, "-c", ""], {}, log)
    assert code == 3
    assert (tmp_path / "log").read_text() == f"{3 << 20}\n"
    assert found.peak > claimed > small.peak
    assert 0 < found.cpu < found.wall + 1
    if usage.io_counts() is not None:
        assert found.read is not None
        assert small.read is not None
        assert found.read > 3 << 20 > small.read


def test_where_the_system_counts_no_bytes_none_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "COUNTED", tmp_path / "no such file")
    monkeypatch.setenv(usage.VARIABLE, str(tmp_path / "usage"))
    usage.record(tmp_path / "pair" / "step.log")
    written = json.loads((tmp_path / "usage" / "pair" / "step.json").read_text())
    assert (written["read"], written["from_disk"], written["written"]) == (None, None, None)
    with (tmp_path / "log").open("w") as log:
        assert usage.timed("true", [sys.executable, "-c", ""], {}, log)[1].read is None
