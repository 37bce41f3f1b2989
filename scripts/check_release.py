"""Check a published release again, by anyone: its listing, headers and card against SHA256SUMS and manifest.json.

The texts are downloaded, and of each GGUF its header with HTTP Range; with --full every byte, through the Hub cache. A
release is REPO, REPO@REVISION or a folder on this machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from scripts import core, verdict
from scripts.check_release_card import card_files, card_metadata
from scripts.check_release_files import checksums, every_byte, names, outputs
from scripts.check_release_headers import headers
from scripts.check_release_provenance import bill_of_materials, provenance
from scripts.check_release_source import HubRelease, Release, find
from scripts.core import BuildError
from scripts.verdict import Finding

Check = Callable[[Release], Iterable[Finding]]

CHECKS: Sequence[Check] = (
    *(names, checksums, outputs, headers, card_metadata, card_files),
    *(provenance, bill_of_materials, every_byte),
)
"""All there is to check, in this order: a new kind of file in the release is checked by a function more in here."""


def examine(release: Release, checks: Sequence[Check] = CHECKS) -> list[Finding]:
    """What every check found; one that cannot read what it needs ends as a finding that says so, once."""
    found: list[Finding] = []
    for check in checks:
        try:
            found += check(release)
        except BuildError as error:
            finding = Finding(check.__name__.replace("_", " "), False, f"cannot be checked: {error.what}", error.do)
            if finding.detail not in [other.detail for other in found]:
                found.append(finding)
    return found


def main(argv: list[str] | None = None) -> int:
    """Command-line front; exit code 0 when everything is as the release says, 1 when not or when it cannot be told."""
    arguments = core.parser(__doc__)
    arguments.add_argument("release", metavar="RELEASE", help="REPO, REPO@REVISION or a folder")
    arguments.add_argument("--full", action="store_true", help="read every byte, and hash each file and tensor")
    arguments.add_argument("--json", type=Path, metavar="FILE", help="also write what was found to this file")
    return core.run(arguments, _step, argv)


def _step(options: argparse.Namespace) -> None:
    release = find(options.release, full=options.full)
    found = examine(release)
    verdict.conclude(
        found,
        {
            "release": options.release,
            "commit": release.commit if isinstance(release, HubRelease) else None,
            "full": options.full,
            "files": len(release.files),
            "bytes": release.bytes,
            "bytes_read": release.bytes_read,
            "requests": release.requests,
        },
        effort=f"{core.human(release.bytes_read)} of {core.human(release.bytes)} read in {release.requests} requests",
        where=release.where,
        yes="verified",
        no="not verified",
        json_to=options.json,
    )


if __name__ == "__main__":
    sys.exit(main())
