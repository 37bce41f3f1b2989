"""Compare the target as dflash-mlx serves it with the draft and its own target: tokenizer, shapes, quantization.

dflash-mlx borrows embedding and head from whatever target it is given and compares nothing. Of the MLX target's
repository only config and tokenizer are read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts import core
from scripts.core import BuildError, Check, Report, read_json
from scripts.draft_config import DraftConfig, check_against_target, read_draft_config
from scripts.vocab import compare
from scripts.vocab_files import Vocab, brief, collect_vocab

GEMMA = ("gemma4", "gemma4_text")
"""``model_type`` of the targets that dflash-mlx 0.1.8 can draft for, besides all with ``qwen`` in it."""

FIX = "name in mlx_target a repository that was converted from the target"


def check(draft: DraftConfig, target: Path, mlx_target: Path) -> Report:
    """Compare; checks that do not hold are in the report.

    Args:
        draft: the draft's config.
        target: folder with the config and tokenizer that the draft is built for.
        mlx_target: folder with those of the target in MLX form.

    Returns:
        The report. Figures: ``model_type``, ``vocab_size`` (rows), ``bits`` and ``group_size`` of the target's weights
        (None where they are not quantized).

    Raises:
        BuildError: a file is missing or broken.
    """
    config = read_json(mlx_target / "config.json")
    ours, theirs = collect_vocab(target), collect_vocab(mlx_target)
    quantization = _quantization(config, mlx_target / "config.json")
    kind = config.get("model_type")
    report = Report(
        checks=[
            Check("model type", _drafts_for(str(kind)), f"{kind}; dflash-mlx drafts for Qwen and {', '.join(GEMMA)}"),
            *check_against_target(draft, config),
            *(Check(f"mlx_target: {one.name}", one.ok, one.detail) for one in theirs.checks),
            _tokens(ours, theirs),
            _rules(ours, theirs),
            _mask(draft, theirs),
            _groups(draft, quantization),
        ]
    )
    report.figures = {"model_type": kind, "vocab_size": theirs.vocab_size, **quantization}
    return report


def _drafts_for(kind: str) -> bool:
    return "qwen" in kind or kind in GEMMA


def _quantization(config: Mapping[str, Any], path: Path) -> dict[str, int | None]:
    """Bits and group size that an MLX config gives its weights; None for a target that is not quantized."""
    table = config.get("quantization", config.get("quantization_config"))
    if table is None:
        return {"bits": None, "group_size": None}
    if not isinstance(table, Mapping) or not all(type(table.get(key)) is int for key in ("bits", "group_size")):
        raise BuildError(f"quantization is {table!r}, not bits and group_size", path, "take a target that mlx-lm made")
    return {key: table[key] for key in ("bits", "group_size")}


def _tokens(ours: Vocab, theirs: Vocab) -> Check:
    differences = compare(ours, theirs)
    lines = [f"id {at} is {mine!r} in the target, {yours!r} in mlx_target" for at, mine, yours in differences]
    return Check("token texts", not lines, brief(lines, f"all {len(ours.tokens)} equal"))


def _rules(ours: Vocab, theirs: Vocab) -> Check:
    """The rules that cut text to tokens: another pre-tokenizer gives other ids for the same text."""
    parts = sorted(
        key for key in ours.rules.keys() | theirs.rules.keys() if ours.rules.get(key) != theirs.rules.get(key)
    )
    return Check("tokenizer rules", not parts, f"differ: {', '.join(parts)}" if parts else "the target's own")


def _mask(draft: DraftConfig, theirs: Vocab) -> Check:
    rows = theirs.vocab_size
    has = rows is not None and draft.mask_token_id < rows
    return Check("mask row", has, f"mask token {draft.mask_token_id}, mlx_target has {rows} rows")


def _groups(draft: DraftConfig, quantization: Mapping[str, int | None]) -> Check:
    group = quantization["group_size"]
    if group is None:
        return Check("group size", True, "the target is not quantized")
    fits = draft.hidden_size % group == 0
    return Check("group size", fits, f"{group}, the target's rows are {draft.hidden_size} long")


def main(argv: Sequence[str] | None = None) -> int:
    """Command-line front; the report is written only when every check held."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--draft", type=Path, required=True, help="folder with the draft's config.json")
    arguments.add_argument("--target", type=Path, required=True, help="the prepared target folder")
    arguments.add_argument("--mlx-target", type=Path, required=True, help="folder of the target in MLX form")
    arguments.add_argument("--fetched", type=Path, required=True, help="report of the MLX target's download")
    arguments.add_argument("--report", type=Path, required=True, help="where the JSON report goes")
    return core.run(arguments, _step, argv)


def _step(options: argparse.Namespace) -> None:
    fetched = core.read_json(options.fetched)
    report = check(read_draft_config(options.draft / "config.json"), options.target, options.mlx_target)
    report.settle(f"{fetched['repo']} at {fetched['commit'][:12]}", FIX)
    report.figures = {key: fetched[key] for key in ("repo", "revision", "commit")} | report.figures
    report.write(options.report)
    bits = f"{report.figures['bits']} bits" if report.figures["bits"] else "not quantized"
    core.say(f"{fetched['repo']} ({bits}) has the draft's vocabulary and shapes: {len(report.checks)} checks held")


if __name__ == "__main__":
    sys.exit(main())
