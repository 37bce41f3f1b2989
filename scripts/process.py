"""Run a program of the toolchain: its lines as they come, its last words when it fails, and none of our secrets."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from scripts import core, locks
from scripts.core import BuildError

SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|CREDENTIAL|API_?KEY", re.IGNORECASE)
"""Environment variables that no child process needs to see."""

TAIL = 30
"""Last lines of output that are kept for an error."""

ROOM = 1 << 20
"""A disk with fewer free bytes counts as full after a program failed that wrote to it."""


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of this process without its secrets, plus ``extra``."""
    return {key: value for key, value in os.environ.items() if not SECRET.search(key)} | dict(extra or {})


def stream(
    command: Sequence[str | Path],
    on_line: Callable[[str], None],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    log: IO[str] | None = None,
) -> tuple[int, list[str]]:
    r"""Run a command, hand over each line of its output, return its exit code and its last lines.

    Standard error is read with standard output; a bar that redraws itself with ``\r`` counts as lines. All goes to
    ``log`` as well, where one is given. The command gets no standard input, and never outlives this call.
    """
    tail: deque[str] = deque(maxlen=TAIL)
    with subprocess.Popen(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=dict(env) if env is not None else environment(),
        cwd=cwd,
        pass_fds=locks.held(),
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:  # universal newlines: "\r" ends a line too
                if log is not None:
                    log.write(line)
                    log.flush()
                if line := line.rstrip():
                    tail.append(line)
                    on_line(line)
        except BaseException:
            process.kill()
            raise
    return process.returncode, list(tail)


def out_of_space(tail: Sequence[str], wrote: Path) -> bool:
    """Whether a program failed for want of space: it says so, or the disk it wrote to is full.

    C++ streams and numpy do not say so.
    """
    return any(os.strerror(code) in line for line in tail for code in core.FULL) or (
        shutil.disk_usage(wrote.parent).free < ROOM
    )


def failed(program: str, code: int, tail: Sequence[str], where: str | Path, do: str, *, wrote: Path) -> BuildError:
    """The error of a program that ended badly: its last telling line; the rest goes to the log.

    ``wrote`` is the file that it was to write, still as it left it.
    """
    for line in tail:
        core.say(f"  {program}: {line}")
    if out_of_space(tail, wrote):
        return core.disk_full(wrote.parent)
    telling = [line for line in tail if re.search(r"error|exception|fail|abort|assert", line, re.IGNORECASE)]
    last = (telling or list(tail) or ["no output"])[-1]
    return BuildError(f"{program} ended with exit code {code}: {last[:300]}", where, do)
