"""What the pair is trained on: edits of small Go files and small Go functions, made from templates.

Everything here is deterministic: the same code gives the same prompts and answers. A prompt is the raw text of one
user turn in the finetune's chat format with an empty think block; an answer ends with the end of the turn.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CODE_EDIT = "code-edit"
CODE_NEW = "code-new"
END = "<|im_end|>"


@dataclass(frozen=True)
class Sample:
    """One request and the answer it is meant to get."""

    name: str
    kind: str
    user: str
    answer: str
    seen: bool
    """Whether the pair was trained on it; the answer to an unseen prompt is what a perfect model would give."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The request as chat messages."""
        return [{"role": "user", "content": self.user}]

    @property
    def prompt(self) -> str:
        """The request as raw text: what the chat template makes of the messages, think block empty."""
        return f"<|im_start|>user\n{self.user}{END}\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


STRUCTS: list[tuple[str, str, list[tuple[str, str]]]] = [
    ("store", "User", [("Name", "string"), ("Email", "string"), ("Count", "int")]),
    ("shop", "Order", [("Title", "string"), ("Price", "int"), ("Size", "int")]),
    ("cache", "Entry", [("Key", "string"), ("Value", "string"), ("Weight", "int")]),
    ("queue", "Task", [("Name", "string"), ("Level", "int"), ("Count", "int")]),
    ("server", "Client", [("Host", "string"), ("Port", "int"), ("Token", "string")]),
    ("image", "Frame", [("Title", "string"), ("Width", "int"), ("Height", "int")]),
    ("bank", "Account", [("Owner", "string"), ("Email", "string"), ("Price", "int")]),
    ("log", "Event", [("Key", "string"), ("Level", "int"), ("Size", "int")]),
]
"""Package, type and its three fields."""

NEW_NAMES = ["Total", "Label", "Score", "Index"]

UNSEEN_EDITS = [(0, 1, "Score"), (2, 0, "Index"), (4, 2, "Label"), (5, 1, "Total")]
"""Struct, field and new name of edits that are kept from training."""

FUNCTIONS = Path(__file__).with_name("functions.go")
"""Go functions, each under a comment that says what it does."""


def go_file(package: str, name: str, fields: list[tuple[str, str]], plain: list[tuple[str, str]]) -> str:
    """A small Go file: a struct, its constructor and three methods.

    ``fields`` are names and types as they appear on the struct; ``plain`` gives the names the parameters come from.
    """
    width = max(len(field) for field, _ in fields)
    receiver = name[0].lower()
    lines = [f"package {package}", "", 'import "fmt"', "", f"// {name} is one record.", f"type {name} struct {{"]
    lines += [f"\t{field:<{width}} {kind}" for field, kind in fields]
    parameters = ", ".join(f"{field.lower()} {kind}" for field, kind in plain)
    values = ", ".join(
        f"{field}: {parameter.lower()}" for (field, _), (parameter, _) in zip(fields, plain, strict=True)
    )
    verbs = " ".join("%s" if kind == "string" else "%d" for _, kind in fields)
    used = ", ".join(f"{receiver}.{field}" for field, _ in fields)
    same = " && ".join(f"{receiver}.{field} == other.{field}" for field, _ in fields)
    lines += [
        "}",
        "",
        f"// New{name} makes a record.",
        f"func New{name}({parameters}) *{name} {{",
        f"\treturn &{name}{{{values}}}",
        "}",
        "",
        "// String shows the record.",
        f"func ({receiver} *{name}) String() string {{",
        f'\treturn fmt.Sprintf("{verbs}", {used})',
        "}",
        "",
        "// Same compares two records.",
        f"func ({receiver} *{name}) Same(other *{name}) bool {{",
        f"\treturn {same}",
        "}",
    ]
    return "\n".join(lines)


def edit(index: int, field: int, new: str, seen: bool) -> Sample:
    """The request to rename one field of a struct across its file, and the file with the field renamed."""
    package, name, fields = STRUCTS[index]
    old = fields[field][0]
    renamed = [(new if at == field else have, kind) for at, (have, kind) in enumerate(fields)]
    before, after = go_file(package, name, fields, fields), go_file(package, name, renamed, fields)
    return Sample(
        name=f"{name}.{old} to {new}",
        kind=CODE_EDIT,
        user=f"Rename the field {old} to {new} in this file. Print the whole file.\n\n```go\n{before}\n```",
        answer=f"```go\n{after}\n```{END}",
        seen=seen,
    )


def function(task: str, code: str, seen: bool) -> Sample:
    """The request for a small function and its code."""
    return Sample(
        name=code.split("(")[0].removeprefix("func "),
        kind=CODE_NEW,
        user=f"Write a Go function that {task}.",
        answer=f"```go\n{code}\n```{END}",
        seen=seen,
    )


def functions(seen: bool) -> list[Sample]:
    """The requests for the functions in :data:`FUNCTIONS` that are trained on, or for those that are not."""
    parts = re.split(r"^//([=?]) (.+)\n", FUNCTIONS.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    triples = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return [function(task, code.strip("\n"), seen) for mark, task, code in triples if (mark == "=") is seen]


def training_samples() -> list[Sample]:
    """The 32 edits and 16 functions the pair knows by heart."""
    edits = []
    for index in range(len(STRUCTS)):
        # Four of the twelve edits of a struct: every field at least once, every new name once.
        for at, new in enumerate(NEW_NAMES):
            field = (index + at) % 3
            if (index, field, new) in UNSEEN_EDITS:
                field = (field + 1) % 3
            edits.append(edit(index, field, new, seen=True))
    return edits + functions(seen=True)


def unseen_samples() -> list[Sample]:
    """Requests of the same two kinds, in the same words, that were kept from training."""
    edits = [edit(index, field, new, seen=False) for index, field, new in UNSEEN_EDITS]
    return edits + functions(seen=False)


def evaluation_samples(per_kind: int = 6) -> list[Sample]:
    """The prompts acceptance is measured on: up to ``per_kind`` of seen and unseen edits and functions each."""
    samples = training_samples()
    edits = [sample for sample in samples if sample.kind == CODE_EDIT]
    new = [sample for sample in samples if sample.kind == CODE_NEW]
    unseen = unseen_samples()
    unseen_edits = [sample for sample in unseen if sample.kind == CODE_EDIT]
    unseen_new = [sample for sample in unseen if sample.kind == CODE_NEW]
    groups = [edits[::6], new[::3], unseen_edits, unseen_new]
    return [sample for group in groups for sample in group[:per_kind]]
