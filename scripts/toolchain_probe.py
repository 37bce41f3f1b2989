"""What a llama.cpp program says it can do: asked from its ``--help``, before minutes of work depend on it."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path

from scripts.core import BuildError, Check
from scripts.toolchain_spec import MINIMUM

SPEC_TYPE = "draft-dflash"
"""The value of ``--spec-type`` that runs a DFlash draft."""
NEEDED_QUANTS = ("BF16", "Q8_0", "Q4_K_M")


def probe(binary: Path, version: str | None = None) -> list[Check]:
    """Check that ``llama-server`` drafts with DFlash, or that ``llama-quantize`` knows the usual types.

    ``version`` is the version or commit it was built from, for the message; without it the program is asked.
    Returns the checks, all of which held.

    Raises:
        BuildError: the program does not run, is too old, or has another name.
    """
    if binary.name == "llama-server":
        text = _help(binary)
        wanted = {SPEC_TYPE: _spec_types(text), "--spec-draft-n-max": _option(text, "--spec-draft-n-max")}
    elif binary.name == "llama-quantize":
        found = quant_types(binary)
        wanted = dict.fromkeys(NEEDED_QUANTS, found)
    else:
        raise BuildError(f"not a known program: {binary.name}", binary, "probe llama-quantize or llama-server")
    lacking = [name for name, found in wanted.items() if name not in found]
    if lacking:
        raise _too_old(binary, lacking, version)
    return [Check(f"{binary.name} {name}", True, "listed by --help") for name in wanted]


def check_flags(binary: Path, flags: Iterable[str], version: str | None = None) -> None:
    """Check that ``llama-server`` drafts with DFlash and knows each of the flags, before it is started with them.

    ``version`` is as in :func:`probe`.

    Raises:
        BuildError: the program does not run, or does not list one of them: it is too old.
    """
    text = _help(binary)
    lacking = [] if SPEC_TYPE in _spec_types(text) else [f"--spec-type {SPEC_TYPE}"]
    lacking += [flag for flag in dict.fromkeys(flags) if not _option(text, flag)]
    if lacking:
        raise _too_old(binary, lacking, version)


def _too_old(binary: Path, lacking: list[str], version: str | None) -> BuildError:
    name = version or reported_version(binary) or "a version it does not tell"
    what = f"{binary.name} of {name} does not know {', '.join(lacking)}"
    return BuildError(what, binary, f"use {MINIMUM} or newer")


def quant_types(binary: Path) -> list[str]:
    """The file types ``llama-quantize`` can write, as it spells them (``Q4_K_M``), in its order.

    Raises:
        BuildError: the program does not run or lists none.
    """
    found = re.findall(r"^\s*\d+\s+or\s+(\w+)", _help(binary), flags=re.MULTILINE)
    if not found:
        raise BuildError("lists no quantization types", binary, f"use {MINIMUM} or newer")
    return found


def reported_version(binary: Path) -> str | None:
    """What ``--version`` says after ``version:``, e.g. ``0 (0c1e57098)``; None when it says nothing of the kind."""
    found = re.search(r"^version:\s*(.+)$", _ask(binary, "--version"), flags=re.MULTILINE)
    return found[1].strip() if found else None


def _spec_types(text: str) -> list[str]:
    """The values that ``--help`` lists for ``--spec-type``."""
    found = re.search(rf"{_LINE}--spec-type\s+(\S+)", text, flags=re.MULTILINE)
    return re.split(r"[,|]", found[1].strip("[]{}")) if found else []


def _option(text: str, name: str) -> list[str]:
    """The option's name when ``--help`` has a line for it; being named in another's description is not enough."""
    return [name] if re.search(rf"{_LINE}{re.escape(name)}(?![\w-])", text, flags=re.MULTILINE) else []


_LINE = r"^\s*(?:-\S+,\s+)*"  # an option's line may begin with its other names


def _help(binary: Path) -> str:
    text = _ask(binary, "--help")
    if not text.strip():
        raise BuildError("--help says nothing", binary, "build it again")
    return text


def _ask(binary: Path, question: str) -> str:
    """Output of a program that is asked one question; its exit code says little (--help of llama-quantize is 1)."""
    try:
        answer = subprocess.run(
            [str(binary), question], capture_output=True, text=True, errors="replace", timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"does not run: {error}", binary, "build it for this machine") from error
    if answer.returncode == -signal.SIGILL:
        raise BuildError("this CPU lacks instructions it was built for", binary, "build it on this machine")
    if answer.returncode < 0 or answer.returncode in (126, 127):
        reason = " ".join(answer.stderr.split()) or f"signal {-answer.returncode}"
        raise BuildError(f"does not run: {reason}", binary, "build it on this machine")
    return answer.stdout + answer.stderr
