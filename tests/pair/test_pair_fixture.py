"""The committed weights and the repositories made from them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from demo.pair import FIXTURE, configs, materialise, pack
from scripts import core


def test_the_fixture_is_small_enough_for_version_control() -> None:
    sizes = {path.name: path.stat().st_size for path in FIXTURE.iterdir()}
    assert sum(sizes.values()) <= 10_000_000
    assert max(sizes.values()) <= 1_400_000


def test_the_draft_has_the_published_tensors_in_bfloat16() -> None:
    tensors = pack.read(FIXTURE, "draft")
    assert len(tensors) == 11 * configs.DRAFT_LAYERS + 3
    assert {"fc.weight", "hidden_norm.weight", "norm.weight", "layers.1.self_attn.q_norm.weight"} <= set(tensors)
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    assert tensors["fc.weight"].shape == (configs.HIDDEN, len(configs.TAPS) * configs.HIDDEN)


def test_every_row_of_the_draft_fits_the_k_quants() -> None:
    matrices = {name: tensor for name, tensor in pack.read(FIXTURE, "draft").items() if tensor.ndim == 2}
    assert {name: tensor.shape[1] % 256 for name, tensor in matrices.items()} == dict.fromkeys(matrices, 0)


def test_norms_of_the_draft_are_distinct() -> None:
    norms = [tensor for name, tensor in pack.read(FIXTURE, "draft").items() if "norm" in name]
    for index, norm in enumerate(norms):
        assert norm.float().std() > 0.1
        assert not any(norm.equal(other) for other in norms[index + 1 :])


def test_the_mask_has_a_row_of_its_own_unlike_any_other() -> None:
    tensors = pack.read(FIXTURE, "target")
    ids = tensors["token_ids"].tolist()
    rows = tensors["model.embed_tokens.weight"].float()
    mask = rows[ids.index(configs.MASK_TOKEN)]
    others = torch.cat([rows[: ids.index(configs.MASK_TOKEN)], rows[ids.index(configs.MASK_TOKEN) + 1 :]])
    assert mask.norm() > 0.5
    assert torch.cosine_similarity(mask[None], others).abs().max() < 0.5


def test_the_draft_config_is_nested_as_published() -> None:
    config = configs.draft_config()
    assert config["architectures"] == ["DFlashDraftModel"]
    assert config["model_type"] == "qwen3"
    assert config["dflash_config"] == {"block_size": 16, "mask_token_id": 248077, "target_layer_ids": [1, 3, 5]}
    assert config["rope_parameters"] == {"rope_theta": 10_000_000, "rope_type": "default"}
    assert config["layer_types"] == ["sliding_attention", "full_attention"]
    assert (config["sliding_window"], config["use_sliding_window"]) == (64, True)
    assert (config["num_target_layers"], config["vocab_size"]) == (8, 248320)
    assert config["tie_word_embeddings"] is False
    assert "block_size" not in config
    assert "rope_theta" not in config


def test_a_damaged_part_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "fixture"
    shutil.copytree(FIXTURE, folder)
    part = min(folder.glob("draft.safetensors.xz.*"))
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    with pytest.raises(core.BuildError, match="the weights cannot be unpacked"):
        pack.read(folder, "draft")


def test_a_missing_part_is_refused(tmp_path: Path) -> None:
    with pytest.raises(core.BuildError, match="the weights of the embedded pair are missing"):
        pack.read(tmp_path, "draft")


def test_other_weights_than_the_sha256_names_are_refused(tmp_path: Path) -> None:
    pack.write(tmp_path, "x", {"a": torch.ones(2)})
    (tmp_path / "x.sha256").write_text("0" * 64 + "  x.safetensors\n")
    with pytest.raises(core.BuildError, match="the weights differ from their sha256"):
        pack.read(tmp_path, "x")


def test_packing_is_deterministic_and_exact(tmp_path: Path) -> None:
    tensors = {"b": torch.randn(600_000), "a": torch.arange(3, dtype=torch.int32)}
    for name in ("one", "two"):
        pack.write(tmp_path / name, "x", tensors)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == ["x.safetensors.xz.00", "x.safetensors.xz.01", "x.sha256"]
    assert all((tmp_path / "one" / n).read_bytes() == (tmp_path / "two" / n).read_bytes() for n in files)
    back = pack.read(tmp_path / "one", "x")
    assert all(back[name].equal(tensor) for name, tensor in tensors.items())


def test_scatter_puts_rows_at_their_ids_and_zeros_elsewhere() -> None:
    full = materialise.scatter(torch.ones(2, 4), torch.tensor([7, 248077], dtype=torch.int32))
    assert full.shape == (248320, 4)
    assert full.sum(dim=1).nonzero().flatten().tolist() == [7, 248077]


@pytest.mark.slow
def test_repositories_are_the_same_bytes_every_time(tmp_path: Path) -> None:
    one, two = (materialise.materialise(tmp_path / name, None) for name in ("one", "two"))
    names = sorted(str(path.relative_to(one)) for path in one.rglob("*") if path.is_file())
    assert names == sorted(str(path.relative_to(two)) for path in two.rglob("*") if path.is_file())
    for name in names:
        assert core.sha256_file(one / name) == core.sha256_file(two / name), name
    stamps = {path: path.stat().st_mtime_ns for path in one.rglob("*")}
    materialise.materialise(one, None)
    assert {path: path.stat().st_mtime_ns for path in one.rglob("*")} == stamps


@pytest.mark.slow
def test_a_changed_stamp_writes_the_folder_again(tmp_path: Path) -> None:
    materialise.materialise(tmp_path, None)
    (tmp_path / ".stamps" / "base").write_text("other")
    (tmp_path / "base" / "config.json").write_text("{}")
    materialise.materialise(tmp_path, None)
    assert json.loads((tmp_path / "base" / "config.json").read_text()) == configs.target_config()


def test_a_folder_of_the_cache_that_was_damaged_is_written_again(tmp_path: Path) -> None:
    written = []

    def write(place: Path) -> None:
        written.append(place)
        place.mkdir()
        (place / "weights").write_bytes(b"right")

    def once(key: str) -> bytes:
        materialise.once(tmp_path, "draft", key, write)
        return (tmp_path / "draft" / "weights").read_bytes()

    assert (once("key"), once("key"), len(written)) == (b"right", b"right", 1)
    (tmp_path / "draft" / "weights").write_bytes(b"wrong")
    assert (once("key"), len(written)) == (b"right", 2)
    (tmp_path / "draft" / "weights").unlink()
    assert (once("key"), len(written)) == (b"right", 3)
    (tmp_path / ".draft.left.part").mkdir()
    assert (once("other"), len(written)) == (b"right", 4)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".stamps", "draft"]


@pytest.mark.slow
def test_the_repositories_hold_what_a_release_reads(pair_repos: Path) -> None:
    files = {path.name: sorted(p.name for p in path.iterdir()) for path in pair_repos.iterdir() if path.name[0] != "."}
    tokenizer_files = ["chat_template.jinja", "tokenizer.json", "tokenizer_config.json"]
    assert files["draft"] == ["LICENSE", "README.md", "config.json", "model.safetensors"]
    assert files["base"] == sorted(["README.md", "config.json", *tokenizer_files])
    assert files["finetune"] == sorted([*files["base"], "generation_config.json", "model.safetensors"])
    gguf = ["README.md", "TinyQwen3.5-Coder-Q4_K_M.gguf", "TinyQwen3.5-Coder-Q8_0.gguf"]
    assert files["finetune-gguf"] == gguf
    assert "license: apache-2.0" in (pair_repos / "draft" / "README.md").read_text()
    with safe_open(pair_repos / "finetune" / "model.safetensors", framework="pt") as weights:
        assert weights.get_slice("model.embed_tokens.weight").get_shape() == [248320, configs.HIDDEN]


def test_a_toolchain_without_a_converter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(core.BuildError, match=r"the toolchain is incomplete .*convert_hf_to_gguf\.py"):
        materialise.write_ggufs(tmp_path / "out", tmp_path, tmp_path, tmp_path)
    assert not (tmp_path / "out").exists()
