"""Whether a release's card says what its manifest says: license, base models, and the table of files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from scripts import core
from scripts.check_release_source import ASK, Release
from scripts.verdict import Finding

LICENSE_KEYS = ("license", "license_name", "license_link")

_KINDS = {
    "sha256": re.compile(r"[0-9a-f]{64}"),
    "size": re.compile(r"\d+(?:\.\d+)? (?:B|kB|MB|GB)"),
    "bytes": re.compile(r"\d{1,3}(?:,\d{3})+|\d{4,}"),
    "bits per weight": re.compile(r"\d+\.\d\d"),
}
"""What a cell of a file's row is, by its form; other cells are left alone."""


def card_metadata(release: Release) -> Iterable[Finding]:
    """The card's license and base models are the manifest's: the draft first, then the target."""
    general, inputs = release.manifest["general"], release.manifest["inputs"]
    wanted: dict[str, Any] = {key: general.get(f"general.{key.replace('_', '.')}") for key in LICENSE_KEYS}
    wanted["base_model"] = [inputs[role]["repo"] for role in ("draft", "target")]
    faults = []
    for key, value in wanted.items():
        if (have := release.card.data.get(key)) != value:
            faults.append(f"{key} is {have!r}, the manifest gives {value!r}")
    detail = f"license {wanted['license']}, base models {', '.join(wanted['base_model'])}"
    yield Finding("card metadata", not faults, "; ".join(faults) or detail, ASK)


def card_files(release: Release) -> Iterable[Finding]:
    """Each file has a row in a table of the card, and every figure in it is the manifest's; no hash is unknown."""
    rows = [[_plain(cell) for cell in line.strip().strip("|").split("|")] for line in _table_lines(release.card.text)]
    faults, compared = [], 0
    for path, output in release.outputs.items():
        wanted = _figures(output)
        cells = [cell for row in rows if path in row for cell in row]
        found = [(kind, cell) for cell in cells for kind, form in _KINDS.items() if form.fullmatch(cell)]
        compared += len(found)
        if not found:
            faults.append(f"no row of a table has figures of {path}")
        faults += [f"{path}: {kind} {cell}, the manifest gives {wanted[kind]}" for kind, cell in found
                   if cell.replace(",", "") != wanted[kind]]  # fmt: skip
    detail = f"{compared} figures of {len(release.outputs)} files are the manifest's"
    yield Finding("card files", not faults, "; ".join(faults[:3]) or detail, ASK)


def _figures(output: Mapping[str, Any]) -> dict[str, str]:
    return {
        "sha256": output["sha256"],
        "size": core.human(output["bytes"]),
        "bytes": str(output["bytes"]),
        "bits per weight": f"{output['bpw']:.2f}",
    }


def _table_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.lstrip().startswith("|")]


def _plain(cell: str) -> str:
    """A cell without code marks, emphasis and the address of a link."""
    return re.sub(r"^\[(.*)\]\(.*\)$", r"\1", cell.strip().strip("`*")).strip("`* ")
