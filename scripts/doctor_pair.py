"""Whether a draft fits the target that it is served with: vocabulary, mask token, width, layers, rotation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import gguf

from scripts import fit, verdict, vocab
from scripts.core import Check
from scripts.doctor_draft import CONVERT, Draft
from scripts.doctor_source import Model
from scripts.verdict import Finding
from scripts.verify_metadata import ARCHITECTURE
from scripts.verify_vocab import SPECIAL_KEYS

OTHER_TARGET = "serve it with the target it was made for, or convert the draft with this target's tokenizer"
OLD_MASK = f"{ARCHITECTURE}.mask_token_id"


def findings(draft: Draft, target: Model) -> Iterable[Finding]:
    """Compare a draft with its target."""
    yield _is_target(target)
    theirs = fit.from_header(target.values)
    for check in fit.vocabulary_checks(fit.from_header(draft.values), theirs):
        yield verdict.found(check, OTHER_TARGET)
    embedding = target.tensors.get(fit.EMBEDDING)
    needs = fit.Needs(draft.count("embedding_length"), draft.mask, draft.taps)
    for check in fit.size_checks(needs, target.values, embedding):
        yield verdict.found(check, OTHER_TARGET)
    yield _mask(draft, target, theirs, embedding.shape[0] if embedding else len(theirs.tokens))
    yield _rotation(draft, target)


def _is_target(target: Model) -> Finding:
    family = str(target.architecture)
    held = target.architecture is not None and ARCHITECTURE not in family
    detail = family if held else f"{target.architecture!r} is no target"
    return Finding("target architecture", held, detail, "name the target's GGUF; the draft's goes to --draft")


def _mask(draft: Draft, target: Model, theirs: fit.Side, rows: int) -> Finding:
    """The mask token's id must be none that the target uses."""
    if draft.mask is None:
        there = draft.values.get(OLD_MASK)
        old = "" if there is None else f"; {OLD_MASK} is {there!r}, which llama.cpp does not read"
        detail = f"tokenizer.ggml.mask_token_id is missing{old}: llama-server ends at the first request"
        return Finding("mask token", False, detail, CONVERT)
    roles = [kind for kind in SPECIAL_KEYS if theirs.ids.get(kind) == draft.mask]
    string = _string(target, theirs, draft.mask)
    check: Check = vocab.mask_check(draft.mask, rows, string, roles[0] if roles else None)
    return verdict.found(check, CONVERT)


def _string(target: Model, theirs: fit.Side, number: int) -> str | None:
    """The text of a token that the target uses; None of a padding row."""
    kinds: Any = target.values.get("tokenizer.ggml.token_type")
    kind = kinds[number] if isinstance(kinds, list) and 0 <= number < len(kinds) else None
    text = theirs.tokens[number] if 0 <= number < len(theirs.tokens) else None
    return None if kind == gguf.TokenType.UNUSED or text == f"[PAD{number}]" else text


def _rotation(draft: Draft, target: Model) -> Finding:
    """A target that rotates by sections needs a draft that names them: half a head in the first, none in the others."""
    name = "rope sections"
    ours, theirs = (
        draft.get("rope.dimension_sections"),
        target.values.get(f"{target.architecture}.rope.dimension_sections"),
    )
    width = draft.count("attention.key_length")
    if ours is None and theirs is None:
        return Finding(name, True, "neither has any")
    if ours is None:
        return Finding(
            name, True, f"warning: the target has {theirs}, the draft none: positions of images differ", CONVERT
        )
    if theirs is None:
        return Finding(name, True, f"warning: the draft has {ours}, the target none", CONVERT)
    wanted = [width // 2, 0, 0, 0] if width else None
    held = ours == wanted
    return Finding(name, held, f"{ours}" if held else f"is {ours}; heads of {width} give {wanted}", CONVERT)
