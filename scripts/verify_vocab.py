"""Compare a GGUF's vocabulary with the target's tokenizer files, token by token.

A draft speaks its target's token ids and has no embedding of its own. llama.cpp does not compare the two
vocabularies when it drafts with DFlash, so a shifted id would only show as a draft that is never accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf

from scripts.core import BuildError, Check, read_json
from scripts.verify_metadata import value_check

MODEL, PRE = "gpt2", "qwen35"
KIND = gguf.TokenType
TAKE_TOKENIZER = "take the tokenizer files of the target again"
SPECIAL_KEYS = {
    "bos": "tokenizer.ggml.bos_token_id",
    "eos": "tokenizer.ggml.eos_token_id",
    "unk": "tokenizer.ggml.unknown_token_id",
    "sep": "tokenizer.ggml.seperator_token_id",
    "pad": "tokenizer.ggml.padding_token_id",
    "cls": "tokenizer.ggml.cls_token_id",
}
"""GGUF keys of special ids, spelled as llama.cpp spells them."""


@dataclass(frozen=True)
class Vocabulary:
    """What a target's tokenizer files say: text and kind by id (``count`` rows), merges, special ids."""

    tokens: list[str]
    kinds: list[int]
    merges: list[str]
    special_ids: Mapping[str, tuple[int, str]]
    adds: Mapping[str, bool]
    chat_template: str | None


def read_vocabulary(folder: Path, count: int) -> Vocabulary:
    """Read a target's tokenizer.json, tokenizer_config.json, config.json and chat template.

    Args:
        folder: the target's tokenizer folder, as given to the converter.
        count: rows of the vocabulary; ids without a text become ``[PADn]`` of kind UNUSED.

    Raises:
        BuildError: a file is missing or malformed, two tokens share an id, or an id is outside the vocabulary.
    """
    path = folder / "tokenizer.json"
    tokenizer, settings, config = (
        _object(folder / name) for name in (path.name, "tokenizer_config.json", "config.json")
    )
    model = tokenizer.get("model")
    model = model if isinstance(model, dict) else {}
    added = tokenizer.get("added_tokens") or []
    if model.get("type") != "BPE" or not isinstance(model.get("vocab"), dict) or not isinstance(added, list):
        raise BuildError("tokenizer.json is no BPE tokenizer with a vocabulary", path, TAKE_TOKENIZER)
    tokens: list[str | None] = [None] * count
    kinds = [int(KIND.UNUSED)] * count
    for text, token_id in model["vocab"].items():
        _place(tokens, token_id, text, path)
        kinds[token_id] = int(KIND.NORMAL)
    for entry in added:
        if not isinstance(entry, dict) or not isinstance(entry.get("content"), str):
            raise BuildError("an added token of tokenizer.json is malformed", path, TAKE_TOKENIZER)
        _place(tokens, entry.get("id"), entry["content"], path)
        kinds[entry["id"]] = _added_kind(entry)
    return Vocabulary(
        tokens=[f"[PAD{token_id}]" if text is None else text for token_id, text in enumerate(tokens)],
        kinds=kinds,
        merges=list(_merges(model.get("merges"), path)),
        special_ids=_special_ids(settings, config, {entry["content"]: entry["id"] for entry in reversed(added)}),
        adds=_adds(tokenizer, settings, path),
        chat_template=_template(folder, settings),
    )


def _object(path: Path) -> dict[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict):
        raise BuildError("the file holds no JSON object", path, TAKE_TOKENIZER)
    return value


def _place(tokens: list[str | None], token_id: Any, text: str, path: Path) -> None:
    """Put a token at its id; the same text may come twice, another text may not."""
    if type(token_id) is not int or not 0 <= token_id < len(tokens):
        raise BuildError(
            f"token {text!r} has id {token_id!r}, and the vocabulary has {len(tokens)} rows", path, TAKE_TOKENIZER
        )
    if tokens[token_id] not in (None, text):
        raise BuildError(f"tokens {tokens[token_id]!r} and {text!r} share id {token_id}", path, TAKE_TOKENIZER)
    tokens[token_id] = text


def _added_kind(entry: Mapping[str, Any]) -> int:
    """CONTROL for special tokens and for texts in the angle-and-bar form, else USER_DEFINED."""
    looks_special = entry["content"].startswith("<|") and entry["content"].endswith("|>")
    return int(KIND.CONTROL if entry.get("special") or looks_special else KIND.USER_DEFINED)


def _merges(merges: Any, path: Path) -> Iterator[str]:
    """Merges in the one-text form; a space inside a part is written as llama.cpp's converter writes it."""
    if not isinstance(merges, list) or not merges:
        raise BuildError("tokenizer.json has no merges", path, TAKE_TOKENIZER)
    for merge in merges:
        if isinstance(merge, str):
            yield merge
        elif isinstance(merge, list) and len(merge) == 2 and all(isinstance(part, str) for part in merge):
            yield " ".join(part.replace(" ", chr(ord(" ") + 256)) for part in merge)
        else:
            raise BuildError(f"merge {merge!r} of tokenizer.json is malformed", path, TAKE_TOKENIZER)


