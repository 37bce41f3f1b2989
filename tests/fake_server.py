"""Stand-ins for programs that are asked questions: scripts that print what a file beside them holds."""

import shlex
from collections.abc import Iterable
from pathlib import Path

FLAGS = (
    *("-m", "-md", "-hf", "-hfd", "--spec-draft-n-max", "--no-mmproj", "-fa", "--jinja", "-ctxcp", "-fitt", "-c"),
    *("-ctk", "-ctv", "-ctkd", "-ctvd", "-ngl", "-ngld", "-t", "-np", "--host", "--port"),
)
"""Every flag that a server is started with."""


def program(path: Path, answers: dict[str, str], code: int = 0) -> Path:
    """A program that prints an answer by its first argument; "" is for any other."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cases = "\n".join(
        f"{shlex.quote(key) if key else '*'}) printf '%s\\n' {shlex.quote(answers[key])} ;;" for key in answers
    )
    path.write_text(f'#!/bin/sh\ncase "$1" in\n{cases}\nesac\nexit {code}\n')
    path.chmod(0o755)
    return path


def server(path: Path, without: Iterable[str] = (), spec: str = "none,draft-simple,draft-dflash") -> Path:
    """A llama-server that lists its flags, but for some."""
    lines = [
        f"{flag},  --other{number} VALUE   what it does" for number, flag in enumerate(FLAGS) if flag not in without
    ]
    text = "\n".join(["----- common params -----", f"--spec-type {spec}", *lines])
    return program(
        path, {"--help": text, "--version": "version: 4711 (abcdef123)", "--list-devices": "Available devices:"}
    )
