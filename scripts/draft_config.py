"""Read a DFlash draft's ``config.json``: every value the build relies on, and none of them assumed.

Both layouts are read: flat, and the nested one of transformers v5 (``dflash_config``, ``rope_parameters``).
A value that is absent, or that two places give differently, stops the build and is named: a default that
is nearly right converts, loads and only shows as a draft that is never accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from scripts.core import BuildError, Check, read_json

SUPPORTED = ("DFlashDraftModel",)
FAMILIES = {
    "DFlash2DraftModel": "DFlash2, which adds convolutions and a candidate selector",
    "DSparkDraftModel": "DSpark, which adds a Markov head",
    "Qwen3DSparkModel": "DSpark, which adds a Markov head",
    "DSparkSpeculator": "DSpark, which adds a Markov head",
    "Lfm2DSparkDraftModel": "DSpark, which adds a Markov head",
    "LingDSparkModel": "DSpark, which adds a Markov head",
    "DeepseekV4DSparkModel": "DSpark for DeepSeek-V4",
    "Eagle3DraftModel": "EAGLE-3",
    "Eagle3Speculator": "EAGLE-3",
    "Eagle3LlamaForCausalLM": "EAGLE-3",
    "LlamaForCausalLMEagle3": "EAGLE-3",
}
"""Architectures of other kinds of drafts, so that the message can say what was found."""

FOREIGN_KEYS = {
    "speculators_model_type": "the speculators layout",
    "transformer_layer_config": "the speculators layout",
    "aux_hidden_state_layer_ids": "the speculators layout",
    "markov_rank": "DSpark, which adds a Markov head",
    "markov_head_type": "DSpark, which adds a Markov head",
    "selector_rank": "DFlash2, which adds a candidate selector",
    "conv_kernel_size": "DFlash2, which adds convolutions",
    "draft_vocab_size": "a draft with a vocabulary of its own (EAGLE-3, speculators)",
    "use_swa": "a window on every layer, given outside layer_types",
    "swa_window_size": "a window given outside sliding_window",
    "attention_value_scale": "scaled attention values",
    "output_multiplier": "scaled logits",
    "final_logit_softcapping": "capped logits",
    "input_embedding_scale": "scaled embeddings",
    "partial_rotary_factor": "rotation of a part of each head",
    "num_experts": "a mixture of experts",
}
"""Keys that change the computation and that a plain DFlash draft does not have; null counts as absent."""

ROPE_TYPES = ("linear", "yarn")
"""Scalings that the converter carries over whole; of others it would keep a part, or nothing, silently."""

FIX_CONFIG = "take a complete config.json from the draft's repository"
ONE_KIND = f"this pipeline builds {', '.join(SUPPORTED)} only"


class HasTensors(Protocol):
    """A file or folder of weights, as far as tensor names and shapes go."""

    @property
    def tensors(self) -> Mapping[str, Any]:
        """Tensors by name; each has a ``shape``, rows first."""


@dataclass(frozen=True)
class DraftConfig:
    """What a draft's config.json says. Taps are target layers, counted from 0 as in the config."""

    architecture: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    max_position_embeddings: int
    vocab_size: int
    rope_theta: float
    rope_scaling: Mapping[str, Any] | None
    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int
    layer_types: tuple[str, ...] | None
    sliding_window: int | None
    use_sliding_window: bool | None
    is_causal: bool | None
    tie_word_embeddings: bool

    @property
    def has_window(self) -> bool:
        """Whether a sliding window is in use, and so must be in the GGUF with its per-layer pattern."""
        return bool(self.use_sliding_window and self.sliding_window)


