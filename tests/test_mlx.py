"""The MLX folder: a config with every value where dflash-mlx looks for it, and the weights as they are."""

import copy
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from scripts.core import BuildError
from scripts.mlx import REQUIRED, flatten_config, main, make_mlx
from tests import verify_samples as samples
from tests.errors_table import Said

NESTED = samples.CONFIG
FLAT: dict[str, Any] = {**NESTED, "rope_theta": 10000000, "block_size": 16}


def without(config: dict[str, Any], key: str) -> dict[str, Any]:
    result = copy.deepcopy(config)
    table, _, rest = key.rpartition("__")
    del (result[table] if table else result)[rest]
    return result


def test_the_two_keys_are_lifted_and_everything_else_stays() -> None:
    before = copy.deepcopy(NESTED)
    flat = flatten_config(NESTED)
    assert flat == {**NESTED, "rope_theta": 10000000, "block_size": 16}
    assert list(flat) == [*NESTED, "rope_theta", "block_size"]
    assert before == NESTED


def test_a_flat_config_comes_back_equal() -> None:
    flat = flatten_config(FLAT)
    assert flat == FLAT
    assert list(flat) == list(FLAT)


@pytest.mark.parametrize("key", ["is_causal", "attention_bias", "a name of tomorrow"])
def test_other_keys_survive(key: str) -> None:
    flat = flatten_config({**NESTED, key: False})
    assert flat[key] is False
    assert flat["layer_types"] == NESTED["layer_types"]
    assert flat["sliding_window"] == 64
    assert flat["dflash_config"]["mask_token_id"] == 25


def test_causality_is_not_invented() -> None:
    assert "is_causal" not in flatten_config(NESTED)


def test_a_scaling_that_is_not_the_default_is_carried() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
    flat = flatten_config({**NESTED, "rope_parameters": {"rope_theta": 10000000, **yarn}})
    assert flat["rope_scaling"] == yarn
    assert "rope_scaling" not in flatten_config(NESTED)
    assert flatten_config({**NESTED, "rope_scaling": None})["rope_scaling"] is None


def test_the_length_that_yarn_starts_from_is_carried_into_the_scaling() -> None:
    """mlx-lm takes 4096 where the scaling does not say."""
    yarn = {"rope_type": "yarn", "factor": 4.0}
    length = {"original_max_position_embeddings": 128}
    flat = flatten_config({**NESTED, **length, "rope_parameters": {"rope_theta": 10000000, **yarn}})
    assert flat["rope_scaling"] == {**yarn, **length}
    older = {**without(FLAT, "rope_parameters"), **length, "rope_scaling": yarn}
    assert flatten_config(older)["rope_scaling"] == {**yarn, **length}


def test_a_scaling_at_the_top_level_stays_as_it_is() -> None:
    older = {**without(FLAT, "rope_parameters"), "rope_scaling": {"type": "linear", "factor": 2}}
    assert flatten_config(older) == older


def test_taps_and_mask_at_the_top_level_are_copied_to_where_they_are_read() -> None:
    flat = flatten_config({**without(FLAT, "dflash_config"), "mask_token_id": 25, "target_layer_ids": [1, 3, 5]})
    assert flat["dflash_config"] == {"target_layer_ids": [1, 3, 5], "mask_token_id": 25}
    assert flat["mask_token_id"] == 25


WRONG: list[tuple[dict[str, Any], str]] = [
    ({**NESTED, "rope_theta": 1000000}, "rope_theta is given as 1000000 and as 10000000"),
    ({**NESTED, "rope_scaling": {"rope_theta": 5, "type": "default"}}, "rope_theta is given as 10000000 and as 5"),
    ({**NESTED, "block_size": 8}, "block_size is given as 8 and as 16"),
    ({**NESTED, "mask_token_id": 0}, "mask_token_id is given as 25 and as 0"),
    ({**NESTED, "target_layer_ids": [1]}, "target_layer_ids is given as [1, 3, 5] and as [1]"),
    (
        {**NESTED, "rope_parameters": {"rope_theta": 1, "rope_type": "yarn", "factor": 2}},
        "original_max_position_embeddings is missing; no default is right for every draft",
    ),
    (without(NESTED, "rope_parameters"), "rope_theta is missing; no default is right for every draft"),
    (without(NESTED, "rope_parameters__rope_theta"), "rope_theta is missing; no default is right for every draft"),
    (without(NESTED, "dflash_config"), "block_size is missing; no default is right for every draft"),
    (without(NESTED, "dflash_config__block_size"), "block_size is missing; no default is right for every draft"),
    (without(NESTED, "dflash_config__mask_token_id"), "mask_token_id is missing; no default is right for every draft"),
    (without(NESTED, "dflash_config__target_layer_ids"), "target_layer_ids is missing; no default is right"),
    (without(NESTED, "num_target_layers"), "num_target_layers is missing; no default is right"),
    ({**NESTED, "dflash_config": 16}, "dflash_config must be an object, not 16"),
    ({**NESTED, "rope_scaling": {"type": "yarn", "factor": 2}}, "rope_type is given as 'default' and as 'yarn'"),
    ({**NESTED, "rope_parameters": {"rope_theta": 1, "factor": 2}}, "rope_type is missing from the rope scaling"),
    (
        {
            **NESTED,
            "rope_parameters": {"rope_theta": 1, "rope_type": "linear", "factor": 2},
            "rope_scaling": {"type": "linear", "factor": 4},
        },
        "rope_parameters and rope_scaling give different scalings",
    ),
    *((without(NESTED, key), f"{key} is missing; dflash-mlx does not load without it") for key in REQUIRED),
]


