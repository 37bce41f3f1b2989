"""How a pair is served: what its config says, what tuning found on this machine, and where its files lie.

A key that is written in the config counts before the tuned value, and that before the usual one. The schema therefore
gives no default to the keys that are tuned: what stands in the config was written there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from scripts import core
from scripts.config import Validator, schema
from scripts.core import BuildError
from scripts.gguf_remote import parts

TUNED = ("n_max", "draft_quant", "kv_type", "draft_kv_type")
"""The keys that tuning may set, in results/<pair>/serve.yaml."""

KV_TYPE = "f16"
"""Of both models where nothing says otherwise: quantized draft caches have cost acceptance in some builds."""

QUANTS = ("Q4_K_M", "Q8_0")
"""Drafts to serve where nothing says otherwise: the first of these that the pair has."""


@dataclass(frozen=True)
class Settings:
    """What llama-server is started with, the models apart; units and meaning as in docs/config.md."""

    source: str
    context: int
    kv_type: str
    draft_kv_type: str
    draft_quant: str
    n_max: int
    host: str
    port: int
    checkpoints: int
    fit_target: int
    gpu_layers: int | None = None
    threads: int | None = None
    parallel: int | None = None
    tuned_for: str | None = None
    """Workload that the tuned values in use are for; None where none is used."""

    @classmethod
    def parse(cls, text: str) -> Settings:
        """Settings from the JSON that a rule gives a step.

        Raises:
            ValueError: it is not that.
        """
        try:
            return cls(**json.loads(text))
        except TypeError as error:
            raise ValueError(str(error)) from error

    def dump(self) -> str:
        """The settings as JSON, for :meth:`parse`."""
        return json.dumps(asdict(self))


def chosen_pair(pairs: Mapping[str, Any], named: str | None) -> str:
    """The pair to serve: the one that is named, or the only one.

    Raises:
        BuildError: there are several and none is named, or none of that name.
    """
    if named is None and len(pairs) == 1:
        return next(iter(pairs))
    if named is None or named not in pairs:
        what = f"no pair {named}" if named else f"the config has {len(pairs)} pairs"
        do = f"name one of them: snakemake --cores 1 serve --config serve_pair={next(iter(pairs))}"
        raise BuildError(what, "serve_pair in the config", do)
    return named


def for_measuring(settings: Settings) -> Settings:
    """The settings with one request at a time, and without what changes no figure: where they come from and listen."""
    return replace(settings, source="local", host="127.0.0.1", port=0, parallel=1, tuned_for=None)


def tuned_file(results: Path) -> Path:
    """Where tuning leaves what it found for a pair."""
    return results / "serve.yaml"


def read_tuned(path: Path) -> dict[str, Any]:
    """What tuning found, with ``for``: the workload it is best for. Empty where nothing was tuned.

    Raises:
        BuildError: the file is not YAML, or holds a key or a value that tuning does not write.
    """
    if not path.exists():
        return {}
    do = "tune the pair again, or delete the file"
    try:
        found = core.parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BuildError(f"cannot read the tuned settings: {error}", path, do) from error
    known = schema()["$defs"]["pair"]["properties"]["serve"]["properties"]
    rules = {
        "type": "object",
        "additionalProperties": False,
        "required": ["for"],
        "properties": {"for": {"type": "string", "minLength": 1}} | {key: known[key] for key in TUNED},
        "$defs": schema()["$defs"],
    }
    for wrong in Validator(rules).iter_errors(found):
        key = ".".join(str(part) for part in wrong.absolute_path)
        raise BuildError(f"tuned settings: {f'{key}: ' if key else ''}{wrong.message}", path, do)
    return dict(found)


def settings(pair: Mapping[str, Any], tuned: Mapping[str, Any], where: str | Path) -> Settings:
    """Settings of one pair.

    Args:
        pair: its entry of the checked config.
        tuned: what :func:`read_tuned` gave.
        where: the config, for messages.

    Raises:
        BuildError: more tokens are to be drafted than the draft can, or a draft of a quant that the pair has not.
    """
    serve, quants, limit = pair["serve"], list(pair["quants"]), pair["expect"]["block_size"] - 1
    usual = {
        "n_max": limit,
        "draft_quant": next((quant for quant in QUANTS if quant in quants), quants[0]),
        "kv_type": KV_TYPE,
        "draft_kv_type": KV_TYPE,
    }
    used = [key for key in TUNED if key in tuned and key not in serve]
    chosen = usual | {key: tuned[key] for key in used} | {key: serve[key] for key in TUNED if key in serve}
    if chosen["n_max"] > limit:
        raise BuildError(
            f"n_max is {chosen['n_max']}: the draft's blocks have {limit + 1} tokens, and llama.cpp would clamp it"
            f" to {limit}",
            _source("n_max", used, where),
            f"give serve.n_max from 1 to {limit}",
        )
    if chosen["draft_quant"] not in quants:
        raise BuildError(
            f"the draft has no quant {chosen['draft_quant']}",
            _source("draft_quant", used, where),
            f"use one of its quants: {', '.join(quants)}",
        )
    fixed = ("source", "context", "host", "port", "checkpoints", "fit_target")
    optional = ("gpu_layers", "threads", "parallel")
    return Settings(
        **chosen,
        **{key: serve[key] for key in fixed},
        **{key: serve.get(key) for key in optional},
        tuned_for=tuned["for"] if used else None,
    )


def _source(key: str, used: Sequence[str], where: str | Path) -> str:
    return "results/<pair>/serve.yaml" if key in used else f"{where}, serve.{key}"


@dataclass(frozen=True)
class Served:
    """The target to serve: a file of this machine, or a repository and a quant. One of the two is set."""

    path: Path | None = None
    repo: str | None = None
    quant: str | None = None


def served(pair: Mapping[str, Any], mode: str | None, results: Path, where: str | Path) -> Served:
    """The target of a pair, or of one of its modes.

    Args:
        pair: its entry of the checked config.
        mode: name of an alternative target; None for the pair's own.
        results: the pair's folder of results.
        where: the config, for messages.

    Raises:
        BuildError: no such mode, no target, or none in the place that ``serve.source`` asks for.
    """
    own, modes = pair.get("target_gguf", {}), pair["serve"]["modes"]
    if mode is not None and mode not in modes:
        names = ", ".join(modes)
        do = f"use one of: {names}" if names else "name some in serve.modes"
        raise BuildError(f"there is no mode {mode}", f"{where}, serve.modes", do)
    chosen = own if mode is None else modes[mode]
    key = "target_gguf" if mode is None else f"serve.modes.{mode}"
    if "path" not in chosen and "quant" not in chosen:
        raise BuildError("no target to serve", f"{where}, {key}", "give repo and quant, or path of a file")
    repo = chosen.get("repo", own.get("repo"))
    if pair["serve"]["source"] == "hub":
        if repo is None or "quant" not in chosen:
            what = "serve.source is hub and the target is a file of this machine"
            raise BuildError(what, f"{where}, {key}", "give repo and quant, or serve.source: local")
        return Served(repo=repo, quant=chosen["quant"])
    if "path" in chosen:
        return Served(path=Path(chosen["path"]))
    folder = fetched_folder(results, mode)
    # The folder holds one model, its parts numbered in its name.
    files = sorted(folder.glob("*.gguf"))
    if not files:
        do = (
            f"fetch it first: snakemake --cores 1 {folder}/files.json"
            if mode is None or "repo" not in chosen
            else f"put its files there, give serve.modes.{mode} a path, or use serve.source: hub"
        )
        raise BuildError(f"the target's {chosen['quant']} is not on this machine", folder, do)
    return Served(path=files[0])


def fetched_folder(results: Path, mode: str | None = None) -> Path:
    """Where the served target is downloaded to: the files of its quant and nothing else with that ending."""
    return results / "source" / (f"target_gguf-{mode}" if mode else "target_gguf")


def draft_file(pair: Mapping[str, Any], quant: str, results: Path) -> Path:
    """The GGUF of a pair's draft of one quant."""
    return results / "gguf" / f"{pair['name']}-{quant}.gguf"


def present(path: Path, role: str, do: str) -> None:
    """Check that a model's file is there, with all its parts.

    llama-server says of a draft that is not there what it says of one that it cannot measure, and goes on.

    Raises:
        BuildError: it is not.
    """
    if not path.is_file():
        raise BuildError(f"the {role} is not there", path, do)
    parts(path.name, [other.name for other in path.parent.glob("*.gguf")], str(path))