def _special_ids(
    settings: Mapping[str, Any], config: Mapping[str, Any], added: Mapping[str, int]
) -> dict[str, tuple[int, str]]:
    """Special ids and the file each comes from: the tokenizer's own first, then the model's."""
    text_config = config.get("text_config")
    places = [config, text_config if isinstance(text_config, dict) else {}]
    result = {}
    for kind in SPECIAL_KEYS:
        entry = settings.get(f"{kind}_token")
        text = entry.get("content") if isinstance(entry, dict) else entry
        if isinstance(text, str) and text in added:
            result[kind] = (added[text], "tokenizer_config.json")
            continue
        found = next((place[key] for place in places if place.get(key := f"{kind}_token_id") is not None), None)
        if type(found) is int:
            result[kind] = (found, "config.json")
    return result


def _adds(tokenizer: Mapping[str, Any], settings: Mapping[str, Any], path: Path) -> dict[str, bool]:
    """Whether bos and eos are added to a text; the tokenizer's post-processor wins over its settings."""
    processor = tokenizer.get("post_processor") or {}
    steps = processor.get("processors", [processor]) if isinstance(processor, dict) else [processor]
    kinds = [step.get("type") if isinstance(step, dict) else step for step in steps if step]
    if unknown := [kind for kind in kinds if kind != "ByteLevel"]:
        raise BuildError(
            f"tokenizer.json has the post-processor {unknown[0]!r}; a Qwen3.5 tokenizer has ByteLevel or none",
            path,
            TAKE_TOKENIZER,
        )
    given = {kind: settings.get(f"add_{kind}_token") for kind in ("bos", "eos")}
    adds = {kind: value for kind, value in given.items() if isinstance(value, bool)}
    return adds | ({"bos": False, "eos": False} if kinds else {})


def _template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    """The chat template, from tokenizer_config.json or from its own file."""
    path = folder / "chat_template.jinja"
    template = settings.get("chat_template")
    if template is None and path.is_file():
        template = path.read_text(encoding="utf-8")
    return template if isinstance(template, str) else None


def vocab_checks(values: Mapping[str, Any], vocabulary: Vocabulary, mask_token_id: int) -> list[Check]:
    """Compare a GGUF's ``tokenizer.*`` values with the target's vocabulary and the draft's mask id."""
    tokens, kinds = values.get("tokenizer.ggml.tokens"), values.get("tokenizer.ggml.token_type")
    checks = [
        value_check(values, "tokenizer.ggml.model", MODEL, "a Qwen3.5 target"),
        value_check(values, "tokenizer.ggml.pre", PRE, "a Qwen3.5 target"),
        _rows_check("tokenizer.ggml.tokens", tokens, vocabulary.tokens, "token"),
        _rows_check("tokenizer.ggml.token_type", kinds, vocabulary.kinds, "kind of token"),
        _rows_check("tokenizer.ggml.merges", values.get("tokenizer.ggml.merges"), vocabulary.merges, "merge"),
        value_check(values, "tokenizer.ggml.mask_token_id", mask_token_id, "the draft's config.json"),
    ]
    for kind, key in SPECIAL_KEYS.items():
        found = vocabulary.special_ids.get(kind)
        checks += _optional(values, key, found[0] if found else None, f"the target's {found[1]}" if found else "")
    for kind in ("bos", "eos"):
        key = f"tokenizer.ggml.add_{kind}_token"
        checks += _optional(values, key, vocabulary.adds.get(kind), "the target's tokenizer")
    if "eos" not in vocabulary.special_ids:
        checks.append(Check(SPECIAL_KEYS["eos"], False, "the target's files name no end-of-text token"))
    template = values.get("tokenizer.chat_template")
    held = "the target's" if template == vocabulary.chat_template else "differs from the target's"
    return [*checks, Check("tokenizer.chat_template", template == vocabulary.chat_template, held)]


def _optional(values: Mapping[str, Any], key: str, wanted: Any, source: str) -> list[Check]:
    """Check a value that is there exactly when the target's files give it."""
    if wanted is not None:
        return [value_check(values, key, wanted, source)]
    return [Check(key, False, f"is {values[key]!r}; the target's files give none")] if key in values else []


def _rows_check(key: str, found: Any, wanted: list[Any], what: str) -> Check:
    """Compare two lists row by row; the first three differences are shown with both sides."""
    if not isinstance(found, list):
        return Check(key, False, f"missing; the target has {len(wanted)}")
    if found == wanted:
        return Check(key, True, f"{len(wanted)} equal the target's")
    pairs = enumerate(zip(found, wanted, strict=False))
    different = [
        f"{what} {row} is {ours!r}, the target's {theirs!r}" for row, (ours, theirs) in pairs if ours != theirs
    ]
    lengths = [f"{len(found)} rows, the target has {len(wanted)}"] * (len(found) != len(wanted))
    more = f"; {len(different)} differ in all" if len(different) > 3 else ""
    return Check(key, False, "; ".join(lengths + different[:3]) + more)
