"""What a step cost: wall time, CPU time, peak memory, bytes read and written, as the kernel counted them.

Snakemake's benchmark files are made of samples, every half second for a quarter of a minute and every 30 seconds after
that, so the end and the peak of a long step lie between them. Where ``DFLASH_USAGE`` names a folder, every step leaves
the kernel's own counts there when it ends, its child processes included; else nothing is written.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from scripts import core

VARIABLE = "DFLASH_USAGE"
"""Environment variable that names the folder."""

MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes of the unit in which the system counts peak memory."""

COUNTED, STATUS, STAT = (Path("/proc/self") / name for name in ("io", "status", "stat"))
STARTED = 19
"""Place of the start time among the fields after the program's name in :data:`STAT`, from 0."""
COUNTS = ("rchar", "read_bytes", "write_bytes")


@dataclass(frozen=True)
class Usage:
    """What one step or program cost, with its children.

    ``wall`` and ``cpu`` are seconds. ``peak`` is the largest resident size, in bytes, of the process plus that of its
    largest child: what was in memory at once was this or less. Mapped pages of files count as resident, although the
    system can take them back at any time. ``read`` counts bytes of read calls (also of files in the page cache and
    of pipes, but not what is read through mappings), ``from_disk`` bytes that came from storage, ``written`` bytes that
    go to storage; None where the system does not count them.
    """

    name: str
    wall: float
    cpu: float
    peak: int
    read: int | None
    from_disk: int | None
    written: int | None


def io_counts() -> tuple[int, ...] | None:
    """:data:`COUNTS` of this process and its ended children; None where the system does not tell."""
    try:
        lines = dict(line.split(": ") for line in COUNTED.read_text(encoding="ascii").splitlines())
    except OSError:
        return None
    return tuple(int(lines[name]) for name in COUNTS)


def _cpu(spent: resource.struct_rusage) -> float:
    return spent.ru_utime + spent.ru_stime


def _own_peak() -> int:
    """The largest resident size of this program; what it was forked from counts elsewhere, but not on Linux."""
    try:
        found = re.search(r"^VmHWM:\s*(\d+) kB$", STATUS.read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        found = None
    return int(found[1]) << 10 if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS_UNIT


def _age() -> float:
    """Seconds since this process was started."""
    try:
        # psutil counts from the time of boot in whole seconds, and may be wrong by one: too much for a short step.
        started = int(STAT.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[STARTED])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")
    except OSError:
        import psutil  # here, because only a profile needs it

        return float(time.time() - psutil.Process().create_time())


def of_this_process(name: str) -> Usage:
    """What this process has cost since it was started, the start of the interpreter included."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return Usage(
        name,
        _age(),
        _cpu(own) + _cpu(children),
        _own_peak() + children.ru_maxrss * MAXRSS_UNIT,
        *(io_counts() or (None, None, None)),
    )


def record(log: Path | None) -> None:
    """Write what this process has cost to the folder that the environment names, if it names one.

    The step is named by its log file, the only name that no two steps of a build share: its last folder and its stem.
    """
    folder = os.environ.get(VARIABLE)
    if folder and log is not None:
        core.write_json(Path(folder) / log.parent.name / f"{log.stem}.json", asdict(of_this_process(log.stem)))


def read(folder: Path) -> list[Usage]:
    """The usages that steps wrote below ``folder``, in the order in which they ended."""
    paths = sorted(folder.rglob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    return [Usage(**core.read_json(path)) for path in paths]


def timed(name: str, command: Sequence[str | Path], env: Mapping[str, str], log: IO[str]) -> tuple[int, Usage]:
    """Run a program to its end; returns its exit code and what it cost. Its output goes to ``log``.

    No other child of this process may end meanwhile: the bytes are counted as the difference of this process's counts.
    Systems count a program's peak from its fork on, so it is never less than what this process holds.
    """
    before, started = io_counts(), time.monotonic()
    process = subprocess.Popen(
        [str(part) for part in command], env=dict(env), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
    )
    try:
        _, status, spent = os.wait4(process.pid, 0)
    except BaseException:
        process.kill()
        process.wait()
        raise
    process.returncode = os.waitstatus_to_exitcode(status)
    wall, after = time.monotonic() - started, io_counts()
    moved = (
        (None,) * len(COUNTS)
        if before is None or after is None
        else tuple(now - then for now, then in zip(after, before, strict=True))
    )
    return process.returncode, Usage(name, wall, _cpu(spent), spent.ru_maxrss * MAXRSS_UNIT, *moved)
