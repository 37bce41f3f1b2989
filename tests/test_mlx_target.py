"""The target in MLX form beside the draft: what is compared, and what each difference is called."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scripts import core, fetch, lock
from scripts.core import BuildError
from scripts.draft_config import read_draft_config
from scripts.mlx_target import check, main
from tests.errors_table import Said
from tests.toy_pair import MASK, ROWS, draft_folder
from tests.toy_tokenizer import STOCK, change, toy_folder, toy_json, write

REPO = {"repo": "owner/Target-MLX-4bit", "revision": "main", "commit": "a" * 40}
QUANTIZATION = {"bits": 4, "group_size": 8}


@pytest.fixture
def pair(tmp_path: Path) -> SimpleNamespace:
    """A draft, its target and that target in MLX form, quantized."""
    made = SimpleNamespace(root=tmp_path, draft=draft_folder(tmp_path / "draft"))
    made.target, made.mlx = toy_folder(tmp_path / "target"), toy_folder(tmp_path / "mlx")
    change(made.mlx / "config.json", quantization=QUANTIZATION)
    core.write_json(tmp_path / "fetched.json", REPO)
    made.arguments = [
        *("--draft", str(tmp_path / "draft"), "--target", str(made.target), "--mlx-target", str(made.mlx)),
        *("--fetched", str(tmp_path / "fetched.json"), "--report", str(tmp_path / "report.json")),
    ]
    return made


def test_a_target_that_fits(pair: SimpleNamespace) -> None:
    assert main(pair.arguments) == 0
    report = core.read_json(pair.root / "report.json")
    assert report["ok"] is True
    figures = {key: report[key] for key in report.keys() - {"ok", "checks"}}
    assert figures == {**REPO, **QUANTIZATION, "model_type": "qwen3", "vocab_size": ROWS}


def test_a_target_that_is_not_quantized(pair: SimpleNamespace) -> None:
    change(pair.mlx / "config.json", quantization=None)
    report = check(read_draft_config(pair.draft), pair.target, pair.mlx)
    assert report.ok
    assert (report.figures["bits"], report.figures["group_size"]) == (None, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "llama"}, "model type: llama; dflash-mlx drafts for Qwen and gemma4"),
        ({"hidden_size": 32}, "draft and target: hidden_size: draft 16, target 32"),
        ({"num_hidden_layers": 5}, "draft and target: num_target_layers: draft 4, target 5"),
        ({"vocab_size": MASK}, f"mask row: mask token {MASK}, mlx_target has {MASK} rows"),
        ({"quantization": {"bits": 4, "group_size": 12}}, "group size: 12, the target's rows are 16 long"),
    ],
    ids=["family", "hidden size", "layers", "mask row", "group size"],
)
def test_another_shape(pair: SimpleNamespace, changes: dict[str, Any], message: str) -> None:
    change(pair.mlx / "config.json", **changes)
    found = check(read_draft_config(pair.draft), pair.target, pair.mlx)
    assert message in [f"{one.name}: {one.detail}"[: len(message)] for one in found.checks if not one.ok]


def test_another_vocabulary(pair: SimpleNamespace, said: Said, capsys: pytest.CaptureFixture[str]) -> None:
    value = toy_json([*STOCK, *[f"<other {at}>" for at in range(7)]])
    write(pair.mlx / "tokenizer.json", value)
    assert main(pair.arguments) == 1
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("error: "))
    assert "'<other 0>' in mlx_target" in line
    assert not (pair.root / "report.json").exists()
    said("MLX: a target of another vocabulary", line)


def test_other_rules(pair: SimpleNamespace) -> None:
    value = core.read_json(pair.mlx / "tokenizer.json")
    write(pair.mlx / "tokenizer.json", {**value, "normalizer": None})
    found = check(read_draft_config(pair.draft), pair.target, pair.mlx)
    assert [one.detail for one in found.checks if not one.ok] == ["differ: normalizer"]


def test_a_quantization_that_mlx_does_not_write(pair: SimpleNamespace, said: Said) -> None:
    change(pair.mlx / "config.json", quantization={"quant_method": "awq"})
    with pytest.raises(BuildError, match=r"quantization is .*'awq'.*, not bits and group_size") as caught:
        check(read_draft_config(pair.draft), pair.target, pair.mlx)
    said("MLX: a target quantized by something else", caught.value)


def test_its_role_is_locked_and_fetched_without_weights() -> None:
    pair = {"draft": {"repo": "a/b", "revision": "x"}, "mlx_target": {"repo": "c/d", "revision": "main"}}
    assert lock.wanted(pair)["mlx_target"] == ("c/d", "main")
    held = ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", "README.md"]
    assert fetch.select("mlx_target", held, "where") == ["config.json", "tokenizer.json", "tokenizer_config.json"]
