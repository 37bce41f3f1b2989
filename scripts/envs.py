"""Write envs/pipeline.yaml, the conda environment of `--sdm conda`, from the pins in envs/requirements.txt."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from scripts import core

ENVS = Path(__file__).resolve().parent.parent / "envs"
REQUIREMENTS, CONDA = ENVS / "requirements.txt", ENVS / "pipeline.yaml"

HEAD = """\
# Made from envs/requirements.txt by `python -m scripts.envs`; a test keeps the two equal.
channels:
  - conda-forge
  - nodefaults
dependencies:
  - python=3.11
  - pip=26.1
  - cxx-compiler=1.11.0
  - make=4.4.1
  - pip:
"""


def pins() -> list[str]:
    """The requirement lines, as `name==version`, in the file's order."""
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def conda() -> str:
    """The text of the conda environment."""
    return HEAD + "".join(f"      - {pin}\n" for pin in pins())


def main() -> int:
    """Command-line front."""
    return core.run(core.parser(__doc__), _step)


def _step(options: argparse.Namespace) -> None:
    with core.atomic(CONDA) as temporary:
        temporary.write_text(conda(), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