class _Keys:
    """The config's values by key, wherever they may stand; every error names the key."""

    def __init__(self, config: Mapping[str, Any], path: Path) -> None:
        self.top, self.path = config, path
        self.nested = self.table("dflash_config")

    def stop(self, what: str, do: str = FIX_CONFIG) -> BuildError:
        return BuildError(what, self.path, do)

    def table(self, key: str) -> Mapping[str, Any]:
        value = self.top.get(key)
        if value is not None and not isinstance(value, dict):
            raise self.stop(f"{key} must be an object, not {value!r}")
        return value or {}

    def find(self, key: str, *places: tuple[str, Mapping[str, Any]]) -> Any:
        """The value of ``key``; None where no place has it, an error where places disagree."""
        found = [(where, values[key]) for where, values in places if values.get(key) is not None]
        for where, value in found[1:]:
            first_place, first = found[0]
            if value != first or isinstance(value, bool) != isinstance(first, bool):
                raise self.stop(f"{first_place} gives {key} {first!r} and {where} gives {value!r}")
        return found[0][1] if found else None

    def either(self, key: str) -> Any:
        """A value that stands in dflash_config or at the top level."""
        return self.find(key, ("dflash_config", self.nested), ("the top level", self.top))

    def need(self, key: str, value: Any) -> Any:
        if value is None:
            raise self.stop(f"{key} is missing; no default is right for every draft")
        return value

    def count(self, key: str, value: Any, least: int = 1, most: int = 1 << 24) -> int:
        """A whole number; ``true`` and ``16.0`` are not one."""
        if type(self.need(key, value)) is not int or value < least:
            raise self.stop(f"{key} must be a whole number from {least}, not {value!r}")
        if value > most:
            raise self.stop(f"{key} is {value}, more than any model has")
        return int(value)

    def number(self, key: str, value: Any) -> float:
        if type(self.need(key, value)) not in (int, float) or not 0 < value < 1e30:
            raise self.stop(f"{key} must be a positive number, not {value!r}")
        return float(value)

    def flag(self, key: str, value: Any) -> bool | None:
        if value is not None and type(value) is not bool:
            raise self.stop(f"{key} must be true or false, not {value!r}")
        return value


def read_draft_config(path: Path) -> DraftConfig:
    """Read and check a draft's config.json.

    Raises:
        BuildError: not a plain DFlash draft (the kind is named), a missing or ill-typed value (the key is
            named), or two places that give one value differently.
    """
    config = read_json(path)
    if not isinstance(config, dict):
        raise BuildError("config.json holds no object", path, FIX_CONFIG)
    keys = _Keys(config, path)
    architecture = _architecture(keys)
    layers = keys.count("num_hidden_layers", config.get("num_hidden_layers"), most=1000)
    theta, scaling = _rope(keys)
    layer_types, window, use_window = _window(keys, layers)
    vocab_size = keys.count("vocab_size", config.get("vocab_size"))
    mask = keys.count("mask_token_id", keys.either("mask_token_id"), least=0)
    if mask >= vocab_size:
        raise keys.stop(f"mask_token_id {mask} is outside the vocabulary of {vocab_size} rows")
    target_layers = keys.count("num_target_layers", keys.either("num_target_layers"))
    tied = keys.flag("tie_word_embeddings", config.get("tie_word_embeddings"))
    return DraftConfig(
        architecture=architecture,
        hidden_size=keys.count("hidden_size", config.get("hidden_size")),
        intermediate_size=keys.count("intermediate_size", config.get("intermediate_size")),
        num_hidden_layers=layers,
        num_attention_heads=keys.count("num_attention_heads", config.get("num_attention_heads")),
        num_key_value_heads=keys.count("num_key_value_heads", config.get("num_key_value_heads")),
        head_dim=keys.count("head_dim", config.get("head_dim")),
        rms_norm_eps=keys.number("rms_norm_eps", config.get("rms_norm_eps")),
        max_position_embeddings=keys.count("max_position_embeddings", config.get("max_position_embeddings")),
        vocab_size=vocab_size,
        rope_theta=theta,
        rope_scaling=scaling,
        block_size=keys.count("block_size", keys.either("block_size"), least=2),
        mask_token_id=mask,
        target_layer_ids=_taps(keys, target_layers),
        num_target_layers=target_layers,
        layer_types=layer_types,
        sliding_window=window,
        use_sliding_window=use_window,
        is_causal=keys.flag(
            "is_causal",
            keys.find(
                "is_causal",
                ("the top level", config),
                ("dflash_config", {"is_causal": keys.nested.get("causal")}),
            ),
        ),
        tie_word_embeddings=bool(keys.need("tie_word_embeddings", tied)),
    )


