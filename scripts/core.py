"""What every step shares: one-line errors, reports, atomic files, hashes and progress.

A step reads files, writes files and one JSON report. A step that finds something wrong raises
:class:`BuildError`, which the command-line front prints as one line, and leaves nothing half-written.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import yaml

from scripts import locks

CHUNK = 4 << 20
"""Bytes read at a time when a file is hashed or copied."""

PART = ".part"
"""How the name of a file ends that is being written; it begins with a dot."""

STEPS = "DFLASH_STEPS"
"""Environment variable with the lock file that every step of a run holds (see :mod:`scripts.runs`)."""

FULL = (errno.ENOSPC, errno.EDQUOT)
"""What the system says when a disk, or a user's share of it, is full."""


LONGEST = 2000
"""Characters of one part of an error that are shown."""


class BuildError(Exception):
    """Something a person has to act on: what is wrong, where, and what to do about it."""

    def __init__(self, what: str, where: str | os.PathLike[str], do: str) -> None:
        """Join the three parts to one line: no line breaks, no control characters, no part longer than a page."""
        self.what, self.where, self.do = (tidy(str(part)) for part in (what, where, do))
        super().__init__(f"{self.what} ({self.where}): {self.do}")


def tidy(text: str) -> str:
    """Text as a terminal may show it: what comes from a file may hold anything, and be of any length."""
    text = " ".join(text[: 2 * LONGEST].split())
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


@dataclass(frozen=True)
class Check:
    """One thing that was checked: its name, whether it held, and the figures behind the answer."""

    name: str
    ok: bool
    detail: str


@dataclass
class Report:
    """The JSON a step leaves behind: ``{"ok", "checks", ...figures}`` (the contract of results/)."""

    checks: list[Check] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every check held."""
        return all(check.ok for check in self.checks)

    def check(self, name: str, ok: bool, detail: str) -> bool:
        """Record a check and return whether it held."""
        self.checks.append(Check(name, bool(ok), detail))
        return bool(ok)

    def require(self, name: str, ok: bool, detail: str, where: str | os.PathLike[str], do: str) -> None:
        """Record a check; raise :class:`BuildError` with its detail when it did not hold."""
        if not self.check(name, ok, detail):
            raise BuildError(f"{name}: {detail}", where, do)

    def settle(self, where: str | os.PathLike[str], do: str) -> None:
        """Say every check that did not hold, then raise :class:`BuildError` with the first and their number."""
        bad = [check for check in self.checks if not check.ok]
        for check in bad:
            say(f"failed: {check.name}: {check.detail}")
        if bad:
            more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
            raise BuildError(f"{bad[0].name}: {bad[0].detail}{more}", where, do)

    def as_dict(self) -> dict[str, Any]:
        """The report as it is written: ``ok`` and ``checks`` first, figures after them."""
        return {"ok": self.ok, "checks": [asdict(check) for check in self.checks], **self.figures}

    def write(self, path: Path) -> None:
        """Write the report atomically."""
        write_json(path, self.as_dict())


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        BuildError: the file is missing or not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BuildError("file is missing", path, "run the step that writes it again") from error
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, or a number of too many digits
        raise BuildError(f"not valid JSON: {error}", path, "delete the file and fetch it again") from error


def parse_yaml(text: str) -> Any:
    """Parse YAML.

    Raises:
        ValueError: it is no YAML, or a value in it is not what its form or tag promises.
    """
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON under a temporary name, then rename it."""
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it on success, remove it on any failure.

    The temporary file lies in the same folder, so the rename never crosses a file system.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=PART, dir=path.parent)
        os.close(handle)
        temporary = path.with_name(Path(name).name)
        try:
            yield temporary
            if not temporary.is_symlink() and temporary.stat().st_nlink == 1:  # a link shares the rights of its source
                umask = os.umask(0)
                os.umask(umask)
                temporary.chmod(0o666 & ~umask)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say of a full disk where it is full: the system's own error names no file, or the one that was read."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise disk_full(path) from error


def disk_full(path: str | os.PathLike[str]) -> BuildError:
    """The error of a disk that has no room for ``path``."""
    return BuildError("the disk is full", path, "free some space and run again")


def symlink(source: Path, destination: Path) -> None:
    """Make ``destination`` a relative link to ``source``, both in one results folder.

    Not a hard link: Snakemake touches its outputs, and ``source`` would then look newer than what was made from it.
    """
    with atomic(destination) as temporary:
        temporary.unlink()
        temporary.symlink_to(os.path.relpath(source.resolve(), destination.parent.resolve()))


def link_or_copy(source: Path, destination: Path, copied_below: int = 0) -> None:
    """Put ``source`` at ``destination`` without a second copy where the file system allows it.

    A hard link survives the removal of the cache it came from; across file systems the bytes are copied, and so are
    files below ``copied_below`` bytes.
    """
    destination.parent.mkdir(parents=True, exist_ok=True)
    with atomic(destination) as temporary:
        if source.stat().st_size < copied_below:
            shutil.copyfile(source, temporary)
            return
        temporary.unlink()
        try:
            os.link(source.resolve(), temporary)
        except OSError:
            shutil.copyfile(source, temporary)


def sha256_file(path: Path, label: str | None = None) -> str:
    """The sha256 of a file as 64 hex digits; shows progress in bytes when ``label`` is given."""
    digest = hashlib.sha256()
    with path.open("rb") as stream, Progress(label, path.stat().st_size) as progress:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
            progress.add(len(chunk))
    return digest.hexdigest()


