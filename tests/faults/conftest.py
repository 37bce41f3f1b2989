"""Disks that are too small or cannot be written, and copies of what was built."""

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass
class Disk:
    """A file system of its own, in memory."""

    path: Path

    def mount(self, *options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(self.path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"file systems cannot be mounted here: {done.stderr.strip()}")

    def remount(self, *options: str) -> None:
        subprocess.run(["mount", "-o", ",".join(["remount", *options]), str(self.path)], check=True)

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)


@pytest.fixture
def disk() -> Iterator[Callable[[Path, str], Disk]]:
    """Mounts a disk of a size ("4m") on a folder."""
    mounted: list[Disk] = []

    def mount(path: Path, size: str) -> Disk:
        path.mkdir(parents=True, exist_ok=True)
        made = Disk(path)
        made.mount(f"size={size}")
        mounted.append(made)
        return made

    yield mount
    for made in mounted:
        made.unmount()
