"""Make the MLX folder of a draft: its weights as they are, and a config that dflash-mlx reads.

dflash-mlx reads ``rope_theta``, ``block_size`` and ``rope_scaling`` at the top level and the taps and the mask
id under ``dflash_config``; it takes 0 for a mask id it does not find. Nothing is removed from the config.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts import core
from scripts.core import BuildError, Report, atomic, link_or_copy, read_json, say, sha256_file
from scripts.draft_config import check_tensors, read_draft_config
from scripts.safetensors_header import check_weights

REQUIRED = (
    "model_type",
    "hidden_size",
    "num_hidden_layers",
    "intermediate_size",
    "num_attention_heads",
    "rms_norm_eps",
    "vocab_size",
    "num_key_value_heads",
    "max_position_embeddings",
    "head_dim",
    "tie_word_embeddings",
)
"""Keys that dflash-mlx cannot load without, besides those that are lifted."""

LENGTH = "original_max_position_embeddings"
"""Context length of the model before yarn stretched it."""

WHERE = "the draft's config.json"
COMPLETE = "take a complete config.json from the draft's repository"


def flatten_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with everything where dflash-mlx looks for it; originals stay, new keys follow them.

    A config that is flat already comes back equal, so flattening twice is flattening once.

    Raises:
        BuildError: a key that is needed is nowhere, or stands in two places with different values.
    """
    for key in REQUIRED:
        if config.get(key) is None:
            raise BuildError(f"{key} is missing; dflash-mlx does not load without it", WHERE, COMPLETE)
    dflash, rope, scaling = (_table(config, key) for key in ("dflash_config", "rope_parameters", "rope_scaling"))
    flat = dict(config)
    _put(flat, "rope_theta", _agreed("rope_theta", (config, rope, scaling)))
    for key in ("block_size", "num_target_layers"):
        _put(flat, key, _agreed(key, (config, dflash)))
    nested = dict(dflash)
    for key in ("target_layer_ids", "mask_token_id"):
        _put(nested, key, _agreed(key, (dflash, config)))
    _put(flat, "dflash_config", nested)
    carried = _scaling(rope, scaling)
    if carried is not None:
        _put(flat, "rope_scaling", _with_length(config, carried))
    return flat


def _table(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = config.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise BuildError(f"{key} must be an object, not {value!r}", WHERE, COMPLETE)
    return value or {}


def _agreed(key: str, places: tuple[Mapping[str, Any], ...]) -> Any:
    """The value of a key that has to be somewhere and the same everywhere."""
    found = [place[key] for place in places if place.get(key) is not None]
    if not found:
        raise BuildError(f"{key} is missing; no default is right for every draft", WHERE, COMPLETE)
    if any(value != found[0] for value in found):
        raise BuildError(f"{key} is given as {' and as '.join(map(repr, found))}", WHERE, COMPLETE)
    return found[0]


def _put(place: dict[str, Any], key: str, value: Any) -> None:
    """Set a key unless it has the value already: 1e7 and 10000000 are one value, and the file's text stays."""
    if place.get(key) != value:
        place[key] = value


def _scaling(rope: Mapping[str, Any], scaling: Mapping[str, Any]) -> dict[str, Any] | None:
    """What has to stand under ``rope_scaling``; None where the scaling is the default one, which is none."""
    kinds = [kind for table in (rope, scaling) if (kind := table.get("rope_type", table.get("type"))) is not None]
    if any(kind != kinds[0] for kind in kinds):
        raise BuildError(f"rope_type is given as {' and as '.join(map(repr, kinds))}", WHERE, COMPLETE)
    parts = [{key: value for key, value in table.items() if key != "rope_theta"} for table in (rope, scaling)]
    parts = [part for part in parts if part]
    if not kinds:
        if parts:
            raise BuildError("rope_type is missing from the rope scaling", WHERE, COMPLETE)
        return None
    kind = kinds[0]
    if kind == "default":
        return None
    bare = [{key: value for key, value in part.items() if key not in ("rope_type", "type")} for part in parts]
    if any(part != bare[0] for part in bare):
        raise BuildError("rope_parameters and rope_scaling give different scalings", WHERE, COMPLETE)
    return dict(scaling) if scaling else {"rope_type": kind, **bare[0]}


def _with_length(config: Mapping[str, Any], scaling: dict[str, Any]) -> dict[str, Any]:
    """A yarn scaling with the context length it starts from, which mlx-lm takes for 4096 where it is not told."""
    if scaling.get("rope_type", scaling.get("type")) != "yarn":
        return scaling
    result = dict(scaling)
    _put(result, LENGTH, _agreed(LENGTH, (scaling, config)))
    return result


def make_mlx(draft_dir: Path, out_dir: Path, report_path: Path) -> Report:
    """Write ``out_dir/config.json``, link the weights beside it, and write the report with their sha256.

    A config that is flat already is copied byte for byte.

    Raises:
        BuildError: the draft is wrong (see read_draft_config, check_weights, flatten_config), or ``out_dir`` is
            the draft's own folder or holds weights of something else.
    """
    if out_dir.resolve() == draft_dir.resolve():
        raise BuildError("the MLX folder would be the draft's own folder", out_dir, "name another folder")
    source = draft_dir / "config.json"
    draft = read_draft_config(source)
    weights = check_weights(draft_dir)
    report = Report()
    for check in check_tensors(draft, weights):
        report.require(check.name, check.ok, check.detail, draft_dir, "take weights and config of one revision")
    original = read_json(source)
    flat = flatten_config(original)
    names = {path.name for path in weights.files}
    strange = sorted(path.name for path in out_dir.glob("*.safetensors*") if path.name not in names)
    if strange:
        raise BuildError(f"{strange[0]} does not belong to this draft", out_dir, "empty the folder and run again")
    added = [key for key in flat if key not in original]
    report.check("config", True, f"added at the top level: {', '.join(added)}" if added else "nothing to add")
    with atomic(out_dir / "config.json") as temporary:
        if flat == original:
            temporary.write_bytes(source.read_bytes())
        else:
            temporary.write_text(json.dumps(flat, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    for path in weights.files:
        link_or_copy(path, out_dir / path.name)
    files = ["config.json", *(path.name for path in weights.files)]
    report.figures = {
        "added_keys": added,
        "rope_theta": flat["rope_theta"],
        "block_size": flat["block_size"],
        "mask_token_id": flat["dflash_config"]["mask_token_id"],
        "target_layer_ids": flat["dflash_config"]["target_layer_ids"],
        "sliding_layers": sum(kind == "sliding_attention" for kind in draft.layer_types or ()),
        "bytes": {name: (out_dir / name).stat().st_size for name in files},
        "sha256": {name: sha256_file(out_dir / name, f"sha256 of {name}") for name in files},
    }
    report.write(report_path)
    return report


def main(argv: list[str] | None = None) -> int:
    """The command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--draft", type=Path, required=True, help="the draft's folder, as downloaded")
    arguments.add_argument("--out", type=Path, required=True, help="the MLX folder to make")
    arguments.add_argument("--report", type=Path, required=True, help="where the JSON report goes")
    return core.run(arguments, _step, argv)


def _step(options: argparse.Namespace) -> None:
    report = make_mlx(options.draft, options.out, options.report)
    say(f"wrote {options.out}: {report.checks[-1].detail}")


if __name__ == "__main__":
    sys.exit(main())
