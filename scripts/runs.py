"""One run at a time in a folder, and a clean start after one that was killed.

Snakemake's own lock outlives a killed Snakemake, and the next run asks a person to remove it. This one is the kernel's:
it is free as soon as the process is gone. Steps hold a second one, because they outlive a Snakemake that was killed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from scripts import core, locks
from scripts.core import BuildError

RUN, STEPS = Path(".snakemake") / "run.lock", Path(".snakemake") / "steps.lock"


def begin(folders: Iterable[Path]) -> None:
    """Take the working directory for the run of this process, until it ends.

    Waits for steps of a killed run that are still at work, then removes what was half-written below ``folders``.

    Raises:
        BuildError: another run works here.
    """
    descriptor = locks.take(RUN)
    if descriptor is None:
        pid = RUN.read_text(encoding="utf-8").strip()
        raise BuildError(
            f"another run, pid {pid or 'not known yet'}, works in this folder", Path.cwd(), "wait for it or stop it"
        )
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())

    def waiting() -> None:
        core.say("waiting: a step of a run that was killed is still at work in this folder")

    with locks.hold(STEPS, waiting):
        for folder in folders:
            for part in sorted(folder.rglob(f".*{core.PART}")):
                core.say(f"removed {part}: a step that was killed left it")
                part.unlink()
    os.environ[core.STEPS] = str(STEPS.resolve())
