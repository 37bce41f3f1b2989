"""Every value of a draft's config is found where it stands, or the build stops and names it."""

import copy
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scripts.core import BuildError
from scripts.draft_config import (
    FAMILIES,
    DraftConfig,
    check_against_target,
    check_tensors,
    expected_tensors,
    read_draft_config,
)
from tests.errors_table import Said
from tests.verify_samples import CONFIG, TARGET_CONFIG, draft_shapes, write_json

NESTED: dict[str, Any] = {
    **CONFIG,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 6,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 262144,
    "vocab_size": 248320,
    "dflash_config": {
        "block_size": 16,
        "mask_token_id": 248077,
        "target_layer_ids": [1, 5, 9, 13, 17, 21, 25, 29],
    },
    "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
    "sliding_window": 4096,
    "num_target_layers": 32,
}
FLAT: dict[str, Any] = {
    **{key: value for key, value in NESTED.items() if key not in ("rope_parameters", "layer_types", "sliding_window")},
    "use_sliding_window": False,
    "rope_theta": 10000000,
    "rope_scaling": None,
    "block_size": 16,
    "num_hidden_layers": 5,
    "dflash_config": {"mask_token_id": 248070, "target_layer_ids": [1, 8, 15, 22, 29]},
}
"""The flat layout of spring 2026: all layers full, the block size at the top level."""


def read(folder: Path, config: Any) -> DraftConfig:
    write_json(folder / "config.json", config)
    return read_draft_config(folder / "config.json")


