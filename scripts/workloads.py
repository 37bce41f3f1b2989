"""Workloads: data files with the prompts that baseline and DFlash are measured on.

A file is YAML: ``{name, description, prompts: [{id, user, system?, raw?}]}``. ``user`` and ``system`` go through the
target's chat template; ``raw`` is what is sent without one, and is ``user`` where it is absent.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema

from scripts import core
from scripts.config import ROOT
from scripts.core import BuildError

_TEXT = {"type": "string", "pattern": r"\S"}
_NAME = {"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]*$"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "description", "prompts"],
    "properties": {
        "name": _NAME,
        "description": _TEXT,
        "prompts": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["id", "user"],
                "properties": {"id": _NAME, "user": _TEXT, "system": _TEXT, "raw": _TEXT},
            },
        },
    },
}
"""What a file may hold."""


@dataclass(frozen=True)
class Prompt:
    """One request of a workload."""

    id: str
    user: str
    system: str | None = None
    raw: str | None = None

    @property
    def messages(self) -> list[dict[str, str]]:
        """The request as chat messages."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": self.user}]

    @property
    def text(self) -> str:
        """The request as it is sent without a template."""
        return self.user if self.raw is None else self.raw


@dataclass(frozen=True)
class Workload:
    """Prompts of one kind; figures are given per workload."""

    name: str
    description: str
    prompts: tuple[Prompt, ...]


def find(name: str | Path) -> Path:
    """A workload's file as the config names it: below the working folder, else below the project's."""
    path = Path(name)
    return path if path.exists() or path.is_absolute() else ROOT / path


def load(path: Path) -> Workload:
    """Read one workload and check it.

    Raises:
        BuildError: the file is missing, not YAML, has an unknown key, an empty text, or one id twice.
    """
    try:
        raw = core.parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BuildError(f"cannot read the workload: {error.strerror}", path, "name it in bench.workloads") from error
    except ValueError as error:
        raise BuildError(f"not valid YAML: {error}", path, "mend the line it names") from error
    errors = sorted(
        jsonschema.Draft202012Validator(SCHEMA).iter_errors(raw),
        key=lambda error: (len(error.absolute_path), str(error.message)),
    )
    if errors:
        key = errors[0].json_path.removeprefix("$").removeprefix(".") or "the file"
        raise BuildError(f"{key}: {errors[0].message}", path, "a workload is {name, description, prompts}")
    prompts = tuple(Prompt(**prompt) for prompt in raw["prompts"])
    ids = [prompt.id for prompt in prompts]
    if twice := next((name for name in ids if ids.count(name) > 1), None):
        raise BuildError(f"two prompts have the id {twice}", path, "give each its own id")
    return Workload(raw["name"], raw["description"], prompts)


def load_all(names: Sequence[str | Path]) -> list[Workload]:
    """Read the workloads that a config names, in its order.

    Raises:
        BuildError: a file is wrong, or two have one name.
    """
    loaded: dict[str, Workload] = {}
    for path in map(find, names):
        workload = load(path)
        if workload.name in loaded:
            raise BuildError(f"two workloads have the name {workload.name}", path, "give each its own name")
        loaded[workload.name] = workload
    return list(loaded.values())


def main(argv: Sequence[str] | None = None) -> int:
    """Command-line front: check files and say what is in them."""
    arguments = core.parser(__doc__)
    arguments.add_argument("files", type=Path, nargs="+", help="workloads to check")
    return core.run(arguments, _step, argv)


def _step(options: argparse.Namespace) -> None:
    for workload in load_all(options.files):
        core.say(f"{workload.name}: {len(workload.prompts)} prompts: {', '.join(p.id for p in workload.prompts)}")


if __name__ == "__main__":
    sys.exit(main())