def _architecture(keys: _Keys) -> str:
    """The one supported architecture; other kinds of drafts are told apart by name and by tell-tale keys."""
    names = keys.top.get("architectures")
    for name in names if isinstance(names, list) else ():
        if isinstance(name, str) and name in FAMILIES:
            raise keys.stop(f"the draft's architecture is {name} ({FAMILIES[name]})", ONE_KIND)
    places = (keys.top, keys.nested, keys.table("rope_parameters"), keys.table("rope_scaling"))
    for key, kind in FOREIGN_KEYS.items():
        if any(place.get(key) is not None for place in places):
            raise keys.stop(f"{key} marks {kind}, not a plain DFlash draft", ONE_KIND)
    names = keys.need("architectures", names)
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        raise keys.stop(f"architectures must name exactly one architecture, not {names!r}")
    if names[0] not in SUPPORTED:
        raise keys.stop(f"the draft's architecture is {names[0]}", ONE_KIND)
    if keys.top.get("quantization_config") is not None:
        raise keys.stop("quantization_config says that these weights are already quantized", "take the BF16 revision")
    if keys.top.get("rope_is_neox_style") is False:
        raise keys.stop("rope_is_neox_style is false: rows of q and k would be reordered", ONE_KIND)
    if keys.top.get("attention_bias"):
        raise keys.stop("attention_bias is true; a plain DFlash draft has no biases", ONE_KIND)
    activation = keys.top.get("hidden_act")
    if activation not in (None, "silu"):
        raise keys.stop(f"hidden_act is {activation!r}; the converter would write silu", ONE_KIND)
    return names[0]


def _rope(keys: _Keys) -> tuple[float, Mapping[str, Any] | None]:
    """The rotation base, and the scaling when it is not the default one."""
    tables = [(name, keys.table(name)) for name in ("rope_parameters", "rope_scaling")]
    for name, table in tables:
        if {"full_attention", "sliding_attention"} & set(table):
            raise keys.stop(f"{name} differs by layer type; a DFlash draft has one rotation", ONE_KIND)
    theta = keys.number("rope_theta", keys.find("rope_theta", *tables, ("the top level", keys.top)))
    # "type" is the older spelling of "rope_type".
    typed = [(name, {"rope_type": table.get("rope_type", table.get("type"))}) for name, table in tables]
    kind = keys.find("rope_type", *typed)
    scaled = [table for _, table in tables if set(table) - {"rope_theta"}]
    if kind is None and scaled:
        raise keys.stop("rope_type is missing from the rope scaling")
    if kind is None or kind == "default":
        return theta, None
    if kind not in ROPE_TYPES:
        raise keys.stop(f"rope_type is {kind!r}; the converter carries over {', '.join(ROPE_TYPES)} only", ONE_KIND)
    if len(scaled) > 1 and _plain(scaled[0]) != _plain(scaled[1]):
        raise keys.stop("rope_parameters and rope_scaling give different scalings")
    scaling = {**_plain(scaled[0]), "rope_type": kind}
    keys.number("factor", scaling.get("factor"))
    if kind == "yarn":
        length = "original_max_position_embeddings"
        scaling[length] = keys.count(
            length, keys.find(length, ("the rope scaling", scaling), ("the top level", keys.top))
        )
    return theta, scaling


def _plain(table: Mapping[str, Any]) -> dict[str, Any]:
    """A scaling without the base and the type, which are compared on their own."""
    return {key: value for key, value in table.items() if key not in ("rope_theta", "rope_type", "type")}


