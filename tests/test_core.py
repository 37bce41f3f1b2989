"""The shared ground of every step: errors in one line, atomic files, reports."""

import argparse
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import core
from scripts.core import BuildError, Report


def _run(step: Callable[[argparse.Namespace], None], *argv: str) -> int:
    return core.run(core.parser("A step."), step, argv)


def test_an_error_is_one_line_and_the_exit_code_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    def step(_: argparse.Namespace) -> None:
        raise BuildError("two\nlines", "a\nfile", "do\nthis")

    assert _run(step) == 1
    assert capsys.readouterr().err == "error: two lines (a file): do this\n"


def test_a_traceback_is_shown_with_debug_only(capsys: pytest.CaptureFixture[str]) -> None:
    def step(_: argparse.Namespace) -> None:
        raise BuildError("what", "where", "do")

    _run(step, "--debug")
    assert "Traceback" in capsys.readouterr().err


def test_an_unexpected_error_is_one_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    def step(_: argparse.Namespace) -> None:
        raise ValueError("odd\nthing")

    assert _run(step) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "ValueError: odd thing" in said


@pytest.mark.parametrize(
    ("number", "message"),
    [(errno.ENOSPC, "the disk is full"), (errno.EROFS, "cannot write"), (errno.EACCES, "cannot write")],
)
def test_disk_errors_say_what_to_do(number: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    def step(_: argparse.Namespace) -> None:
        raise OSError(number, os.strerror(number), "some/file")

    assert _run(step) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"error: {message}")
    assert "some/file" in said


def test_interrupted_is_exit_code_130() -> None:
    def step(_: argparse.Namespace) -> None:
        raise KeyboardInterrupt

    assert _run(step) == 130


def test_messages_go_to_the_log_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "deep" / "step.log"
    assert _run(lambda _: core.say("hello"), "--log", str(log)) == 0
    assert log.read_text() == "hello\n" == capsys.readouterr().err
    core.say("after the step")
    assert log.read_text() == "hello\n"


def test_atomic_leaves_nothing_after_a_failure(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    with pytest.raises(RuntimeError), core.atomic(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_atomic_files_have_ordinary_permissions(tmp_path: Path) -> None:
    target = tmp_path / "file"
    with core.atomic(target) as temporary:
        temporary.write_text("new")
    plain = tmp_path / "plain"
    plain.write_text("x")
    assert target.stat().st_mode == plain.stat().st_mode


@pytest.mark.parametrize(("below", "links"), [(4, 1), (3, 2)])
def test_link_or_copy_copies_what_is_small(below: int, links: int, tmp_path: Path) -> None:
    (tmp_path / "source").write_text("one")
    core.link_or_copy(tmp_path / "source", tmp_path / "out", copied_below=below)
    assert (tmp_path / "out").read_text() == "one"
    assert (tmp_path / "out").stat().st_nlink == links


def test_a_symlink_is_relative_and_its_touch_is_not_its_sources(tmp_path: Path) -> None:
    source, link = tmp_path / "gguf" / "file", tmp_path / "release" / "file"
    source.parent.mkdir()
    source.write_text("one")
    os.utime(source, (1, 1))
    core.symlink(source, link)
    os.utime(link, follow_symlinks=False)
    assert source.stat().st_mtime == 1
    assert link.readlink() == Path("../gguf/file")
    assert link.read_text() == "one"


def test_link_or_copy_links_and_replaces(tmp_path: Path) -> None:
    source, link = tmp_path / "source", tmp_path / "out" / "link"
    source.write_text("one")
    core.link_or_copy(source, link)
    assert link.stat().st_ino == source.stat().st_ino
    other = tmp_path / "other"
    other.write_text("two")
    core.link_or_copy(other, link)
    assert link.read_text() == "two"
    assert source.read_text() == "one"


def test_link_or_copy_follows_the_cache_symlink(tmp_path: Path) -> None:
    blob, snapshot = tmp_path / "blob", tmp_path / "snapshot"
    blob.write_text("bytes")
    snapshot.symlink_to(blob)
    core.link_or_copy(snapshot, tmp_path / "out")
    assert not (tmp_path / "out").is_symlink()
    assert (tmp_path / "out").read_text() == "bytes"


def test_a_report_is_ok_only_when_every_check_is(tmp_path: Path) -> None:
    report = Report(figures={"bytes": 3})
    report.check("first", True, "fine")
    report.write(tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text()) == {
        "ok": True,
        "checks": [{"name": "first", "ok": True, "detail": "fine"}],
        "bytes": 3,
    }
    report.check("second", False, "bad")
    assert not report.ok
    with pytest.raises(BuildError, match=r"^third: worse \(file\): mend it$"):
        report.require("third", False, "worse", "file", "mend it")


def test_git_blob_id_is_what_git_says(tmp_path: Path) -> None:
    (tmp_path / "hello").write_bytes(b"hello\n")
    assert core.git_blob_id(tmp_path / "hello") == "ce013625030ba8dba906f756967f9e9ca394464a"


@pytest.mark.parametrize("content", [b"not json", b"\xff\xfe", b"[" * 200_000, b"1" * 5000])
def test_broken_json_is_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(BuildError, match="not valid JSON"):
        core.read_json(tmp_path / "x.json")


@pytest.mark.parametrize("text", ["{", "!!int x", "2026-99-99", "!!timestamp x", "{[1]: 2}", "\x00", "[" * 999])
def test_broken_yaml_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        core.parse_yaml(text)


def test_an_error_shows_no_control_characters_and_is_no_page_long() -> None:
    error = BuildError("a\x1b[2Jb\ud800c\u200d हि" + "x" * 5000, Path("d\ne"), "f")
    assert str(error).startswith("a\\x1b[2Jb\\ud800c\\u200d हिxxx")
    assert str(error).endswith("xxx... (d e): f")
    assert len(str(error)) < 2100


def test_missing_json_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="file is missing"):
        core.read_json(tmp_path / "x.json")


def test_errors_of_a_run_come_from_its_own_logs(tmp_path: Path) -> None:
    old, new = tmp_path / "old.log", tmp_path / "a" / "new.log"
    new.parent.mkdir()
    old.write_text("error: yesterday\n")
    os.utime(old, (1, 1))
    new.write_text("some progress\nerror: now (here): do this\n")
    assert core.errors_in(tmp_path, 100.0) == ["error: now (here): do this"]


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (2_594_864_384, "2.6 GB")])
def test_sizes_read_as_the_hub_shows_them(size: int, text: str) -> None:
    assert core.human(size) == text
