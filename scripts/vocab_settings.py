"""Editing a tokenizer_config.json as text, so that what is not changed keeps its order, spelling and line ends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.core import BuildError
from scripts.vocab_files import content

V5_CLASS, LOADABLE_CLASS = "TokenizersBackend", "PreTrainedTokenizerFast"
"""The name transformers v5 writes and v4 does not know, and the name both load as tokenizer.json has it."""


@dataclass(frozen=True)
class Member:
    """One member of a JSON object by its place in the text: ``text[start:end]`` is ``"key": value``."""

    key: str
    start: int
    value: int
    end: int


def members(text: str) -> list[Member]:
    """The members of the outermost object of a valid JSON text, in order."""
    decoder = json.JSONDecoder()
    found = []
    at = _skip(text, text.index("{") + 1)
    while text[at] != "}":
        key, after = decoder.raw_decode(text, at)
        value = _skip(text, _skip(text, after) + 1)
        _, end = decoder.raw_decode(text, value)
        found.append(Member(key, at, value, end))
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at
    return found


def _skip(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at


def edit_settings(text: str, path: Path) -> tuple[str, list[str]]:
    """Make the text of a tokenizer_config.json loadable and change no other character of it.

    ``TokenizersBackend`` becomes ``PreTrainedTokenizerFast``; a list under ``extra_special_tokens`` moves to
    ``additional_special_tokens``, where every version reads it.

    Args:
        text: the file's text.
        path: the file, for messages.

    Returns:
        The new text and what was changed, in words (empty when nothing was).

    Raises:
        BuildError: a key appears twice, the class is not a string, or both lists exist and differ.
    """
    found = {}
    for member in members(text):
        if member.key in found:
            raise BuildError(f"key {member.key!r} appears twice", path, "fetch the file again, or use another revision")
        found[member.key] = member
    before = json.loads(text)
    expected, notes = dict(before), []
    edits: list[tuple[int, int, str]] = []

    name = before.get("tokenizer_class")
    if name is not None and not isinstance(name, str):
        raise BuildError(f"tokenizer_class is {name!r}, not a name", path, "use a revision that names the class")
    if name == V5_CLASS:
        member = found["tokenizer_class"]
        edits.append((member.value, member.end, json.dumps(LOADABLE_CLASS)))
        expected["tokenizer_class"] = LOADABLE_CLASS
        notes.append(f"tokenizer_class {V5_CLASS} -> {LOADABLE_CLASS}")

    extra, additional = before.get("extra_special_tokens"), before.get("additional_special_tokens")
    if isinstance(extra, list):
        member = found["extra_special_tokens"]
        if additional is None and "additional_special_tokens" not in before:
            edits.append((member.start, member.start + len(_key_text(text, member)), '"additional_special_tokens"'))
            expected = {
                "additional_special_tokens" if key == "extra_special_tokens" else key: value
                for key, value in expected.items()
            }
            notes.append("extra_special_tokens (a list) -> additional_special_tokens")
        elif _contents(extra) == _contents(additional):
            edits.append((*_with_comma(text, list(found.values()), member), ""))
            del expected["extra_special_tokens"]
            notes.append("extra_special_tokens (the same list as additional_special_tokens) removed")
        else:
            raise BuildError(
                f"extra_special_tokens {_contents(extra)} and additional_special_tokens "
                f"{_contents(additional)} disagree",
                path,
                "use a revision that states the special tokens once",
            )
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    if json.dumps(json.loads(text)) != json.dumps(expected):  # as text: NaN is not equal to itself
        raise AssertionError(f"the edit of {path} changed more than it should")
    return text, notes


def _key_text(text: str, member: Member) -> str:
    """The key as it is spelt in the text, quotes and escapes included."""
    _, end = json.JSONDecoder().raw_decode(text, member.start)
    return text[member.start : end]


def _with_comma(text: str, everything: Sequence[Member], member: Member) -> tuple[int, int]:
    """The span to cut so that the object stays valid and the lines around it keep their form."""
    at = everything.index(member)
    if at + 1 < len(everything):
        return member.start, everything[at + 1].start
    return everything[at - 1].end, member.end


def _contents(values: object) -> list[str]:
    """The strings of a list of tokens, sorted: the order of the list gives no ids."""
    return sorted(content(value) or repr(value) for value in values) if isinstance(values, list) else [repr(values)]
