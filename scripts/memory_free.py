"""How much memory there is for a model: of the GPUs that llama-server can use, or of the machine.

A llama-server says itself which devices it was built for; without one the drivers' own tools are asked.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from scripts import core, process

MIB = 1 << 20
WAIT = 60.0
"""Seconds that a driver's tool may take to answer."""


@dataclass(frozen=True)
class Pool:
    """Memory that a model can lie in: of all GPUs together, or of the machine. Bytes."""

    name: str
    free: int
    total: int
    gpu: bool
    said_by: str
    """Who gave the figures."""
    shared: bool = False
    """Whether the GPU and the programs of the machine take from the same memory."""


def machine() -> Pool:
    """The machine's memory; what programs could get without swapping counts as free."""
    memory = psutil.virtual_memory()
    return Pool("memory of this machine", int(memory.available), int(memory.total), False, "psutil")


def find(server: Path | None = None) -> Pool:
    """Where the models will lie.

    Args:
        server: the llama-server that will run; only the devices that it lists count. Without it nvidia-smi, rocm-smi
            and the kind of machine are asked in turn.
    """
    if server is not None:
        return _listed(_answer([str(server), "--list-devices"])) or machine()
    return nvidia() or amd() or metal() or machine()


def nvidia() -> Pool | None:
    """All GPUs that nvidia-smi shows; None where it is not there or shows none."""
    query = ["nvidia-smi", "--query-gpu=name,memory.free,memory.total", "--format=csv,noheader,nounits"]
    rows = [[part.strip() for part in row] for row in csv.reader(io.StringIO(_answer(query)))]
    # A GPU may answer [N/A]: one that shares the machine's memory has none of its own to count.
    found = [(row[0], int(row[1]) * MIB, int(row[2]) * MIB) for row in rows if len(row) == 3 and _numbers(row[1:])]
    return _pool(found, "nvidia-smi")


def amd() -> Pool | None:
    """All GPUs that rocm-smi shows; None where it is not there or shows none."""
    text = _answer(["rocm-smi", "--showmeminfo", "vram", "--json"])
    try:
        cards = json.loads(text[text.index("{") :])  # warnings may come before it
        found = [
            (name, int(card["VRAM Total Memory (B)"]) - int(card["VRAM Total Used Memory (B)"]), card)
            for name, card in cards.items()
            if isinstance(card, dict) and "VRAM Total Memory (B)" in card
        ]
        return _pool([(name, free, int(card["VRAM Total Memory (B)"])) for name, free, card in found], "rocm-smi")
    except (ValueError, KeyError, AttributeError):
        return None


def metal() -> Pool | None:
    """The unified memory of an Apple machine; None elsewhere."""
    if sys.platform != "darwin":
        return None
    memory = machine()
    return Pool("unified memory", memory.free, memory.total, True, memory.said_by, shared=True)


def _listed(text: str) -> Pool | None:
    """The devices that llama-server lists; their memory is the machine's own on an Apple machine."""
    rows = re.findall(r"^\s*\w+: (.+) \((\d+) MiB, (\d+) MiB free\)$", text, flags=re.MULTILINE)
    pool = _pool([(name, int(free) * MIB, int(total) * MIB) for name, total, free in rows], "llama-server")
    if pool is None or (apple := metal()) is None:
        return pool
    return Pool(pool.name, min(pool.free, apple.free), pool.total, True, pool.said_by, shared=True)


def _pool(found: list[tuple[str, int, int]], said_by: str) -> Pool | None:
    """One pool of all GPUs: llama-server spreads the layers over them."""
    if not found:
        return None
    name = " + ".join(row[0] for row in found)
    return Pool(name, sum(row[1] for row in found), sum(row[2] for row in found), True, said_by)


def _numbers(values: list[str]) -> bool:
    return all(value.isdecimal() for value in values)


def _answer(command: list[str], which: Callable[[str], str | None] = shutil.which) -> str:
    """What a program says; nothing where it is not there or fails, as a tool does whose driver is not loaded."""
    if which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=WAIT, env=process.environment()
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        core.say(f"{command[0]} does not answer: {error}")
        return ""
    return done.stdout if done.returncode == 0 else ""