def git_blob_id(path: Path) -> str:
    """The git object id of a file's content: sha1 over ``blob <size>``, a zero byte and the bytes."""
    digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def human(size: float) -> str:
    """A number of bytes as people read it (decimal units, as the Hub shows them)."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError("unreachable")


class Progress:
    """Progress of long work on standard error, one line every two seconds and one at the end.

    Lines, not a bar that redraws itself: the same output is read on a terminal, in a log and in CI.
    Nothing is shown without a label, or for work that ends within two seconds.
    """

    EVERY = 2.0

    def __init__(self, label: str | None, total: int, unit: str = "bytes") -> None:
        """``total`` counts ``unit``; bytes are shown in readable units."""
        self.label, self.total, self.unit = label, total, unit
        self.done, self.shown_at, self.shown = 0, time.monotonic(), False

    def __enter__(self) -> Progress:
        """Start counting."""
        return self

    def add(self, amount: int) -> None:
        """Count ``amount`` more units as done."""
        self.set(self.done + amount)

    def set(self, done: int) -> None:
        """Set the units done so far."""
        self.done = done
        if self.label and time.monotonic() - self.shown_at >= self.EVERY:
            self._show()

    def _show(self) -> None:
        percent = 100 * self.done // self.total if self.total else 100
        done, total = (human(n) if self.unit == "bytes" else str(n) for n in (self.done, self.total))
        suffix = "" if self.unit == "bytes" else f" {self.unit}"
        say(f"{self.label}: {percent:3d}% ({done} of {total}{suffix})")
        self.shown_at, self.shown = time.monotonic(), True

    def __exit__(self, exc_type: object, *_: object) -> None:
        """Show the last line of work that was shown at all and did not fail."""
        if self.shown and exc_type is None:
            self._show()


_log: IO[str] | None = None


def say(message: str) -> None:
    """Print one line of progress to standard error and to the step's log file, when it has one.

    A log that cannot be written, on a full disk, is given up: it must not hide what goes wrong.
    """
    print(message, file=sys.stderr, flush=True)
    if _log is not None:
        try:
            print(message, file=_log, flush=True)
        except OSError as error:
            _forget_log()
            print(f"the log ends here: {error.strerror}", file=sys.stderr, flush=True)


def parser(description: str | None) -> argparse.ArgumentParser:
    """An argument parser with what every step takes: ``--log FILE`` and ``--debug``."""
    result = argparse.ArgumentParser(description=(description or "").strip().partition("\n")[0])
    result.add_argument("--log", type=Path, help="also write messages to this file")
    result.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return result


def run(
    arguments: argparse.ArgumentParser,
    step: Callable[[argparse.Namespace], None],
    argv: Sequence[str] | None = None,
) -> int:
    """Run a step's command-line front and return its exit code; an error is one line.

    Exit codes: 0 done, 1 something is wrong and was said in one line, 130 interrupted.
    """
    options = arguments.parse_args(argv)
    with contextlib.ExitStack() as stack:
        try:
            if steps := os.environ.get(STEPS):
                stack.enter_context(locks.hold(Path(steps), lambda: None, shared=True))
            if options.log:
                stack.enter_context(_logging(options.log))
            step(options)
        except KeyboardInterrupt:
            say("interrupted")
            return 130
        except Exception as error:  # every failure ends as one line; the traceback is for --debug
            if options.debug:
                say(traceback.format_exc())
            say(f"error: {one_line(error)}")
            return 1
        from scripts import usage  # here, because it uses this module

        usage.record(options.log)
    return 0


def errors_in(logs: str | Path, since: float) -> list[str]:
    """The one-line errors in the step logs below ``logs`` that were written after ``since``, in seconds."""
    found: list[str] = []
    for log in sorted(Path(logs).rglob("*.log")):
        if log.stat().st_mtime >= since:
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            found += [line for line in lines if line.startswith("error: ") and line not in found]
    return found


def use_this_python() -> None:
    """Let `python -m scripts.X` in the rules' commands be this interpreter and this folder, wherever they run."""
    for variable, folder in (("PATH", Path(sys.executable).parent), ("PYTHONPATH", Path(__file__).parent.parent)):
        present = [part for part in os.environ.get(variable, "").split(os.pathsep) if part]
        if str(folder) not in present[:1]:
            os.environ[variable] = os.pathsep.join([str(folder), *present])


@contextlib.contextmanager
def _logging(path: Path) -> Iterator[None]:
    """Let messages go to a log file as well."""
    global _log
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _log = stream = path.open("w", encoding="utf-8", errors="backslashreplace")
    try:
        yield
    finally:
        _forget_log()
        with contextlib.suppress(OSError):  # said already, where the last line did not fit
            stream.close()


def _forget_log() -> None:
    global _log
    _log = None


def one_line(error: BaseException) -> str:
    """Say any exception in one line: what, where, what to do."""
    if isinstance(error, BuildError):
        return str(error)
    if isinstance(error, OSError) and error.errno in FULL:
        return str(disk_full(error.filename or Path.cwd()))
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return str(BuildError(f"cannot write: {error.strerror}", error.filename or Path.cwd(), "check its permissions"))
    text = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {text} (unexpected): run the same command with --debug and report it"
