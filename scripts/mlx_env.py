"""Make the MLX environment (.venv-mlx) from the exact pins of envs/mlx.txt, and run what needs it there.

dflash-mlx has dependencies of its own, so it does not share the pipeline's environment. The programs of ``on_mlx`` are
the only code that runs in it; they take and give JSON.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts import core, process
from scripts.config import ROOT
from scripts.core import BuildError

REQUIREMENTS = ROOT / "envs" / "mlx.txt"

FOLDER = ROOT / ".venv-mlx"

VARIABLE = "DFLASH_MLX_ENV"
"""Environment variable that names another folder of a virtual environment with these packages."""

HINT = "make the MLX environment: make mlx-env"


def folder() -> Path:
    """The environment's folder: the one that :data:`VARIABLE` names, else the project's own."""
    return Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else FOLDER


def pins() -> dict[str, str]:
    """Package -> version of the environment, those of other systems included."""
    lines = (line.strip() for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines())
    return dict(line.partition(";")[0].strip().split("==") for line in lines if line and not line.startswith("#"))


def stamp(place: Path) -> Path:
    """The file that says that the environment is complete and made from the pins as they are now."""
    return place / f".ready-{hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]}"


def program(name: str) -> Path:
    """A program of the environment, ``python`` or ``dflash``.

    Raises:
        BuildError: the environment is not there, or made from other pins.
    """
    place = folder()
    if not stamp(place).is_file():
        what = "is made from other pins" if (place / "bin" / "python").exists() else "is not there"
        raise BuildError(f"the MLX environment {what}", place, HINT)
    return place / "bin" / name


def make(place: Path) -> None:
    """Make the environment anew unless it is complete.

    Raises:
        BuildError: a package cannot be installed.
    """
    if stamp(place).is_file():
        return
    core.say(f"making {place.name} from {REQUIREMENTS.relative_to(ROOT)}")
    venv.create(place, clear=True, with_pip=True)
    install: list[str | Path] = [place / "bin" / "python", "-m", "pip", "install", "--disable-pip-version-check"]
    install += ["-r", REQUIREMENTS]
    code, tail = process.stream(install, core.say)
    if code:
        last = tail[-1] if tail else "no output"
        raise BuildError(f"pip ended with code {code}: {last}", place, "mend what it names and run again")
    stamp(place).touch()


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """What a program of the MLX environment is run with: no secrets of this process, and ``extra``."""
    # A quantized draft runs on kernels of dflash-mlx's own, which need Metal; this leaves MLX's in their place.
    elsewhere = {} if sys.platform == "darwin" else {"DFLASH_VERIFY_INCLUDE": "none"}
    return process.environment(elsewhere | dict(extra))


def answer_of(module: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Run a program of ``on_mlx``; what it gives, ``{"error"}`` where dflash-mlx refused.

    Raises:
        BuildError: there is no MLX environment, or the program ended without an answer.
    """
    command = [str(program("python")), "-m", f"on_mlx.{module}"]
    # Models are folders of this machine: nothing may be looked up on the Hub, nor under names of the working folder.
    variables = environment({"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"})
    done = subprocess.run(
        command, input=json.dumps(asked), env=variables, capture_output=True, text=True, errors="replace"
    )
    try:
        return dict(json.loads(done.stdout))
    except ValueError as error:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        what = f"on_mlx.{module} ended with code {done.returncode}: {last}"
        raise BuildError(what, folder(), "MLX runs on Apple Silicon, and on Linux on the CPU alone") from error


def call(module: str, asked: Mapping[str, Any], where: str | Path, do: str) -> dict[str, Any]:
    """As :func:`answer_of`, for an answer that is needed.

    Raises:
        BuildError: also where dflash-mlx refused; ``where`` and ``do`` are the error's.
    """
    given = answer_of(module, asked)
    if "error" in given:
        raise BuildError(f"dflash-mlx: {given['error']}", where, do)
    return given


def main(argv: Sequence[str] | None = None) -> int:
    """Command-line front."""
    return core.run(core.parser(__doc__), _step, argv)


def _step(options: argparse.Namespace) -> None:
    make(folder())


if __name__ == "__main__":
    sys.exit(main())
