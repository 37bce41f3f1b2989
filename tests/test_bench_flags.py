"""How the servers of a measurement are started, and what is said about files that are not there."""

import json
from pathlib import Path

import pytest

from scripts import bench, bench_flags, core, machine
from scripts.core import BuildError
from scripts.serve_command import command
from tests.errors_table import Said
from tests.video_samples import SETTINGS


def test_a_report_names_files_not_paths() -> None:
    words = command(SETTINGS, Path("t/target.gguf"), None, Path("bin/llama-server"))
    assert bench_flags.plain(words)[:3] == ["llama-server", "-m", "target.gguf"]


def test_the_targets_files(tmp_path: Path, said: Said) -> None:
    names = [f"t-Q8_0-0000{part}-of-00002.gguf" for part in (1, 2)]
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    core.write_json(tmp_path / "files.json", {"files": names})
    files = [tmp_path / name for name in names]
    assert bench_flags.target_files(tmp_path / "files.json") == files
    assert bench_flags.target_files(tmp_path / names[0]) == files
    assert bench_flags.describe(files, "target")["bytes"] == 2
    with pytest.raises(BuildError, match="the target's GGUF is missing") as caught:
        bench_flags.target_files(tmp_path / "none.gguf")
    said("Measuring: a target that is not there", caught.value)


def _bench(tmp_path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert bench.main([*options, "--out", str(tmp_path), "--report", str(tmp_path / "bench.json")]) == 1
    assert not (tmp_path / "bench.json").exists()
    return capsys.readouterr().err.strip().splitlines()[-1]


def test_what_is_not_given_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], said: Said) -> None:
    error = _bench(tmp_path, capsys)
    assert "no --server given" in error
    said("Measuring: no servers and no files", error)


def test_files_and_settings_that_are_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str], said: Said) -> None:
    server, target, draft = (tmp_path / name for name in ("llama-server", "t.gguf", "d.gguf"))
    for path in (server, target):
        path.write_bytes(b"x")
    options = ["--server", str(server), "--target", str(target), "--draft", str(draft), "--settings", SETTINGS.dump()]
    error = _bench(tmp_path, capsys, *options)
    assert "file is missing" in error
    said("Measuring: a draft that is not built", error)


def test_a_misspelt_key_of_bench(tmp_path: Path, capsys: pytest.CaptureFixture[str], said: Said) -> None:
    error = _bench(tmp_path, capsys, "--bench", json.dumps({"repeat": 2}))
    assert "unknown key repeat" in error
    said("Measuring: a misspelt key of bench", error)


def test_the_machine_is_described_without_its_name() -> None:
    found = machine.describe()
    assert found["cpu"]
    assert found["memory_bytes"] > 0
    assert set(found) == {"cpu", "cores", "threads", "memory_bytes", "gpus", "os"}
