"""The target as it is served, downloaded to be measured: one quant, checked, flat, and nothing else."""

from pathlib import Path
from typing import Any

import pytest

from demo.hub import FaultRule, HubServer
from scripts import core, lock, served
from scripts.core import BuildError
from tests.errors_table import Said

REPO = "demo-org/Target-GGUF"
pytestmark = pytest.mark.usefixtures("short_pauses")


@pytest.fixture
def locked(at_hub: HubServer, tmp_path: Path) -> dict[str, Any]:
    """A locked repository with a whole model, a split one in a folder of its own, and a vision projector."""
    folder = tmp_path / "repo"
    (folder / "Q8_0").mkdir(parents=True)
    for name in ("T-Q4_K_M.gguf", "mmproj-T-Q8_0.gguf", "Q8_0/T-Q8_0-00001-of-00002.gguf"):
        (folder / name).write_bytes(b"GGUF" + name.encode())
    (folder / "Q8_0" / "T-Q8_0-00002-of-00002.gguf").write_bytes(b"GGUF second")
    at_hub.commit_folder(REPO, folder, "Add files")
    entry: dict[str, Any] = lock.resolve(REPO, "main")
    at_hub.log.clear()
    return entry


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_only_the_files_of_the_quant_are_fetched(at_hub: HubServer, locked: dict[str, Any], tmp_path: Path) -> None:
    report = served.download(locked, "Q4_K_M", tmp_path / "out")
    assert report.ok
    assert _names(tmp_path / "out") == report.figures["files"] == ["T-Q4_K_M.gguf"]
    assert {entry.file for entry in at_hub.log.requests_for(REPO, ".gguf")} == {"T-Q4_K_M.gguf"}


def test_parts_lie_side_by_side_and_replace_another_quant(locked: dict[str, Any], tmp_path: Path) -> None:
    out = tmp_path / "out"
    served.download(locked, "Q4_K_M", out)
    report = served.download(locked, "Q8_0", out)
    assert report.figures["files"] == ["T-Q8_0-00001-of-00002.gguf", "T-Q8_0-00002-of-00002.gguf"]
    assert _names(out) == report.figures["files"]
    report.write(out / served.REPORT)
    assert served.first_file(out / served.REPORT) == out / "T-Q8_0-00001-of-00002.gguf"


def test_damaged_on_the_way(at_hub: HubServer, locked: dict[str, Any], tmp_path: Path, said: Said) -> None:
    at_hub.faults.add(FaultRule("/cdn/", "flip", times=9, after=2))
    with pytest.raises(BuildError, match="is not what the Hub vouches for") as caught:
        served.download(locked, "Q4_K_M", tmp_path / "out")
    assert not list((tmp_path / "out").glob("*.gguf"))
    said("Served target: damaged on the way", caught.value)


def test_a_quant_that_is_not_there(locked: dict[str, Any], tmp_path: Path, said: Said) -> None:
    with pytest.raises(BuildError, match="has no quant Q6_K") as caught:
        served.download(locked, "Q6_K", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    said("Served target: no such quant to fetch", caught.value)


def test_a_file_that_is_gone(tmp_path: Path, said: Said) -> None:
    core.write_json(tmp_path / served.REPORT, {"files": ["gone.gguf"]})
    with pytest.raises(BuildError, match="the served target is missing") as caught:
        served.first_file(tmp_path / served.REPORT)
    said("Served target: deleted after it was fetched", caught.value)


def test_a_pair_without_a_served_target(tmp_path: Path, capsys: pytest.CaptureFixture[str], said: Said) -> None:
    core.write_json(tmp_path / "lock.json", {"inputs": {}})
    argv = ["--lock", str(tmp_path / "lock.json"), "--quant", "Q8_0", "--out", str(tmp_path / "out")]
    assert served.main(argv) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert "the lock has no target_gguf" in last
    said("Served target: not in the lock", last)
