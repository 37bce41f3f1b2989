"""Reading a tokenizer folder: which string every id has, and where its files contradict each other.

Up to seven files of a folder speak about the same ids. They are written by different versions of different
programs, and nothing makes them agree. All of them are read here into one map from id to string.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.core import BuildError, Check, read_json, say

ROLES = ("eos", "bos", "pad")
"""The special tokens that files name by role; ``<role>_token`` holds a string, ``<role>_token_id`` an id."""

MOST = 1 << 22
"""No token has this id or a higher one: the largest vocabularies have 2^18, and gaps are looked for one by one."""

SHOWN = 3
"""Contradictions quoted in a message; the rest are counted."""


@dataclass(frozen=True)
class ChatTemplate:
    """Where a folder keeps its chat template and the sha256 of its text (of its JSON, when it is a list)."""

    source: str
    sha256: str


@dataclass(frozen=True)
class Vocab:
    """What the files of one tokenizer folder say.

    Attributes:
        folder: where they lie.
        tokens: id to string, for every id any file gives a string; strings are as the files hold them, so
            ordinary tokens are in the byte alphabet of byte-level BPE.
        added: the ids of added tokens (matched as a whole in text, never made by merges).
        roles: ``eos``, ``bos`` and ``pad`` to the string the tokenizer's own files name, where they name one.
        config_ids: ``(file, role, id)`` for every special id in config.json and generation_config.json.
        vocab_size: rows of the embedding according to config.json (``text_config`` or top level).
        rules: sha256 of the parts of tokenizer.json that decide how text is cut: merges, pre_tokenizer, normalizer.
        templates: the chat templates found, the one transformers uses first.
        checks: what the files agree and disagree on, by kind.
    """

    folder: Path
    tokens: dict[int, str]
    added: frozenset[int]
    roles: dict[str, str]
    config_ids: tuple[tuple[str, str, int], ...]
    vocab_size: int | None
    rules: dict[str, str]
    templates: tuple[ChatTemplate, ...]
    checks: tuple[Check, ...]

    @property
    def last(self) -> int:
        """The highest id that has a string."""
        return max(self.tokens)

    @property
    def gaps(self) -> list[int]:
        """Ids below the last one that have no string."""
        return [token_id for token_id in range(self.last) if token_id not in self.tokens]

    def show(self, token_id: int) -> str:
        """An id's string as it appears in messages."""
        return repr(self.tokens[token_id]) if token_id in self.tokens else "no string"

    def ids_of(self, role: str) -> list[int]:
        """Every id that any file gives the role ``eos``, ``bos`` or ``pad``, ascending."""
        named = {token_id for token_id, string in self.tokens.items() if string == self.roles.get(role)}
        return sorted(named | {token_id for _, key, token_id in self.config_ids if key == role})


@dataclass
class _Names:
    """Collects ids, strings and names from all files and keeps what contradicts something read before."""

    strings: dict[int, tuple[str, str]] = field(default_factory=dict)
    ids: dict[str, tuple[int, str]] = field(default_factory=dict)
    named: dict[str, tuple[str, str]] = field(default_factory=dict)
    wanted: list[tuple[str, str, str]] = field(default_factory=list)
    two_strings: list[str] = field(default_factory=list)
    two_ids: list[str] = field(default_factory=list)
    two_names: list[str] = field(default_factory=list)

    def put(self, token_id: int, string: str, source: str) -> None:
        """Note that ``source`` gives ``token_id`` this string."""
        known, where = self.strings.setdefault(token_id, (string, source))
        if known != string:
            self.two_strings.append(f"id {token_id} is {known!r} in {where} and {string!r} in {source}")
        other, where = self.ids.setdefault(string, (token_id, source))
        if other != token_id:
            self.two_ids.append(f"{string!r} has id {other} in {where} and id {token_id} in {source}")

    def name(self, key: str, string: str, source: str) -> None:
        """Note that ``source`` calls the token ``string`` by the name ``key``, such as ``eos_token``."""
        self.wanted.append((key, string, source))
        known, where = self.named.setdefault(key, (string, source))
        if known != string:
            first, second = (
                f"{text!r} (id {self.ids[text][0] if text in self.ids else 'none'})" for text in (known, string)
            )
            self.two_names.append(f"{key} is {first} in {where} and {second} in {source}")

    def without_id(self) -> list[str]:
        """Names of tokens that no file gives an id; a loader would append them at the next free one."""
        return [
            f"{source} names {string!r} as {key}, but no file gives it an id"
            for key, string, source in self.wanted
            if string not in self.ids
        ]


