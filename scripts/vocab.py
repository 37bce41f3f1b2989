"""Check that a draft and its target share a vocabulary, before anything is built from them.

Nothing checks this later: a draft with the wrong vocabulary or mask token converts, loads and drafts, and is
merely never accepted. What has to hold is that the same id has the same string in the tokenizer the draft was
trained with (the base) and in the target's.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.core import BuildError, Check, Report, parser, read_json, run, say
from scripts.draft_config import DraftConfig, check_against_target, check_tensors, read_draft_config
from scripts.safetensors_header import check_weights
from scripts.vocab_files import ROLES, Vocab, brief, collect_vocab, is_id, read_vocab

__all__ = ["Difference", "Expect", "Vocab", "check", "check_mask", "compare", "parse_expect", "read_vocab"]

Difference = tuple[int, str | None, str | None]
"""An id, its string in the base and its string in the target; None where it has no string."""

TURN_MARKS = ("<|im_start|>", "<|im_end|>")
"""Tokens that open and close a turn; a mask with one of these ids would be read as a turn."""


@dataclass(frozen=True)
class Expect:
    """What a pair's configuration says must be found; None where it says nothing.

    Attributes:
        mask_token_id: the draft's mask token.
        added_token_ids: first and last id (both included) by which the target may differ from the base.
        block_size: tokens of one block of the draft, the first one included.
    """

    mask_token_id: int | None = None
    added_token_ids: tuple[int, int] | None = None
    block_size: int | None = None


def parse_expect(values: object, where: str) -> Expect:
    """Read the ``expect`` mapping of a pair's configuration.

    Raises:
        BuildError: an unknown key, a value that is not an integer, or a range that ends before it starts.
    """
    do = "write expect as {mask_token_id: ID, added_token_ids: [FIRST, LAST], block_size: N}"
    if not isinstance(values, Mapping):
        raise BuildError(f"expect is {values!r}, not a mapping", where, do)
    if unknown := sorted(map(str, values.keys() - {"mask_token_id", "added_token_ids", "block_size"})):
        raise BuildError(f"expect has an unknown key {unknown[0]}", where, do)
    mask, block, span = (values.get(key) for key in ("mask_token_id", "block_size", "added_token_ids"))
    for key, value in (("mask_token_id", mask), ("block_size", block)):
        if value is not None and not is_id(value):
            raise BuildError(f"expect.{key} is {value!r}, not an integer from 0", where, do)
    if span is None:
        return Expect(mask, None, block)
    if not isinstance(span, Sequence) or len(span) != 2 or not all(map(is_id, span)) or span[0] > span[1]:
        raise BuildError(f"expect.added_token_ids is {span!r}, not a first and a last id", where, do)
    return Expect(mask, (span[0], span[1]), block)


def compare(base: Vocab, target: Vocab) -> list[Difference]:
    """The ids whose strings differ between two tokenizers, ascending.

    Padding rows of the embedding have no string in either and so never differ.
    """
    return [
        (token_id, base.tokens.get(token_id), target.tokens.get(token_id))
        for token_id in sorted(base.tokens.keys() | target.tokens.keys())
        if base.tokens.get(token_id) != target.tokens.get(token_id)
    ]


def _listed(differences: Sequence[Difference]) -> str:
    shown = [
        f"id {token_id}: base {'no string' if old is None else repr(old)}, "
        f"target {'no string' if new is None else repr(new)}"
        for token_id, old, new in differences
    ]
    return brief(shown, "none")


def _check_expected(target: Vocab, rows: int, expected: tuple[int, int]) -> Check:
    """Every id of the expected range must be an added token of the target."""
    name, (first, last) = "expected added tokens", expected
    if last >= rows:
        return Check(name, False, f"id {last} has no row in the target's embedding of {rows} rows")
    wrong = [
        f"id {token_id} is the ordinary token {target.show(token_id)}"
        if token_id in target.tokens
        else f"id {token_id} has no string"
        for token_id in range(first, last + 1)
        if token_id not in target.added
    ]
    detail = f"{first}..{last}: {target.show(first)} to {target.show(last)}"
    return Check(name, not wrong, brief(wrong, detail))


def _check_differences(differences: Sequence[Difference], expected: tuple[int, int] | None) -> Check:
    """Differences from the base: only inside the expected range; without one, only new ids."""
    name, count = "differences from base", len(differences)
    if expected is None:
        moved = [entry for entry in differences if entry[1] is not None]
        if moved:
            return Check(name, False, _listed(moved))
        new = f"warning: {count} ids are new in the target and none was expected: {_listed(differences)}"
        return Check(name, True, new if count else "no id differs")
    first, last = expected
    outside = [entry for entry in differences if not first <= entry[0] <= last]
    if outside:
        return Check(name, False, f"outside the expected {first}..{last}: {_listed(outside)}")
    total = last - first + 1
    if not differences:
        return Check(name, True, f"already in base: all {total} ids {first}..{last} have the same strings there")
    if count < total:
        return Check(name, True, f"{count} of the ids {first}..{last} differ, {total - count} are already in base")
    return Check(name, True, f"exactly {first}..{last} differ ({total} ids)")


def _check_gaps(base: Vocab | None, target: Vocab) -> Check:
    """Ids without a string below the last one: the converter would write unused placeholders there."""
    gaps = target.gaps
    listed = brief([f"id {token_id} has no string" for token_id in gaps], f"none below {target.last}")
    if gaps and base is not None and set(gaps) <= set(base.gaps):
        return Check("gaps", True, f"warning: as in base: {listed}")
    return Check("gaps", not gaps, listed)


def _check_rules(base: Vocab, target: Vocab) -> Check:
    """Whether both tokenizers cut text alike: the same strings with other merges are other tokens of a text."""
    differ = [part for part, digest in target.rules.items() if base.rules[part] != digest]
    detail = f"warning: {', '.join(differ)} of tokenizer.json differ from base" if differ else "as in base"
    return Check("text is cut as in base", True, detail)


def mask_check(mask: object, rows: int, string: str | None, role: str | None) -> Check:
    """The rules for a mask token by what the target has at its id: a string, a role (``eos``, ``bos``, ``pad``)."""
    if not isinstance(mask, int) or not is_id(mask):
        return Check("mask token", False, f"mask_token_id is {mask!r}, not an integer from 0")
    if mask >= rows:
        return Check("mask token", False, f"id {mask} has no row in the target's embedding of {rows} rows")
    if role is not None:
        shown = "no string" if string is None else repr(string)
        return Check("mask token", False, f"id {mask} {shown} is the target's {role} token")
    if string in TURN_MARKS:
        return Check("mask token", False, f"id {mask} is {string!r}, which marks a turn")
    if string is not None:
        return Check("mask token", True, f"warning: id {mask} is also {string!r}")
    return Check("mask token", True, f"id {mask}, a padding row of {rows} rows")


def check_mask(mask: object, target: Vocab, rows: int, expected: int | None) -> list[Check]:
    """The rules for the mask token; the draft has no embedding, so its masked slots use the target's row.

    Args:
        mask: the draft's ``mask_token_id`` as its config has it.
        target: the target's vocabulary.
        rows: rows of the target's embedding. A padding row, which has no string, is a usual choice.
        expected: the id the configuration expects, or None.

    Returns:
        The checks. A mask that is some named token passes with a detail that starts with ``warning:``.
    """
    taken = [role for role in ROLES if is_id(mask) and mask in target.ids_of(role)]
    string = target.tokens.get(mask) if isinstance(mask, int) else None
    result = mask_check(mask, rows, string, taken[0] if taken else None)
    if expected is None or not is_id(mask):
        return [result]
    return [result, Check("expected mask token", mask == expected, f"draft {mask}, expected {expected}")]


def _check_sizes(draft: DraftConfig, target: Vocab, rows: int) -> list[Check]:
    """Both vocabulary sizes must be equal, and every id must have a row."""
    count = target.last + 1
    detail = f"draft {draft.vocab_size}, target {rows} ({count} with strings, {rows - count} padding rows)"
    highest = f"id {target.last} {target.show(target.last)} of {rows} rows"
    return [
        Check("vocabulary size", draft.vocab_size == rows, detail),
        Check("highest token id", target.last < rows, highest),
    ]


def _check_templates(target: Vocab) -> Check:
    listed = ", ".join(template.source for template in target.templates)
    if len({template.sha256 for template in target.templates}) > 1:
        listed = f"warning: different templates in {listed}"
    return Check("chat template", bool(target.templates), listed or "none; drafts are measured on chats")


def _figures(
    base: Vocab | None, target: Vocab, rows: int, draft: DraftConfig, differences: Sequence[Difference], expect: Expect
) -> dict[str, Any]:
    def token(token_id: int) -> dict[str, Any]:
        return {"id": token_id, "string": target.tokens.get(token_id)}

    first, last = expect.added_token_ids or (0, -1)
    inside = [
        {**token(key), "in_base": None if base is None else base.tokens.get(key) == target.tokens.get(key)}
        for key in range(first, last + 1)
    ]
    template = target.templates[0] if target.templates else None
    return {
        "added_range": inside,
        "mask_token": token(draft.mask_token_id),
        "block_size": draft.block_size,
        "special_tokens": {
            role: {
                "tokenizer": next((token(key) for key in target.ids_of(role) if _is_role(target, role, key)), None),
                "configs": [{"file": where, **token(key)} for where, name, key in target.config_ids if name == role],
            }
            for role in ROLES
        },
        "bpe_tokens": len(target.tokens.keys() - target.added),
        "added_tokens": len(target.added),
        "padding_rows": rows - target.last - 1,
        "vocab_size": rows,
        "differing_ids": None if base is None else len(differences),
        "rules_sha256": target.rules,
        "chat_template": {
            "present": template is not None,
            "source": template.source if template else None,
            "sha256": template.sha256 if template else None,
        },
    }


def _is_role(vocab: Vocab, role: str, token_id: int) -> bool:
    return role in vocab.roles and vocab.tokens.get(token_id) == vocab.roles[role]


def check(draft_config_path: Path, target_dir: Path, base_dir: Path | None, expect: Mapping[str, Any]) -> Report:
    """Check a draft against its target's tokenizer, and that against the base's when there is one.

    Args:
        draft_config_path: the draft's config.json; the weights lie beside it, and only their headers are read.
        target_dir: the target's tokenizer folder, config.json included.
        base_dir: the tokenizer folder of the model the draft was trained for, or None.
        expect: ``mask_token_id``, ``added_token_ids`` (first, last) and ``block_size``, each optional.

    Returns:
        The report; every check holds. Figures: ``added_range`` (id, string, in_base), ``mask_token``,
        ``block_size``, ``special_tokens``, ``bpe_tokens``, ``added_tokens``, ``padding_rows``, ``vocab_size``
        (rows), ``differing_ids``, ``rules_sha256``, ``chat_template``.

    Raises:
        BuildError: a file is missing or broken, or a check failed; every failed check is printed before.
    """
    expected = parse_expect(expect, "config")
    draft = read_draft_config(draft_config_path)
    report = Report(checks=check_tensors(draft, check_weights(draft_config_path.parent)))
    report.settle(draft_config_path.parent, "take weights and config of one revision")
    target_config = read_json(target_dir / "config.json")
    target = collect_vocab(target_dir)
    rows = target.vocab_size
    if rows is None:
        do = "use a revision whose config gives the rows of the embedding"
        raise BuildError("the target's config has no vocab_size", target_dir / "config.json", do)
    report.checks += check_against_target(draft, target_config)
    base = collect_vocab(base_dir) if base_dir is not None else None
    for side, vocab in (("target", target), ("base", base)):
        report.checks += [Check(f"{side}: {one.name}", one.ok, one.detail) for one in (vocab.checks if vocab else ())]
    differences = compare(base, target) if base is not None else []
    report.checks += [
        *_check_sizes(draft, target, rows),
        _check_gaps(base, target),
        *([_check_expected(target, rows, expected.added_token_ids)] if expected.added_token_ids else []),
        *([_check_differences(differences, expected.added_token_ids), _check_rules(base, target)] if base else []),
        *check_mask(draft.mask_token_id, target, rows, expected.mask_token_id),
        _check_templates(target),
    ]
    if expected.block_size is not None:
        detail = f"draft {draft.block_size}, expected {expected.block_size}"
        report.check("expected block size", draft.block_size == expected.block_size, detail)
    failed = [one for one in report.checks if not one.ok]
    for one in failed:
        say(f"{one.name}: {one.detail}")
    if failed:
        raise BuildError(
            f"{len(failed)} of {len(report.checks)} checks failed, the first one {failed[0].name}: {failed[0].detail}",
            target_dir,
            "pin revisions of draft, target and base that belong together, or correct expect in the config",
        )
    report.figures.update(_figures(base, target, rows, draft, differences, expected))
    return report


def _step(options: argparse.Namespace) -> None:
    try:
        expect = json.loads(options.expect)
    except json.JSONDecodeError as error:
        raise BuildError(f"not valid JSON: {error}", "--expect", 'write it as {"mask_token_id": ID}') from error
    report = check(options.draft / "config.json", options.target, options.base, expect)
    report.write(options.report)
    for one in report.checks:
        if one.detail.startswith("warning:"):
            say(f"{one.name}: {one.detail}")
    figures = report.figures
    say(
        f"{len(report.checks)} checks held: {figures['bpe_tokens']} + {figures['added_tokens']} tokens, "
        f"{figures['padding_rows']} padding rows, mask {figures['mask_token']['id']}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The command-line front; returns the exit code."""
    arguments = parser(__doc__)
    arguments.add_argument("--draft", type=Path, required=True, help="folder with the draft's config.json and weights")
    arguments.add_argument("--target", type=Path, required=True, help="the target's tokenizer folder")
    arguments.add_argument("--base", type=Path, help="tokenizer folder of the model the draft was trained for")
    arguments.add_argument("--expect", required=True, help="the pair's expect mapping, as JSON")
    arguments.add_argument("--report", type=Path, required=True, help="JSON report to write")
    return run(arguments, _step, argv)


if __name__ == "__main__":
    raise SystemExit(main())
