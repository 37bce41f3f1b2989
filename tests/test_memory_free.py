"""Free memory as the drivers' tools and llama-server say it, read from stand-ins that print what the tools print."""

import json
import os
from pathlib import Path

import psutil
import pytest

from scripts import memory_free
from scripts.memory_free import Pool
from tests.fake_server import program

MIB = 1 << 20
TWO_CARDS = "NVIDIA GeForce RTX 3070, 7654, 8192\nNVIDIA H200, 142000, 143771"
ROCM = {
    "card0": {"VRAM Total Memory (B)": "17163091968", "VRAM Total Used Memory (B)": "1163091968"},
    "system": {"Driver version": "6.8"},
}
DEVICES = """ggml_cuda_init: found 1 CUDA devices
Available devices:
  CUDA0: NVIDIA GeForce RTX 3070 (8192 MiB, 7001 MiB free)
  Vulkan0: Intel(R) Arc (TM) A770 (DG2) (16032 MiB, 15000 MiB free)"""


@pytest.fixture(name="tools", autouse=True)
def only_these_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH without the tools of this machine's drivers."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in ("sh", "printf"):
        (folder / name).symlink_to(Path("/bin") / name)
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_without_a_gpu_the_machines_memory_counts() -> None:
    found = memory_free.find()
    assert (found.name, found.gpu, found.total) == ("memory of this machine", False, psutil.virtual_memory().total)
    assert 0 < found.free <= found.total


def test_nvidia(tools: Path) -> None:
    program(tools / "nvidia-smi", {"--query-gpu=name,memory.free,memory.total": TWO_CARDS})
    name = "NVIDIA GeForce RTX 3070 + NVIDIA H200"
    assert memory_free.find() == Pool(name, (7654 + 142000) * MIB, (8192 + 143771) * MIB, True, "nvidia-smi")


@pytest.mark.parametrize(
    ("text", "code"), [("NVIDIA GB10, [N/A], [N/A]", 0), ("", 0), ("No devices were found", 6), (TWO_CARDS, 9)]
)
def test_nvidia_that_shows_nothing(text: str, code: int, tools: Path) -> None:
    program(tools / "nvidia-smi", {"": text}, code)
    assert memory_free.nvidia() is None
    assert memory_free.find().said_by == "psutil"


def test_amd(tools: Path) -> None:
    program(tools / "rocm-smi", {"": f"WARNING: AMD GPU device(s) is/are in a low-power state\n{json.dumps(ROCM)}"})
    assert memory_free.find() == Pool("card0", 16_000_000_000, 17_163_091_968, True, "rocm-smi")


@pytest.mark.parametrize("text", ["", "no cards", "{}", "{", '{"card0": {"VRAM Total Memory (B)": "N/A"}}', "[1] {}"])
def test_amd_that_shows_nothing(text: str, tools: Path) -> None:
    program(tools / "rocm-smi", {"": text})
    assert memory_free.amd() is None


def test_only_the_devices_of_the_server_count(tools: Path, tmp_path: Path) -> None:
    program(tools / "nvidia-smi", {"": TWO_CARDS})
    with_gpu = program(tmp_path / "gpu" / "llama-server", {"--list-devices": DEVICES})
    name = "NVIDIA GeForce RTX 3070 + Intel(R) Arc (TM) A770 (DG2)"
    assert memory_free.find(with_gpu) == Pool(name, (7001 + 15000) * MIB, (8192 + 16032) * MIB, True, "llama-server")
    without = program(tmp_path / "cpu" / "llama-server", {"--list-devices": "Available devices:\n  (none)"})
    assert memory_free.find(without).name == "memory of this machine"


def test_an_apple_machine_has_one_memory_for_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory_free.metal() is None
    monkeypatch.setattr("sys.platform", "darwin")
    found = memory_free.find()
    assert (found.name, found.gpu, found.shared) == ("unified memory", True, True)
    listed = "Available devices:\n  Metal: Apple M4 (99999999 MiB, 99999999 MiB free)"
    server = program(tmp_path / "llama-server", {"--list-devices": listed})
    found = memory_free.find(server)
    assert (found.name, found.shared, found.said_by) == ("Apple M4", True, "llama-server")
    assert found.free <= psutil.virtual_memory().total


def test_a_tool_that_does_not_run_is_said(tools: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tools / "nvidia-smi").write_text("#!/no/such/shell\n")
    os.chmod(tools / "nvidia-smi", 0o755)  # noqa: PTH101
    assert memory_free.find().said_by == "psutil"
    assert "nvidia-smi does not answer" in capsys.readouterr().err