@pytest.mark.parametrize(("config", "message"), WRONG, ids=[message[:40] for _, message in WRONG])
def test_a_config_that_cannot_be_flattened_is_named(config: dict[str, Any], message: str) -> None:
    with pytest.raises(BuildError) as caught:
        flatten_config(config)
    assert message in str(caught.value)


def test_the_folder_has_the_config_and_the_linked_weights(tmp_path: Path) -> None:
    draft, out = tmp_path / "draft", tmp_path / "mlx"
    samples.write_draft(draft, {**NESTED, "note": "na\u00efve \u4e2d"})
    report = make_mlx(draft, out, tmp_path / "mlx.json")
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "model.safetensors"]
    assert (out / "model.safetensors").samefile(draft / "model.safetensors")
    text = (out / "config.json").read_text(encoding="utf-8")
    assert "na\u00efve \u4e2d" in text
    assert list(json.loads(text)) == [*NESTED, "note", "rope_theta", "block_size"]
    written = json.loads((tmp_path / "mlx.json").read_text(encoding="utf-8"))
    assert written == report.as_dict()
    assert written["ok"] is True
    assert written["added_keys"] == ["rope_theta", "block_size"]
    for name in ("config.json", "model.safetensors"):
        assert written["sha256"][name] == hashlib.sha256((out / name).read_bytes()).hexdigest()
        assert written["bytes"][name] == (out / name).stat().st_size


def test_a_flat_config_is_the_same_file(tmp_path: Path) -> None:
    draft, out = tmp_path / "draft", tmp_path / "mlx"
    samples.write_draft(draft)
    odd = json.dumps(FLAT, indent=1).replace("10000000", "1e7").encode() + b"\n\n"
    (draft / "config.json").write_bytes(odd)
    make_mlx(draft, out, tmp_path / "mlx.json")
    assert (out / "config.json").read_bytes() == odd
    assert not (out / "config.json").samefile(draft / "config.json")


def test_it_can_be_made_again(tmp_path: Path) -> None:
    samples.write_draft(tmp_path / "draft")
    first = make_mlx(tmp_path / "draft", tmp_path / "mlx", tmp_path / "mlx.json")
    assert make_mlx(tmp_path / "draft", tmp_path / "mlx", tmp_path / "mlx.json") == first


def test_weights_of_something_else_are_not_mixed_in(tmp_path: Path, said: Said) -> None:
    samples.write_draft(tmp_path / "draft")
    (tmp_path / "mlx").mkdir()
    (tmp_path / "mlx" / "model-00001-of-00002.safetensors").write_bytes(b"")
    with pytest.raises(BuildError, match=r"model-00001-of-00002\.safetensors does not belong to this draft") as caught:
        make_mlx(tmp_path / "draft", tmp_path / "mlx", tmp_path / "mlx.json")
    said("MLX: a folder with weights of something else", caught.value)


def test_the_draft_itself_is_never_edited(tmp_path: Path, said: Said) -> None:
    samples.write_draft(tmp_path / "draft")
    before = (tmp_path / "draft" / "config.json").read_bytes()
    with pytest.raises(BuildError, match="the MLX folder would be the draft's own folder") as caught:
        make_mlx(tmp_path / "draft", tmp_path / "x" / ".." / "draft", tmp_path / "mlx.json")
    assert (tmp_path / "draft" / "config.json").read_bytes() == before
    said("MLX: the draft's own folder as output", caught.value)


def test_a_draft_with_wrong_weights_stops(tmp_path: Path, said: Said) -> None:
    samples.write_draft(tmp_path / "draft")
    samples.write_json(tmp_path / "draft" / "config.json", {**NESTED, "intermediate_size": 32})
    with pytest.raises(BuildError, match=r"shape .*, the config calls for") as caught:
        make_mlx(tmp_path / "draft", tmp_path / "mlx", tmp_path / "mlx.json")
    assert not (tmp_path / "mlx").exists()
    assert not (tmp_path / "mlx.json").exists()
    said("MLX: weights of another config", caught.value)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples.write_draft(tmp_path / "draft")
    arguments = [f"--{key}={tmp_path / path}" for key, path in (("draft", "draft"), ("out", "m"), ("report", "r.json"))]
    assert main(arguments) == 0
    assert capsys.readouterr().err == f"wrote {tmp_path / 'm'}: added at the top level: rope_theta, block_size\n"
    samples.write_json(tmp_path / "draft" / "config.json", without(NESTED, "rope_parameters"))
    assert main(arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: rope_theta is missing; no default is right for every draft (")
