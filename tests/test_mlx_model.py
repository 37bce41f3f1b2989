"""The target in MLX form, downloaded to be measured: every file that mlx-lm reads, checked, and nothing else."""

from pathlib import Path
from typing import Any

import pytest

from demo.hub import FaultRule, HubServer
from scripts import lock, mlx_model
from scripts.core import BuildError
from tests.errors_table import Said

REPO = "demo-org/Target-MLX"
READ = {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja", "merges.txt"}
pytestmark = pytest.mark.usefixtures("short_pauses")


def locked(hub: HubServer, folder: Path, names: set[str]) -> dict[str, Any]:
    folder.mkdir()
    for name in names:
        (folder / name).write_text(f"content of {name}")
    hub.commit_folder(REPO, folder, "Add files")
    entry: dict[str, Any] = lock.resolve(REPO, "main")
    hub.log.clear()
    return entry


def test_what_mlx_lm_reads_is_fetched_and_no_code(at_hub: HubServer, tmp_path: Path) -> None:
    entry = locked(at_hub, tmp_path / "repo", READ | {"modeling.py", "weights.bin"})
    out = tmp_path / "out"
    out.mkdir()
    (out / "old.safetensors").write_text("of another commit")
    report = mlx_model.download(entry, out)
    assert report.ok
    assert {path.name for path in out.iterdir()} == set(report.figures["files"]) == READ
    assert {asked.file for asked in at_hub.log.requests_for(REPO, (".py", ".bin"))} == set()


def test_a_model_without_weights(at_hub: HubServer, tmp_path: Path, said: Said) -> None:
    entry = locked(at_hub, tmp_path / "repo", {"config.json"})
    with pytest.raises(BuildError, match="mlx_target has no safetensors") as caught:
        mlx_model.download(entry, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    said("MLX target: no weights to measure with", caught.value)


def test_damaged_on_the_way(at_hub: HubServer, tmp_path: Path, said: Said) -> None:
    entry = locked(at_hub, tmp_path / "repo", {"config.json", "model.safetensors"})
    at_hub.faults.add(FaultRule("/cdn/", "flip", times=9, after=2))
    with pytest.raises(BuildError, match="is not what the Hub vouches for") as caught:
        mlx_model.download(entry, tmp_path / "out")
    assert not (tmp_path / "out" / "model.safetensors").exists()
    said("MLX target: weights damaged on the way", caught.value)