def brief(lines: list[str], good: str) -> str:
    """The first few lines of a list joined to one and the rest counted; ``good`` when there is none."""
    if not lines:
        return good
    more = f"; and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
    return "; ".join(lines[:SHOWN]) + more


def is_id(value: object) -> bool:
    """Whether a JSON value is an integer that can be a token id (true and false are not)."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def content(value: object) -> str | None:
    """The string of a token written as a string or as an object with ``content``; None for anything else."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _object(path: Path) -> dict[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict):
        raise BuildError("not a JSON object", path, "delete the file and fetch it again")
    return value


def _list(values: Mapping[str, Any], key: str, path: Path) -> list[Any]:
    value = values.get(key) or []
    if not isinstance(value, list):
        raise BuildError(f"{key} is no list", path, "fetch the file again, or use another revision")
    return value


def _optional(folder: Path, name: str) -> dict[str, Any]:
    return _object(folder / name) if (folder / name).is_file() else {}


def _put(names: _Names, token_id: object, string: object, source: str, path: Path) -> int:
    text = content(string)
    if not isinstance(token_id, int) or not is_id(token_id) or token_id >= MOST or text is None:
        raise BuildError(
            f"{source} has an entry that is not an id and a string: {token_id!r}, {string!r}"[:300],
            path,
            "fetch the file again, or use another revision",
        )
    names.put(token_id, text, source)
    return token_id


def _read_ids(names: _Names, folder: Path) -> tuple[dict[str, Any], set[int]]:
    """Read every file that pairs ids with strings; return tokenizer.json and the ids of added tokens."""
    path = folder / "tokenizer.json"
    tokenizer = _object(path)
    model = tokenizer.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(model, dict) or not isinstance(vocab, dict) or not vocab:
        kind = model.get("type") if isinstance(model, dict) else None
        raise BuildError(
            f"tokenizer.json has no vocabulary of strings and ids (model type {kind!r})",
            path,
            "use a target with a BPE tokenizer",
        )
    for string, token_id in vocab.items():
        _put(names, token_id, string, "tokenizer.json model.vocab", path)
    added = set()
    for entry in _list(tokenizer, "added_tokens", path):
        token_id = entry.get("id") if isinstance(entry, dict) else None
        added.add(_put(names, token_id, entry, "tokenizer.json added_tokens", path))
    for string, token_id in _optional(folder, "vocab.json").items():
        _put(names, token_id, string, "vocab.json", folder / "vocab.json")
    for string, token_id in _optional(folder, "added_tokens.json").items():
        added.add(_put(names, token_id, string, "added_tokens.json", folder / "added_tokens.json"))
    path = folder / "tokenizer_config.json"
    decoder = _optional(folder, path.name).get("added_tokens_decoder") or {}
    for key, entry in decoder.items() if isinstance(decoder, dict) else [("added_tokens_decoder", decoder)]:
        token_id = int(key) if key.isdecimal() and len(key) < 10 else key
        added.add(_put(names, token_id, entry, "tokenizer_config.json added_tokens_decoder", path))
    return tokenizer, added


