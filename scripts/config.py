"""Read and check the configuration: every key described, defaulted and typed by the schema.

The schema (workflow/schemas/config.schema.yaml) is the one source of truth; docs/config.md is made from it.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from scripts import core
from scripts.core import BuildError

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = ROOT / "workflow" / "schemas" / "config.schema.yaml"
DOCS = ROOT / "docs" / "config.md"

PAIR_SECTIONS = ("serve", "serve_mlx")
"""Sections that stand in a pair, of those that a step takes on their own."""


_WHOLE = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
Validator = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator, type_checker=_WHOLE
)
"""The schema's dialect, but for 16.0: JSON Schema counts it as an integer, the steps do not."""


@functools.cache
def schema() -> dict[str, Any]:
    """The JSON schema of the configuration."""
    loaded: dict[str, Any] = yaml.safe_load(SCHEMA.read_text(encoding="utf-8"))
    return loaded


def load(path: Path) -> dict[str, Any]:
    """Read a YAML configuration file and check it.

    Raises:
        BuildError: the file is missing, not YAML, or does not follow the schema.
    """
    try:
        raw = core.parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BuildError(f"cannot read the config: {error.strerror}", path, "name an existing file") from error
    except ValueError as error:
        raise BuildError(f"not valid YAML: {error}", path, "mend the line it names") from error
    return validated(raw, path)


def validated(config: Any, where: str | Path = "config") -> dict[str, Any]:
    """Check a configuration against the schema and the rules a schema cannot say; fill in defaults.

    Raises:
        BuildError: one line naming the key, and the nearest known one where a key is unknown.
    """
    tree = schema()
    errors = list(Validator(tree).iter_errors(config))
    if errors:
        raise _explain(min(errors, key=lambda error: (len(error.absolute_path), str(error.message))), where)
    filled: dict[str, Any] = _fill(config, tree, tree)
    seen: dict[str, str] = {}
    for key, pair in filled["pairs"].items():
        if pair["name"] in seen:
            raise BuildError(
                f"pairs {seen[pair['name']]} and {key} have one name, {pair['name']}", where, "give each its own name"
            )
        seen[pair["name"]] = key
        served = pair.get("target_gguf")
        if served is not None and set(served) not in ({"repo", "quant"}, {"path"}):
            given = " and ".join(served) or "nothing"
            raise BuildError(
                f"pairs.{key}.target_gguf gives {given}",
                where,
                "give repo and quant, or path of a file on this machine",
            )
        measured = [step for step in ("bench", "gate") if pair[step]]
        if measured and served is None:
            raise BuildError(
                f"pairs.{key}.{measured[0]} is true and there is no target to measure with",
                where,
                "give target_gguf, or leave it out",
            )
        if pair["serve_mlx"]["block_tokens"] > pair["expect"]["block_size"]:
            raise BuildError(
                f"pairs.{key}.serve_mlx.block_tokens is {pair['serve_mlx']['block_tokens']}, the draft's block has "
                f"{pair['expect']['block_size']} tokens",
                where,
                "lower it to the block size",
            )
        for name in ("mlx_target", "publish_mlx"):
            if name in pair and not pair["mlx"]:
                raise BuildError(
                    f"pairs.{key}.{name} is given and mlx is false", where, "set mlx: true, or drop the key"
                )
        first, last = pair["expect"].get("added_token_ids", [0, 0])
        if first > last:
            raise BuildError(
                f"pairs.{key}.expect.added_token_ids runs from {first} to {last}", where, "name the first id first"
            )
    _check_sidecars(filled["pairs"], where)
    return filled


def section(name: str, value: Any, where: str | Path) -> dict[str, Any]:
    """One section of the configuration that was given on its own, of a pair or of all, checked and filled.

    Raises:
        BuildError: one line naming the key.
    """
    tree = schema()
    node = {**tree["$defs"]["pair"]["properties"], **tree["properties"]}[name]
    errors = list(Validator({"$defs": tree["$defs"], **node}).iter_errors(value))
    if errors:
        raise _explain(min(errors, key=lambda error: (len(error.absolute_path), str(error.message))), where)
    return dict(_fill(value, node, tree))


def _check_sidecars(pairs: Mapping[str, Any], where: str | Path) -> None:
    """Refuse second names of files that are first names of some.

    Raises:
        BuildError: they are.
    """
    names = {pair["name"] for pair in pairs.values()}
    for key, pair in pairs.items():
        target = pair["target"]["repo"].rpartition("/")[2]
        if pair.get("publish", {}).get("sidecar") and f"dflash-{target}" in names:
            raise BuildError(
                f"pairs.{key}.publish.sidecar: dflash-{target} is the name of a pair",
                where,
                "give that pair another name",
            )


