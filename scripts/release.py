"""Close the release folder: exactly the files that are published, and SHA256SUMS over them."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts import core
from scripts.core import BuildError

SUMS = "SHA256SUMS"

CARD = "README.md"
BILL, PROVENANCE = "sbom.cdx.json", "provenance.intoto.json"
"""What :mod:`scripts.sbom` and :mod:`scripts.provenance` write; here, as their libraries take long to load."""

SIGNATURE = "model.sig"
"""The signature over all the others, where somebody signed; made after the folder is closed, so no sum names it."""


def close(folder: Path, files: Sequence[str], known: Mapping[str, str]) -> None:
    """Write SHA256SUMS over ``files`` and remove what does not belong to the release.

    ``known`` has the sha256 of the GGUF files as verify read them; a link to the same bytes is not hashed again.

    Raises:
        BuildError: a file of the release is not there.
    """
    lines = []
    for name in sorted(files):
        path = folder / name
        if not path.is_file():
            raise BuildError(f"{name} is missing", folder, "run snakemake again")
        lines.append(f"{known.get(name) or core.sha256_file(path, f'hashing {name}')}  {name}\n")
    for stray in sorted(folder.rglob("*")):
        if stray.is_file() and stray.relative_to(folder).as_posix() not in {*files, SUMS}:
            core.say(f"removed {stray.name}: it is not part of the release any more")
            stray.unlink()
    with core.atomic(folder / SUMS) as temporary:
        temporary.write_text("".join(lines), encoding="utf-8")


def parse_sums(text: str) -> dict[str, str]:
    """File name -> sha256, from the text of a SHA256SUMS.

    Raises:
        ValueError: a line is not of this form, or names a file a second time.
    """
    lines = text.removesuffix("\n").split("\n")
    rows = [re.fullmatch(r"([0-9a-f]{64})  (\S+)", line) for line in lines]
    sums = {row[2]: row[1] for row in rows if row}
    if len(sums) < len(lines):
        raise ValueError("a line is no sha256 and a new name")
    return sums


def sums_of(path: Path, do: str) -> dict[str, str]:
    """:func:`parse_sums` of a file.

    Raises:
        BuildError: it is missing or malformed; ``do`` says what then.
    """
    try:
        return parse_sums(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BuildError(f"cannot read {SUMS}: {error}", path.parent, do) from error


def read_sums(folder: Path) -> dict[str, str]:
    """File name -> sha256 of a closed release folder.

    Raises:
        BuildError: SHA256SUMS is missing or malformed, or the folder holds more or fewer files than it names.
    """
    sums = sums_of(folder / SUMS, "run snakemake again")
    present = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()} - {SUMS, SIGNATURE}
    if present != set(sums):
        odd = sorted(present ^ set(sums))[0]
        raise BuildError(
            f"{odd} is in only one of the folder and {SUMS}", folder, f"delete {SUMS} and run snakemake again"
        )
    return sums


def main() -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--folder", required=True, type=Path, help="release folder")
    arguments.add_argument(
        "--manifest", required=True, type=Path, help="manifest.json, for the sha256 of the GGUF files"
    )
    arguments.add_argument("--files", required=True, nargs="+", help="names of the files of the release")
    return core.run(arguments, _step)


def _step(options: argparse.Namespace) -> None:
    outputs = core.read_json(options.manifest)["outputs"]
    names = [(output, output[key]) for output in outputs for key in ("file", "sidecar") if key in output]
    close(options.folder, options.files, {name: output["sha256"] for output, name in names})


if __name__ == "__main__":
    sys.exit(main())