def _named_tokens(values: Mapping[str, Any], source: str) -> Iterator[tuple[str, str, str]]:
    """Every ``(key, string, source)`` by which a settings file names a token."""
    for key, value in values.items():
        text = content(value)
        if key.endswith("_token") and text is not None:
            yield key, text, source
        elif key in ("model_specific_special_tokens", "extra_special_tokens") and isinstance(value, dict):
            for inner, entry in value.items():
                if (text := content(entry)) is not None:
                    yield inner, text, f"{source} {key}"
        elif key in ("additional_special_tokens", "extra_special_tokens") and isinstance(value, list):
            for entry in value:
                if (text := content(entry)) is not None:
                    # Items of a list have no name of their own, so they can only lack an id, never contradict.
                    yield f"{key} {text!r}", text, source


def _config_ids(folder: Path) -> tuple[tuple[str, str, int], ...]:
    """Every special id of config.json (top level and text_config) and generation_config.json."""
    config, generation = _optional(folder, "config.json"), _optional(folder, "generation_config.json")
    text_config = config.get("text_config")
    found = []
    for source, values in (
        ("config.json", config),
        ("config.json text_config", text_config if isinstance(text_config, dict) else {}),
        ("generation_config.json", generation),
    ):
        for role in ROLES:
            value = values.get(f"{role}_token_id")
            for token_id in value if isinstance(value, list) else [] if value is None else [value]:
                if not is_id(token_id):
                    raise BuildError(
                        f"{source}: {role}_token_id is {token_id!r}, not a token id",
                        folder / source.split()[0],
                        "use a revision whose file names the token",
                    )
                found.append((source, role, token_id))
    return tuple(found)


def embedding_rows(config: Mapping[str, Any], path: Path) -> int | None:
    """The ``vocab_size`` of a target's config: rows of its embedding, at the top level or in ``text_config``.

    Returns:
        The number of rows, or None when the config names none.

    Raises:
        BuildError: the value is not a positive integer, or the two places disagree.
    """
    text_config = config.get("text_config")
    places = (config, text_config if isinstance(text_config, dict) else {})
    sizes = [place["vocab_size"] for place in places if place.get("vocab_size") is not None]
    for size in sizes:
        if not is_id(size) or size == 0:
            raise BuildError(
                f"vocab_size is {size!r}, not a number of rows", path, "use a revision with a right config"
            )
    if len(set(sizes)) > 1:
        raise BuildError(
            f"vocab_size is {sizes[0]} at the top level and {sizes[1]} in text_config",
            path,
            "use a revision whose config agrees with itself",
        )
    return int(sizes[0]) if sizes else None


def chat_templates(folder: Path) -> tuple[ChatTemplate, ...]:
    """The chat templates of a folder, in the order transformers looks for them.

    Raises:
        BuildError: a file that holds one cannot be read.
    """
    found: list[tuple[str, Any]] = []
    jinja = folder / "chat_template.jinja"
    if jinja.is_file():
        try:
            found.append((jinja.name, jinja.read_text(encoding="utf-8")))
        except UnicodeDecodeError as error:
            raise BuildError(f"not UTF-8 text: {error}", jinja, "delete the file and fetch it again") from error
    for name in ("chat_template.json", "tokenizer_config.json"):
        found.append((f"{name} chat_template", _optional(folder, name).get("chat_template")))
    return tuple(
        ChatTemplate(source, _sha256(value if isinstance(value, str) else _canonical(value)))
        for source, value in found
        if value and isinstance(value, str | list | dict)
    )


