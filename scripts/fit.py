"""What a draft and llama.cpp ask of a target: one vocabulary, the same width, layers to tap, a row for the mask.

llama.cpp borrows embeddings and head from the served target and does not compare the two when it drafts with DFlash, so
what does not fit loads, and is quietly slow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scripts.core import Check
from scripts.verify_gguf import GgufTensor
from scripts.verify_vocab import MODEL, PRE, SPECIAL_KEYS, Vocabulary

APART, FROM = 128, 5
"""llama.cpp's own limits: how many tokens two vocabularies may differ by, and the first id whose text is compared."""

EMBEDDING = "token_embd.weight"
SHOWN = 3

NOTHING_ADDED = "qwen"
"""How the pre-tokenizers begin for which llama.cpp adds neither bos nor eos where the metadata do not say."""


@dataclass(frozen=True)
class Side:
    """The vocabulary of one of the two: kind, pre-tokenizer, texts by id, what is added around a text, special ids."""

    model: Any
    pre: Any
    tokens: Sequence[str]
    adds: Mapping[str, Any]
    ids: Mapping[str, Any]


@dataclass(frozen=True)
class Needs:
    """What a draft asks of its target; None where the draft does not say.

    ``taps`` are the layers whose output it reads, counted from 0; ``layers`` is how many the target should have.
    """

    hidden: int | None
    mask: int | None
    taps: Sequence[int] | None
    layers: int | None = None


def from_files(vocabulary: Vocabulary) -> Side:
    """The side of a draft that is built with a target's tokenizer files."""
    ids = {kind: number for kind, (number, _) in vocabulary.special_ids.items()}
    adds = {kind: vocabulary.adds.get(kind, False) for kind in ("bos", "eos")}
    return Side(MODEL, PRE, vocabulary.tokens, adds, ids)


def from_header(values: Mapping[str, Any]) -> Side:
    """The side of a GGUF, by its metadata; whatever is missing or of another kind is nothing here."""
    tokens = values.get("tokenizer.ggml.tokens")
    return Side(
        values.get("tokenizer.ggml.model"),
        values.get("tokenizer.ggml.pre"),
        tokens if isinstance(tokens, list) and all(isinstance(token, str) for token in tokens) else [],
        {kind: values.get(f"tokenizer.ggml.add_{kind}_token") for kind in ("bos", "eos")},
        {kind: values[key] for kind, key in SPECIAL_KEYS.items() if key in values},
    )


def vocabulary_checks(draft: Side, target: Side) -> list[Check]:
    """Check what llama.cpp compares of two vocabularies, and the pre-tokenizer."""
    return [
        equal("tokenizer.ggml.model", draft.model, target.model),
        equal("tokenizer.ggml.pre", draft.pre, target.pre),
        *(_added(kind, draft, target) for kind in ("bos", "eos")),
        _count(len(draft.tokens), len(target.tokens)),
        _texts(draft.tokens, target.tokens),
    ]


def said(value: Any) -> str:
    """A value as a message has it."""
    return "nothing" if value is None else repr(value)


def equal(key: str, ours: Any, theirs: Any) -> Check:
    """Check that draft and served target have the same value of a key, and that they have one."""
    return Check(key, theirs == ours and ours is not None, f"draft {said(ours)}, served target {said(theirs)}")


def _added(kind: str, draft: Side, target: Side) -> Check:
    """Whether bos or eos is put around a text, and which id where it is.

    Absent, both are false for the pre-tokenizers of Qwen (llama.cpp, llama-vocab.cpp); of others only the two together
    can be told.
    """
    key = f"tokenizer.ggml.add_{kind}_token"
    ours, theirs = draft.adds.get(kind), target.adds.get(kind)
    known = str(draft.pre).startswith(NOTHING_ADDED)
    if (ours is None) != (theirs is None) and not known:
        detail = f"warning: draft {said(ours)}, served target {said(theirs)}; what an absent one means depends on the"
        return Check(key, True, f"{detail} pre-tokenizer {said(draft.pre)}")
    ours, theirs = ours or False, theirs or False
    if theirs != ours or not ours:
        return Check(key, theirs == ours, f"draft {ours}, served target {theirs}")
    our_id, their_id = draft.ids.get(kind), target.ids.get(kind)
    return Check(key, our_id == their_id, f"both add {kind}: draft id {said(our_id)}, served target {said(their_id)}")


def _count(ours: int, theirs: int) -> Check:
    apart = abs(ours - theirs)
    detail = f"draft {ours}, served target {theirs}"
    if apart > APART:
        detail += f": {apart} apart, llama.cpp allows {APART}; rows without a token (padding) count too"
    return Check("token count", bool(theirs) and bool(ours) and apart <= APART, detail)


def _texts(ours: Sequence[str], theirs: Sequence[str]) -> Check:
    """The text of every id that both have, from llama.cpp's first on; the first three differences are shown."""
    rows = list(zip(ours, theirs, strict=False))[FROM:]
    different = [(number, *row) for number, row in enumerate(rows, FROM) if row[0] != row[1]]
    shown = [f"id {number} is {mine!r} in the draft, {yours!r} served" for number, mine, yours in different[:SHOWN]]
    more = f"; {len(different)} differ in all" if len(different) > SHOWN else ""
    return Check("token texts", not different, "; ".join(shown) + more or f"{len(rows)} equal from id {FROM} on")


def parts_check(values: Mapping[str, Any], files: int) -> Check:
    """Check that a split model has as many files as its first one says."""
    count = values.get("split.count") or 1  # 0 in a file that was put together again
    return Check("split.count", count == files, f"{files} files, the GGUF says {count}")


def layers(values: Mapping[str, Any]) -> int | None:
    """Layers that a draft can tap: without those that predict further tokens, which llama.cpp counts at the end."""
    family = values.get("general.architecture")
    blocks, extra = values.get(f"{family}.block_count"), values.get(f"{family}.nextn_predict_layers", 0)
    return blocks - extra if type(blocks) is int and type(extra) is int else None


def size_checks(needs: Needs, values: Mapping[str, Any], embedding: GgufTensor | None) -> list[Check]:
    """Check mask row, hidden size and taps against the served target's embedding and layers."""
    family = values.get("general.architecture")
    rows, width = embedding.shape[-2:] if embedding and len(embedding.shape) > 1 else (None, None)
    has = f"no {EMBEDDING}" if rows is None else f"an embedding of {rows} rows"
    return [
        Check(
            "mask row",
            rows is not None and needs.mask is not None and 0 <= needs.mask < rows,
            f"mask token {'missing' if needs.mask is None else needs.mask}, the served target has {has}",
        ),
        equal(f"{family}.embedding_length", needs.hidden, values.get(f"{family}.embedding_length")),
        Check(
            EMBEDDING,
            width is not None and width == needs.hidden,
            f"draft {said(needs.hidden)}, served target {said(width)}",
        ),
        *_layer_checks(needs, layers(values)),
    ]


def _layer_checks(needs: Needs, count: int | None) -> list[Check]:
    taps = None if needs.taps is None else list(needs.taps)
    stated = "draft" if needs.layers is None else f"draft {needs.layers}"
    detail = f"{stated} with taps {said(taps)}, served target {said(count)}"
    reached = count is not None and bool(taps) and min(taps or [0]) >= 0 and max(taps or [0]) < count
    checks = [Check("taps", reached, f"layers: {detail}")]
    if needs.layers is not None:
        checks.append(Check("target layers", count == needs.layers, detail))
    return checks
