"""Write demo/workloads: prompts of the corpus as workload files for measuring the embedded pair.

The chat template with thinking off gives the same text as the prompts the pair was trained on, so ``raw`` and ``chat``
measure the same; a test compares the two.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from demo.pair import corpus
from scripts import core

FOLDER = Path(__file__).resolve().parent.parent / "workloads"
PROMPTS = 4
"""Prompts of a workload: few, as every one is answered on a CPU, and of different structs and lengths."""
HEAD = "# Made from the corpus by `python -m demo.pair.workloads`; a test compares.\n"


class _Dumper(yaml.SafeDumper):
    """Texts of several lines are written as they are, tabs too, where PyYAML would escape them."""

    def analyze_scalar(self, scalar: str) -> Any:
        analysis = super().analyze_scalar(scalar)
        analysis.allow_block = "\n" in scalar
        return analysis


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _prompt(sample: corpus.Sample) -> dict[str, str]:
    name = re.sub(r"[^a-z0-9]+", "-", sample.name.lower()).strip("-")
    return {"id": name, "user": sample.user, "raw": sample.prompt}


def _workload(name: str, description: str, samples: Sequence[corpus.Sample]) -> dict[str, Any]:
    return {"name": name, "description": description, "prompts": [_prompt(sample) for sample in samples]}


def _spread(samples: Sequence[corpus.Sample]) -> Sequence[corpus.Sample]:
    """Samples from first to last, so that structs, fields and new names differ."""
    return samples[:: len(samples) // PROMPTS + 1]


def made() -> dict[str, str]:
    """File name -> content of the embedded pair's workloads."""
    samples = corpus.training_samples()
    edits = [sample for sample in samples if sample.kind == corpus.CODE_EDIT]
    new = [sample for sample in samples if sample.kind == corpus.CODE_NEW]
    unseen = corpus.unseen_samples()
    groups = [
        _workload("code-edit", "Rename a field, echo the file; trained on.", _spread(edits)),
        _workload("code-new", "Write a small function; trained on.", _spread(new)),
        _workload("unseen", "Edits and functions that were kept from training.", [*unseen[:2], *unseen[-2:]]),
    ]
    return {
        f"{group['name']}.yaml": HEAD + yaml.dump(group, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
        for group in groups
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--out", type=Path, default=FOLDER, help="folder to write to (%(default)s)")
    return core.run(arguments, _step, argv)


def _step(options: argparse.Namespace) -> None:
    for name, text in made().items():
        with core.atomic(options.out / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
        core.say(f"wrote {name}")


if __name__ == "__main__":
    sys.exit(main())