def changed(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A copy with changes by dotted key (``__`` for the dot); None removes the key."""
    result = copy.deepcopy(config)
    for dotted, value in changes.items():
        *tables, key = dotted.split("__")
        place = result
        for table in tables:
            place = place[table]
        if value is None:
            place.pop(key, None)
        else:
            place[key] = value
    return result


def test_the_nested_layout_is_read(tmp_path: Path) -> None:
    config = read(tmp_path, NESTED)
    assert config == DraftConfig(
        architecture="DFlashDraftModel",
        hidden_size=4096,
        intermediate_size=12288,
        num_hidden_layers=6,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        rms_norm_eps=1e-6,
        max_position_embeddings=262144,
        vocab_size=248320,
        rope_theta=1e7,
        rope_scaling=None,
        block_size=16,
        mask_token_id=248077,
        target_layer_ids=(1, 5, 9, 13, 17, 21, 25, 29),
        num_target_layers=32,
        layer_types=("sliding_attention",) * 5 + ("full_attention",),
        sliding_window=4096,
        use_sliding_window=True,
        is_causal=None,
        tie_word_embeddings=False,
    )
    assert config.has_window


def test_the_flat_layout_is_read(tmp_path: Path) -> None:
    config = read(tmp_path, FLAT)
    assert (config.rope_theta, config.block_size, config.mask_token_id) == (1e7, 16, 248070)
    assert config.layer_types is None
    assert not config.has_window


def test_values_at_the_top_level_are_found_there(tmp_path: Path) -> None:
    flat = changed(FLAT, dflash_config=None, mask_token_id=248070, target_layer_ids=[1, 8])
    config = read(tmp_path, flat)
    assert (config.mask_token_id, config.target_layer_ids) == (248070, (1, 8))


def test_values_that_agree_in_two_places_are_one_value(tmp_path: Path) -> None:
    twice = changed(NESTED, rope_theta=1e7, block_size=16, mask_token_id=248077, rope_scaling={"type": "default"})
    assert read(tmp_path, twice) == read(tmp_path, NESTED)


NEEDED = [
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "rms_norm_eps",
    "max_position_embeddings",
    "vocab_size",
    "num_target_layers",
    "tie_word_embeddings",
    "architectures",
    "use_sliding_window",
    "sliding_window",
    "dflash_config__block_size",
    "dflash_config__mask_token_id",
    "dflash_config__target_layer_ids",
    "rope_parameters__rope_theta",
]


@pytest.mark.parametrize("key", NEEDED)
def test_a_missing_key_is_named(tmp_path: Path, key: str, said: Said) -> None:
    with pytest.raises(
        BuildError, match=f"{key.rpartition('__')[2]} is missing; no default is right for every draft"
    ) as caught:
        read(tmp_path, changed(NESTED, **{key: None}))
    said(f"Draft config: {key.replace('__', '.')} missing", caught.value)


NO_COUNTS = {
    "rms_norm_eps",
    "tie_word_embeddings",
    "architectures",
    "use_sliding_window",
    "dflash_config__target_layer_ids",
    "rope_parameters__rope_theta",
}
COUNTS = [key for key in NEEDED if key not in NO_COUNTS]


@pytest.mark.parametrize("key", COUNTS)
@pytest.mark.parametrize("value", [-1, 16.0, "16", True, [16]])
def test_a_count_must_be_a_whole_number(tmp_path: Path, key: str, value: Any) -> None:
    with pytest.raises(BuildError, match=f"{key.rpartition('__')[2]} must be a whole number from"):
        read(tmp_path, changed(NESTED, **{key: value}))


@pytest.mark.parametrize("key", ["rms_norm_eps", "rope_parameters__rope_theta"])
@pytest.mark.parametrize("value", [0, -1.0, "1e7", True, float("inf"), float("nan")])
def test_a_number_must_be_positive(tmp_path: Path, key: str, value: Any) -> None:
    with pytest.raises(BuildError, match=f"{key.rpartition('__')[2]} must be a positive number"):
        read(tmp_path, changed(NESTED, **{key: value}))


def shown(changes: dict[str, Any]) -> str:
    """Changes of a config as a title: keys by their path, values as JSON."""
    return ", ".join(f"`{key.replace('__', '.')}: {json.dumps(value)}`" for key, value in changes.items())


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"rope_theta": 1000000}, "rope_parameters gives rope_theta 10000000 and the top level gives 1000000"),
    ({"rope_scaling": {"rope_theta": 1}}, "rope_parameters gives rope_theta 10000000 and rope_scaling gives 1"),
    ({"rope_scaling": {"type": "yarn", "factor": 2}}, "gives rope_type 'default' and rope_scaling gives 'yarn'"),
    ({"rope_parameters__rope_type": "llama3"}, "rope_type is 'llama3'; the converter carries over linear, yarn only"),
    ({"rope_parameters__rope_type": "linear"}, "factor is missing"),
    (
        {"rope_parameters": {"rope_theta": 1e7, "rope_type": "yarn", "factor": 2}},
        "original_max_position_embeddings is missing",
    ),
    ({"rope_parameters": {"rope_theta": 1e7, "factor": 2}}, "rope_type is missing from the rope scaling"),
    (
        {"rope_parameters": {"full_attention": {"rope_theta": 1e7}}},
        "rope_parameters differs by layer type; a DFlash draft has one rotation",
    ),
    ({"rope_parameters": "default"}, "rope_parameters must be an object, not 'default'"),
    ({"rope_parameters__partial_rotary_factor": 0.5}, "partial_rotary_factor marks rotation of a part of each head"),
    ({"block_size": 8}, "dflash_config gives block_size 16 and the top level gives 8"),
    ({"dflash_config__block_size": 1}, "block_size must be a whole number from 2, not 1"),
    ({"mask_token_id": 248070}, "dflash_config gives mask_token_id 248077 and the top level gives 248070"),
    ({"dflash_config__mask_token_id": 248320}, "mask_token_id 248320 is outside the vocabulary of 248320 rows"),
    ({"target_layer_ids": [1]}, "dflash_config gives target_layer_ids [1, 5, 9, 13, 17, 21, 25, 29] and the top level"),
    ({"dflash_config__target_layer_ids": []}, "target_layer_ids must be a list of whole numbers, not []"),
    ({"dflash_config__target_layer_ids": [1, True]}, "target_layer_ids must be a list of whole numbers"),
    ({"dflash_config__target_layer_ids": [1, 1]}, "target_layer_ids must ascend with each layer once, not [1, 1]"),
    ({"dflash_config__target_layer_ids": [5, 1]}, "target_layer_ids must ascend with each layer once, not [5, 1]"),
    ({"dflash_config__target_layer_ids": [1, 32]}, "target_layer_ids [1, 32] lie outside the target's 32 layers"),
    ({"dflash_config__target_layer_ids": [-1, 3]}, "target_layer_ids [-1, 3] lie outside the target's 32 layers"),
    ({"dflash_config": [16]}, "dflash_config must be an object, not [16]"),
    ({"layer_types": None}, "sliding_window is used and layer_types is missing"),
    ({"layer_types": ["full_attention"]}, "layer_types must list full_attention or sliding_attention for each of 6"),
    ({"layer_types": ["linear_attention"] * 6}, "layer_types must list full_attention or sliding_attention"),
    ({"use_sliding_window": False}, "layer_types has sliding_attention and use_sliding_window is false"),
    ({"use_sliding_window": 1}, "use_sliding_window must be true or false, not 1"),
    ({"is_causal": "no"}, "is_causal must be true or false, not 'no'"),
    ({"is_causal": True, "dflash_config__causal": False}, "the top level gives is_causal True and dflash_config gives"),
    ({"tie_word_embeddings": 0}, "tie_word_embeddings must be true or false, not 0"),
    ({"quantization_config": {"bits": 4}}, "quantization_config says that these weights are already quantized"),
    ({"attention_bias": True}, "attention_bias is true; a plain DFlash draft has no biases"),
    ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; the converter would write silu"),
    ({"rope_is_neox_style": False}, "rope_is_neox_style is false: rows of q and k would be reordered"),
    ({"architectures": []}, "architectures must name exactly one architecture, not []"),
    ({"architectures": ["DFlashDraftModel", "X"]}, "architectures must name exactly one architecture"),
    ({"architectures": "DFlashDraftModel"}, "architectures must name exactly one architecture"),
    ({"architectures": ["Qwen3DFlashDraftModel"]}, "the draft's architecture is Qwen3DFlashDraftModel ("),
    ({"architectures": ["Qwen3ForCausalLM"]}, "the draft's architecture is Qwen3ForCausalLM ("),
    (
        {"architectures": ["DFlash2DraftModel"], "dflash_config__selector_rank": 256},
        "is DFlash2DraftModel (DFlash2",
    ),
    ({"architectures": ["DSparkDraftModel"]}, "the draft's architecture is DSparkDraftModel (DSpark, which adds"),
    ({"architectures": ["Eagle3Speculator"]}, "the draft's architecture is Eagle3Speculator (EAGLE-3)"),
    ({"speculators_model_type": "dflash"}, "speculators_model_type marks the speculators layout, not a plain DFlash"),
    ({"markov_rank": 64}, "markov_rank marks DSpark, which adds a Markov head"),
    ({"dflash_config__selector_rank": 256}, "selector_rank marks DFlash2, which adds a candidate selector"),
    ({"dflash_config__conv_kernel_size": 2}, "conv_kernel_size marks DFlash2, which adds convolutions"),
    ({"draft_vocab_size": 32000}, "draft_vocab_size marks a draft with a vocabulary of its own"),
    ({"dflash_config__use_swa": True}, "use_swa marks a window on every layer"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG, ids=[message[:50] for _, message in WRONG])
def test_a_wrong_value_is_named(tmp_path: Path, changes: dict[str, Any], message: str, said: Said) -> None:
    with pytest.raises(BuildError) as caught:
        read(tmp_path, changed(NESTED, **changes))
    assert message in str(caught.value)
    assert str(tmp_path / "config.json") in str(caught.value)
    assert "\n" not in str(caught.value)
    said(f"Draft config: {shown(changes)}", caught.value)


@pytest.mark.parametrize("architecture", FAMILIES)
def test_every_other_kind_of_draft_is_refused_by_name(tmp_path: Path, architecture: str, said: Said) -> None:
    with pytest.raises(BuildError, match=f"{architecture} .*this pipeline builds DFlashDraftModel only") as caught:
        read(tmp_path, changed(NESTED, architectures=[architecture]))
    said(f"Draft config: an architecture of another kind, {architecture}", caught.value)


def test_null_counts_as_absent(tmp_path: Path) -> None:
    nulls = {**NESTED, "quantization_config": None, "draft_vocab_size": None, "rope_theta": None, "is_causal": None}
    assert read(tmp_path, nulls) == read(tmp_path, NESTED)


def test_a_scaling_is_carried(tmp_path: Path) -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768, "beta_fast": 32}
    config = read(tmp_path, changed(NESTED, rope_parameters={"rope_theta": 1e7, **yarn}))
    assert config.rope_scaling == yarn
    older = changed(FLAT, rope_scaling={"type": "linear", "factor": 2})
    assert read(tmp_path, older).rope_scaling == {"rope_type": "linear", "factor": 2}


@pytest.mark.parametrize("value", [True, False])
def test_causality_is_kept_when_it_is_given(tmp_path: Path, value: bool) -> None:
    assert read(tmp_path, {**NESTED, "is_causal": value}).is_causal is value
    assert read(tmp_path, changed(NESTED, dflash_config__causal=value)).is_causal is value


@pytest.mark.parametrize("content", ["[]", "3", "not JSON", ""])
def test_a_file_that_is_no_object_is_named(tmp_path: Path, content: str, said: Said) -> None:
    path = tmp_path / "config.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(BuildError, match=r"config\.json holds no object|not valid JSON") as caught:
        read_draft_config(path)
    said(f"Draft config: a file that holds {content!r}", caught.value)


def shaped(shapes: dict[str, tuple[int, ...]]) -> Any:
    return SimpleNamespace(tensors={name: SimpleNamespace(shape=shape) for name, shape in shapes.items()})


def test_the_expected_tensors_are_11_a_layer_and_3(tmp_path: Path) -> None:
    config = read(tmp_path, NESTED)
    expected = expected_tensors(config)
    assert expected == draft_shapes(json.loads((tmp_path / "config.json").read_text()))
    assert len(expected) == 69
    assert expected["fc.weight"] == (4096, 32768)
    weights = sum(rows * (rest[0] if rest else 1) for rows, *rest in expected.values())
    assert 2 * weights == 2_583_816_472 - 8 - 7440  # the published file's size, less its header


def test_tensors_that_fit_are_one_check(tmp_path: Path) -> None:
    config = read(tmp_path, CONFIG)
    (check,) = check_tensors(config, shaped(expected_tensors(config)))
    assert (check.ok, check.detail) == (True, "25 tensors with the names and shapes of the config")


def test_tensors_that_do_not_fit_are_one_check_each(tmp_path: Path) -> None:
    config = read(tmp_path, CONFIG)
    shapes = expected_tensors(config)
    del shapes["norm.weight"]
    shapes["embed_tokens.weight"] = (30, 32)
    shapes["fc.weight"] = (32, 64)
    assert [(check.name, check.ok, check.detail) for check in check_tensors(config, shaped(shapes))] == [
        ("tensor norm.weight", False, "missing"),
        ("tensor embed_tokens.weight", False, "not part of a plain DFlash draft"),
        ("tensor fc.weight", False, "shape [32, 64], the config calls for [32, 96]"),
    ]


@pytest.mark.parametrize("nested", [True, False])
def test_a_draft_fits_its_target(tmp_path: Path, nested: bool) -> None:
    target = TARGET_CONFIG if nested else TARGET_CONFIG["text_config"]
    assert all(check.ok for check in check_against_target(read(tmp_path, CONFIG), target))


@pytest.mark.parametrize(
    ("key", "value", "failed"),
    [
        ("hidden_size", 64, ["draft and target: hidden_size: draft 32, target 64"]),
        ("vocab_size", 31, ["draft and target: vocab_size: draft 30, target 31"]),
        ("num_hidden_layers", 9, ["draft and target: num_target_layers: draft 8, target 9"]),
        (
            "num_hidden_layers",
            5,
            [
                "draft and target: num_target_layers: draft 8, target 5",
                "draft and target: taps: taps [1, 3, 5], target layers 5",
            ],
        ),
        ("hidden_size", None, ["draft and target: hidden_size: draft 32, target does not say"]),
    ],
)
def test_a_draft_of_another_target_is_named(tmp_path: Path, key: str, value: Any, failed: list[str]) -> None:
    target = changed(TARGET_CONFIG, **{f"text_config__{key}": value})
    checks = check_against_target(read(tmp_path, CONFIG), target)
    assert [f"{check.name}: {check.detail}" for check in checks if not check.ok] == failed
