"""Compare a GGUF's metadata with the draft's and the target's configuration, value by value.

llama.cpp has a default for nearly every key, so a value that is lost or altered loads and only shows as a
draft that is rarely accepted. Here every value is expected, and none but the expected ones may be there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from scripts.core import Check
from scripts.draft_config import DraftConfig
from scripts.verify_types import Rule

ARCHITECTURE = "dflash"
QUANTIZATION_VERSION = 2
EVERY_FILE = ("architecture", "type", "file_type", "quantization_version", "alignment")
"""Fields of ``general`` that the converter and llama-quantize write themselves."""

_LOCAL = re.compile(r"(?:^|[\s\"'=(])(?:/|~/|\.{1,2}/|file://|[A-Za-z]:[\\/](?!/))")
"""A path of the machine that built the file: absolute, relative to a folder, or of Windows. Addresses are not."""

_YARN = {
    "extrapolation_factor": "yarn_ext_factor",
    "attention_factor": "yarn_attn_factor",
    "beta_fast": "yarn_beta_fast",
    "beta_slow": "yarn_beta_slow",
}


def single(value: float) -> float:
    """A number as the GGUF's 32-bit float holds it."""
    return float(np.float32(value))


def uses_mrope(target_config: Mapping[str, Any]) -> bool:
    """Whether the target rotates by sections, which its draft must then name too."""
    text = target_config.get("text_config", target_config)
    rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
    return "mrope_section" in rope


def expected_values(config: DraftConfig, target_config: Mapping[str, Any]) -> dict[str, Any]:
    """Every ``dflash.*`` value that the GGUF must have, by key without the prefix.

    Target layers are counted from 1 in the GGUF and from 0 in the config.
    """
    values: dict[str, Any] = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "attention.layer_norm_rms_epsilon": single(config.rms_norm_eps),
        "rope.freq_base": single(config.rope_theta),
        "block_size": config.block_size,
        "target_layers": [tap + 1 for tap in config.target_layer_ids],
    }
    if config.has_window:
        values["attention.sliding_window"] = config.sliding_window
        values["attention.sliding_window_pattern"] = [kind == "sliding_attention" for kind in config.layer_types or ()]
    if config.is_causal is not None:
        values["attention.causal"] = config.is_causal
    if uses_mrope(target_config):
        # A draft's positions move along time only, so the other sections are empty.
        values["rope.dimension_sections"] = [config.head_dim // 2, 0, 0, 0]
    return values | _scaling(config.rope_scaling)


def _scaling(scaling: Mapping[str, Any] | None) -> dict[str, Any]:
    if scaling is None:
        return {}
    values: dict[str, Any] = {
        "rope.scaling.type": scaling["rope_type"],
        "rope.scaling.factor": single(scaling["factor"]),
    }
    if scaling["rope_type"] == "yarn":
        values["rope.scaling.original_context_length"] = scaling["original_max_position_embeddings"]
        for key, name in _YARN.items():
            if scaling.get(key) is not None:
                values[f"rope.scaling.{name}"] = single(scaling[key])
    return values


def same(found: Any, wanted: Any) -> bool:
    """Whether two metadata values are equal in value and kind: true is not 1, and 16.0 is not 16."""
    if isinstance(wanted, list):
        if not isinstance(found, list) or len(found) != len(wanted):
            return False
        return all(same(ours, theirs) for ours, theirs in zip(found, wanted, strict=True))
    return type(found) is type(wanted) and bool(found == wanted)


def value_check(values: Mapping[str, Any], key: str, wanted: Any, source: str) -> Check:
    """Check one metadata value; ``source`` says where the wanted value comes from."""
    if key not in values:
        return Check(key, False, f"missing; {source} gives {wanted!r}")
    found = values[key]
    if same(found, wanted):
        return Check(key, True, f"{wanted!r}")
    return Check(key, False, f"is {found!r}; {source} gives {wanted!r}")


def metadata_checks(
    values: Mapping[str, Any], config: DraftConfig, target_config: Mapping[str, Any], rule: Rule
) -> list[Check]:
    """Check architecture, file type, all ``dflash.*`` values, and that nothing else is among them."""
    wanted = {f"{ARCHITECTURE}.{key}": value for key, value in expected_values(config, target_config).items()}
    checks = [
        value_check(values, "general.architecture", ARCHITECTURE, "every loader"),
        value_check(values, "general.file_type", rule.file_type, rule.quant),
        value_check(values, "general.quantization_version", QUANTIZATION_VERSION, "llama.cpp"),
        *(value_check(values, key, value, "config.json") for key, value in wanted.items()),
    ]
    own = ("general.", "tokenizer.")
    extra = sorted(key for key in values if not key.startswith(own) and key not in wanted)
    detail = ", ".join(f"{key} = {values[key]!r}" for key in extra[:3])
    return [
        *checks,
        Check("no other metadata", not extra, f"not called for by config.json: {detail}" if extra else "none"),
    ]


def general_checks(values: Mapping[str, Any], general: Mapping[str, Any], only_these: bool) -> list[Check]:
    """Check the ``general.*`` fields of the build, that no other is there if so wanted, and that none is a path."""
    checks = [value_check(values, key, value, "the build") for key, value in general.items()]
    if only_these:
        known = {*general, *(f"general.{key}" for key in EVERY_FILE)}
        extra = sorted(key for key in values if key.startswith("general.") and key not in known)
        detail = ", ".join(f"{key} = {values[key]!r}" for key in extra[:3])
        checks.append(Check("no other general.*", not extra, f"not given by the build: {detail}" if extra else "none"))
    return [*checks, _paths_check(values)]


def _paths_check(values: Mapping[str, Any]) -> Check:
    """Check that no general.* text is a path: it would differ from machine to machine and tell about it."""
    found = [
        f"{key} = {text!r}"
        for key, value in values.items()
        if key.startswith("general.")
        for text in _texts(value)
        if _LOCAL.search(text)
    ]
    return Check("no local paths", not found, "; ".join(found[:3]) or "none in general.*")


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        yield from (item for item in value if isinstance(item, str))


def same_metadata_check(values: Mapping[str, Any], reference: Mapping[str, Any], path: Path) -> Check:
    """Check that a quantized file's metadata is that of the bf16 file it was made from, but for the file type."""
    keys = dict.fromkeys([*values, *reference])
    moved = [key for key in keys if key != "general.file_type" and not same(values.get(key), reference.get(key))]
    return Check(f"metadata of {path.name}", not moved, f"differs in {', '.join(moved[:3])}" if moved else "the same")
