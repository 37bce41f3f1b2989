"""Say whether a published draft works with a published target, from the headers of both alone.

Of files on the Hub a few megabytes are read, with HTTP Range. Any DFlash draft for llama.cpp can be looked at, whoever
made it. A name is REPO, REPO:QUANT, REPO:FILE.gguf, each with @REVISION after REPO, or the path of a file or folder.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from scripts import core, doctor_draft, doctor_names, doctor_pair, resolve, verdict
from scripts.doctor_draft import Draft
from scripts.doctor_source import Model, draft_file, read
from scripts.verdict import Finding


def examine(draft: Model, target: Model) -> list[Finding]:
    """Everything there is to say about a draft and a target, in the order of the table."""
    header = Draft(draft)
    return [
        *doctor_names.findings(draft, target),
        *doctor_draft.findings(header),
        *doctor_pair.findings(header, target),
    ]


def figures(draft: Model, target: Model) -> dict[str, Any]:
    """What was looked at, and what that took."""
    return {
        "bytes_read": draft.bytes_read + target.bytes_read,
        "bytes": draft.bytes + target.bytes,
        "requests": draft.requests + target.requests,
        **{
            role: {
                "repo": model.place.repo,
                "commit": model.commit,
                "files": list(model.files),
                "bytes": model.bytes,
                "bytes_read": model.bytes_read,
                "requests": model.requests,
            }
            for role, model in (("draft", draft), ("target", target))
        },
    }


def main(argv: list[str] | None = None) -> int:
    """Command-line front; exit code 0 when the draft works with the target, 1 when not or when it cannot be told."""
    arguments = core.parser(__doc__)
    name = "REPO[@REVISION][:QUANT or :FILE.gguf], or a path"
    arguments.add_argument("--draft", required=True, metavar="NAME", help=f"the draft: {name}")
    arguments.add_argument("--target", required=True, metavar="NAME", help=f"the target: {name}")
    arguments.add_argument("--json", type=Path, metavar="FILE", help="also write what was found to this file")
    return core.run(arguments, _step, argv)


def _step(options: argparse.Namespace) -> None:
    draft = read(options.draft, draft_file, all_tensors=True)
    target = read(options.target, resolve.best_model, all_tensors=False)
    diagnose(draft, target, options.json)


def diagnose(draft: Model, target: Model, json_to: Path | None = None) -> None:
    """Print what there is to say and the verdict.

    Raises:
        BuildError: the draft does not work with the target.
    """
    looked = figures(draft, target)
    read_, size = core.human(looked["bytes_read"]), core.human(looked["bytes"])
    verdict.conclude(
        examine(draft, target),
        looked,
        effort=f"{read_} of {size} read in {looked['requests']} requests",
        where=draft.where,
        yes="works",
        no="does not work",
        json_to=json_to,
    )


if __name__ == "__main__":
    sys.exit(main())