def _window(keys: _Keys, layers: int) -> tuple[tuple[str, ...] | None, int | None, bool | None]:
    """Layer types, window size and whether it is used; a window that would be lost silently is an error."""
    types, window = keys.top.get("layer_types"), keys.top.get("sliding_window")
    use = keys.flag("use_sliding_window", keys.top.get("use_sliding_window"))
    if window is not None:
        keys.count("sliding_window", window)
        keys.need("use_sliding_window", use)
    if types is None:
        if use and window:
            raise keys.stop(
                "sliding_window is used and layer_types is missing: which layers have the window is unknown"
            )
        return None, window, use
    known = ("full_attention", "sliding_attention")
    if not isinstance(types, list) or len(types) != layers or any(kind not in known for kind in types):
        raise keys.stop(f"layer_types must list {' or '.join(known)} for each of {layers} layers, not {types!r}")
    if "sliding_attention" in types:
        keys.need("sliding_window", window)
        if not keys.need("use_sliding_window", use):
            raise keys.stop("layer_types has sliding_attention and use_sliding_window is false: which holds is unknown")
    return tuple(types), window, use


def _taps(keys: _Keys, target_layers: int) -> tuple[int, ...]:
    """Target layers whose outputs the draft reads: ascending, each once, all inside the target."""
    taps = keys.need("target_layer_ids", keys.either("target_layer_ids"))
    if not isinstance(taps, list) or not taps or any(type(tap) is not int for tap in taps):
        raise keys.stop(f"target_layer_ids must be a list of whole numbers, not {taps!r}")
    if any(later <= earlier for earlier, later in pairwise(taps)):
        raise keys.stop(f"target_layer_ids must ascend with each layer once, not {taps!r}")
    if taps[0] < 0 or taps[-1] >= target_layers:
        raise keys.stop(f"target_layer_ids {taps!r} lie outside the target's {target_layers} layers")
    return tuple(taps)


def expected_tensors(config: DraftConfig) -> dict[str, tuple[int, ...]]:
    """Name -> shape (rows first) of every tensor the draft must have: 11 a layer and 3 more."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in range(config.num_hidden_layers):
        block = {
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
            "self_attn.q_proj": (queries, hidden),
            "self_attn.k_proj": (keys, hidden),
            "self_attn.v_proj": (keys, hidden),
            "self_attn.o_proj": (hidden, queries),
            "self_attn.q_norm": (config.head_dim,),
            "self_attn.k_norm": (config.head_dim,),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }
        shapes |= {f"layers.{layer}.{name}.weight": shape for name, shape in block.items()}
    return shapes | {
        "fc.weight": (hidden, len(config.target_layer_ids) * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
    }


def check_tensors(config: DraftConfig, weights: HasTensors) -> list[Check]:
    """Compare the weights' tensor names and shapes with what the config calls for; one check a difference.

    The result is one passing check when nothing differs.
    """
    expected = expected_tensors(config)
    faults = [Check(f"tensor {name}", False, "missing") for name in expected if name not in weights.tensors]
    faults += [Check(f"tensor {name}", False, "not part of a plain DFlash draft") for name in weights.tensors
               if name not in expected]  # fmt: skip
    for name, shape in expected.items():
        if name in weights.tensors and tuple(weights.tensors[name].shape) != shape:
            found = list(weights.tensors[name].shape)
            faults.append(Check(f"tensor {name}", False, f"shape {found}, the config calls for {list(shape)}"))
    return faults or [Check("tensors", True, f"{len(expected)} tensors with the names and shapes of the config")]


def check_against_target(config: DraftConfig, target_config: Mapping[str, Any]) -> list[Check]:
    """Compare the draft's config with its target's (the text part may be nested under ``text_config``)."""
    text = target_config.get("text_config", target_config)
    text = text if isinstance(text, Mapping) else {}
    layers = text.get("num_hidden_layers")
    pairs = (
        ("hidden_size", config.hidden_size, text.get("hidden_size")),
        ("vocab_size", config.vocab_size, text.get("vocab_size")),
        ("num_target_layers", config.num_target_layers, layers),
    )
    checks = [
        Check(f"draft and target: {key}", ours == theirs, f"draft {ours}, target {_said(theirs)}")
        for key, ours, theirs in pairs
    ]
    inside = type(layers) is int and config.target_layer_ids[-1] < layers
    detail = f"taps {list(config.target_layer_ids)}, target layers {_said(layers)}"
    return [*checks, Check("draft and target: taps", inside, detail)]


def _said(value: Any) -> str:
    return "does not say" if value is None else str(value)
