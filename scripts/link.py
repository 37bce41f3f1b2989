"""Put a file of the results at a second place, as a relative link: a verified GGUF into the release folder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from scripts import core


def main() -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("source", type=Path)
    arguments.add_argument("destination", type=Path)
    return core.run(arguments, _step)


def _step(options: argparse.Namespace) -> None:
    core.symlink(options.source, options.destination)


if __name__ == "__main__":
    sys.exit(main())