def _explain(error: Any, where: str | Path) -> BuildError:
    """One line for one schema error: the key, what is wrong with it and the nearest valid one."""
    if error.validator == "oneOf" and isinstance(error.instance, Mapping):
        sources = [branch["properties"]["source"]["const"] for branch in error.schema["oneOf"]]
        if error.instance.get("source") not in sources:
            wrong = f"llama_cpp.source is {error.instance.get('source')!r}"
            return BuildError(wrong, where, f"use one of: {', '.join(sources)}")
        chosen = sources.index(error.instance["source"])
        error = next(inner for inner in error.context if inner.schema_path[0] == chosen)
    key = ".".join(str(part) for part in error.absolute_path) or "the top level"
    if error.validator == "additionalProperties":
        known = list(error.schema.get("properties", {}))
        unknown = next(name for name in error.instance if name not in known)
        near = difflib.get_close_matches(str(unknown), known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"use one of: {', '.join(known)}"
        return BuildError(f"unknown key {unknown} in {key}", where, hint)
    if error.validator == "required":
        missing = next(name for name in error.validator_value if name not in error.instance)
        return BuildError(f"key {missing} is missing in {key}", where, "add it; docs/config.md describes it")
    meaning = error.schema.get("description")
    do = f"mend the value; docs/config.md says: {meaning}" if meaning else "mend the value; docs/config.md describes it"
    return BuildError(f"{key}: {error.message}", where, do)


def _resolve(node: Mapping[str, Any], tree: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow a `$ref` inside the schema; what stands beside it wins."""
    if "$ref" not in node:
        return node
    found: Any = tree
    for part in str(node["$ref"]).removeprefix("#/").split("/"):
        found = found[part]
    return {**_resolve(found, tree), **{key: value for key, value in node.items() if key != "$ref"}}


def _fill(value: Any, node: Mapping[str, Any], tree: Mapping[str, Any]) -> Any:
    """A copy of a valid value with the schema's defaults filled in."""
    node = _resolve(node, tree)
    if not isinstance(value, Mapping):
        return value
    properties = node.get("properties", {})
    rest = node.get("additionalProperties")
    filled = {
        key: _fill(inner, properties.get(key, rest if isinstance(rest, Mapping) else {}), tree)
        for key, inner in value.items()
    }
    for key, inner in properties.items():
        if key not in filled and "default" in _resolve(inner, tree):
            filled[key] = _fill(_resolve(inner, tree)["default"], inner, tree)
    return filled


def rows(node: Mapping[str, Any] | None = None, prefix: str = "", required: bool = True) -> Iterator[tuple[str, ...]]:
    """Each key of the schema as a row: key, required or default, description."""
    tree = schema()
    node = _resolve(node if node is not None else tree, tree)
    for name, child in node.get("properties", {}).items():
        inner = _resolve(child, tree)
        must = "required" if name in node.get("required", ()) else _default(inner)
        yield f"{prefix}{name}", must, str(inner.get("description", ""))
        yield from rows(inner, f"{prefix}{name}.")
    rest = node.get("additionalProperties")
    if isinstance(rest, Mapping):
        yield from rows(rest, f"{prefix}<key>.")
    for branch in node.get("oneOf", ()):
        label = branch["properties"]["source"]["const"]
        for key, must, text in rows(branch, prefix):
            yield f"{key} ({label})", must, text


def _default(node: Mapping[str, Any]) -> str:
    return f"`{node['default']}`".replace("False", "false").replace("True", "true") if "default" in node else "optional"


def document() -> str:
    """docs/config.md: the table of config keys."""
    lines = [
        "# Configuration",
        "",
        "Made from `workflow/schemas/config.schema.yaml` by `python -m scripts.config --write-docs`; a test compares.",
        "",
        "| key | required or default | meaning |",
        "| --- | --- | --- |",
        *(f"| `{key}` | {must} | {text} |" for key, must, text in rows()),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("config", type=Path, nargs="?", default=ROOT / "config.yaml", help="file to check")
    arguments.add_argument("--write-docs", action="store_true", help="write docs/config.md from the schema")
    return core.run(arguments, _step)


def _step(options: argparse.Namespace) -> None:
    if options.write_docs:
        with core.atomic(DOCS) as temporary:
            temporary.write_text(document(), encoding="utf-8")
        return
    config = load(options.config)
    core.say(f"{options.config}: {len(config['pairs'])} pair(s), in order")


if __name__ == "__main__":
    sys.exit(main())
