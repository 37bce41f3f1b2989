"""What is measured when: only where the config asks for it, and never beside another job."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo import run as demo_run
from tests.chain import KEY, OPTIONS, copy

pytestmark = pytest.mark.slow

MEASURING = {"acceptance", "gate", "bench_pair", "bench"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project in which nothing is built, and a file in the place of the served target."""
    made = copy(tmp_path_factory.mktemp("rules") / "project")
    (made / "target.gguf").write_bytes(b"x")
    return made


def _planned(folder: Path, target: str, pair: dict[str, Any], bench: dict[str, Any]) -> tuple[dict[str, int], str]:
    """How often each rule would run for a target, and all that was said."""
    settings = yaml.safe_load(demo_run.CONFIG.read_text())
    settings["pairs"][KEY] |= {"target_gguf": {"path": "target.gguf"}} | pair
    settings["bench"] = bench
    (folder / "changed.yaml").write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "snakemake", "-n", "-p", "--cores", "3", "--configfile", "changed.yaml", *OPTIONS]
    done = subprocess.run([*command, target], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    said = done.stdout + done.stderr
    return {name: int(times) for name, times in re.findall(r"^(\w+) +(\d+)$", said, re.MULTILINE)}, said


def test_nothing_is_measured_unasked(folder: Path) -> None:
    planned, _ = _planned(folder, "all", {"bench": False, "gate": False}, {})
    assert planned["verify"] == 3
    assert not MEASURING & planned.keys()


def test_a_pair_with_a_gate_is_published_only_through_it(folder: Path) -> None:
    planned, said = _planned(folder, "publish", {"gate": True, "bench": False}, {"predict": 33})
    assert {name: planned.get(name, 0) for name in sorted(MEASURING)} == {
        "acceptance": 3,
        "bench": 0,
        "bench_pair": 0,
        "gate": 1,
    }
    commands = [line for line in said.splitlines() if "-m scripts.acceptance" in line]
    assert len(commands) == 3
    assert all('"n_max": 15' in line and '"predict": 33' in line for line in commands)


def test_a_pair_to_measure_is_measured_by_the_build(folder: Path) -> None:
    planned, said = _planned(folder, "all", {"bench": True, "gate": False}, {})
    assert (planned["bench_pair"], "acceptance" in planned) == (1, False)
    (command,) = [line for line in said.splitlines() if "-m scripts.bench" in line]
    assert "-Q4_K_M.gguf" in command


def test_running_servers_need_neither_draft_nor_toolchain(folder: Path) -> None:
    urls = {"baseline": "http://127.0.0.1:1", "dflash": "http://127.0.0.1:2"}
    planned, said = _planned(folder, "bench", {"bench": False}, {"urls": urls})
    assert planned["bench_pair"] == 1
    assert not {"toolchain_build", "convert", "quantize"} & planned.keys()
    assert not any("--server" in line for line in said.splitlines() if "-m scripts.bench" in line)