def _canonical(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _rules(tokenizer: Mapping[str, Any], path: Path) -> dict[str, str]:
    """Hashes of what decides how text is cut; merges count the same as pairs and as joined strings."""
    merges = _list(tokenizer["model"], "merges", path)
    joined = [" ".join(map(str, merge)) if isinstance(merge, list) else str(merge) for merge in merges]
    parts = {"merges": joined, **{key: tokenizer.get(key) for key in ("pre_tokenizer", "normalizer")}}
    return {key: _sha256(_canonical(value)) for key, value in parts.items()}


def _config_checks(names: _Names, added: set[int], config_ids: tuple[tuple[str, str, int], ...]) -> list[Check]:
    """Special ids of the configs: without a string they are wrong, in another role than the tokenizer's a warning.

    Stock files differ here: a base model's config ends at the end of the text, its tokenizer at the end of a turn.
    """
    wrong, odd = [], []
    for source, role in dict.fromkeys((source, role) for source, role, _ in config_ids):
        ids = [token_id for where, key, token_id in config_ids if (where, key) == (source, role)]
        wrong += [
            f"{source} has {role}_token_id {token_id}, which has no string in tokenizer.json"
            for token_id in ids
            if token_id not in names.strings
        ]
        strings = {token_id: names.strings[token_id][0] for token_id in ids if token_id in names.strings}
        own, where = names.named.get(f"{role}_token", (None, ""))
        listed = ", ".join(f"id {token_id} {string!r}" for token_id, string in strings.items())
        if strings and own is not None and own not in strings.values():
            own_id = names.ids[own][0] if own in names.ids else None
            odd.append(f"{role} is {listed} in {source} and id {own_id} {own!r} in {where}")
        elif any(token_id not in added for token_id in strings):
            odd.append(f"{source} gives the role {role} to an ordinary token: {listed}")
    detail = brief(odd, f"{len(config_ids)} ids, all with a string")
    detail = f"warning: {detail}" if odd else detail
    return [Check("special ids of the configs", not wrong, brief(wrong, detail))]


def collect_vocab(folder: Path) -> Vocab:
    """Read a tokenizer folder without judging it: contradictions are failing checks of the result.

    Raises:
        BuildError: tokenizer.json is missing, or a file is not JSON of the expected form.
    """
    names = _Names()
    tokenizer, added = _read_ids(names, folder)
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        for key, string, source in _named_tokens(_optional(folder, name), name):
            names.name(key, string, source)
    config_ids = _config_ids(folder)
    count = len(names.strings)
    checks = [
        Check("one string per id", not names.two_strings, brief(names.two_strings, f"{count} ids")),
        Check("one id per string", not names.two_ids, brief(names.two_ids, f"{count} strings")),
        Check("special tokens agree", not names.two_names, brief(names.two_names, f"{len(names.named)} names")),
        Check("named tokens have ids", not names.without_id(), brief(names.without_id(), f"{len(names.wanted)} names")),
        *_config_checks(names, added, config_ids),
    ]
    return Vocab(
        folder=folder,
        tokens={token_id: string for token_id, (string, _) in sorted(names.strings.items())},
        added=frozenset(added),
        roles={role: names.named[f"{role}_token"][0] for role in ROLES if f"{role}_token" in names.named},
        config_ids=config_ids,
        vocab_size=embedding_rows(_optional(folder, "config.json"), folder / "config.json"),
        rules=_rules(tokenizer, folder / "tokenizer.json"),
        templates=chat_templates(folder),
        checks=tuple(checks),
    )


def read_vocab(folder: Path) -> Vocab:
    """Read a tokenizer folder: tokenizer.json, and what vocab.json, added_tokens.json, tokenizer_config.json,
    special_tokens_map.json, config.json and generation_config.json say about the same ids.

    Only tokenizer.json must be there. Gaps between ids are not contradictions; see ``Vocab.gaps``.

    Raises:
        BuildError: tokenizer.json is missing, a file is not JSON of the expected form, or two places
            disagree; all disagreements are printed first, each with both files, the id and both strings.
    """
    vocab = collect_vocab(folder)
    failed = [check for check in vocab.checks if not check.ok]
    for check in failed:
        say(f"{check.name}: {check.detail}")
    if failed:
        raise BuildError(
            f"{failed[0].name}: {failed[0].detail}",
            folder,
            "use a revision whose tokenizer files agree with each other",
        )
    return vocab
