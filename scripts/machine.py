"""What a machine is, as far as a reader of measured figures has to know: never its name, nor its user's."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import psutil

from scripts import process

CPUINFO = Path("/proc/cpuinfo")

GPUS = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
AMD_GPUS = ("rocm-smi", "--showproductname", "--csv")
APPLE_CPU = ("sysctl", "-n", "machdep.cpu.brand_string")


def describe() -> dict[str, Any]:
    """CPU, cores, memory in bytes, GPUs and operating system of this machine."""
    return {
        "cpu": cpu(),
        "cores": psutil.cpu_count(logical=False),
        "threads": psutil.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "gpus": gpus(),
        "os": f"{platform.system()} {platform.release().partition('-')[0]} {platform.machine()}",
    }


def cpu() -> str:
    """Name of the processor, as the system says it."""
    if CPUINFO.exists():
        for line in CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return " ".join(_lines(*APPLE_CPU)) or platform.processor() or platform.machine()


def gpus() -> list[str]:
    """Names of the GPUs that the vendors' tools list; on Apple silicon the GPU is part of the processor."""
    amd = [line.split(",")[1] for line in _lines(*AMD_GPUS)[1:] if "," in line]
    return _lines(*GPUS) + amd


def _lines(*command: str) -> list[str]:
    """Lines that a program prints; none where it is not installed or fails."""
    if not shutil.which(command[0]):
        return []
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=30, env=process.environment()
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []
