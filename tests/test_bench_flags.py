"""How the servers of a measurement are started, and what is said about files that are not there."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from scripts import bench, bench_flags, config, core, machine
from scripts.core import BuildError
from tests.errors_table import Said

SERVE = {"n_max": 15, "context": 2048, "draft_kv_type": "q8_0"}


def _command(draft: Path | None, **changes: Any) -> list[str]:
    settings = config.section("serve", SERVE | changes, "test")
    return bench_flags.command(settings, Path("t/target.gguf"), draft, Path("bin/llama-server"))


def _pairs(words: list[str]) -> set[tuple[str, str]]:
    return set(itertools.pairwise(words))


def test_baseline_and_dflash_differ_in_the_draft_alone() -> None:
    baseline, dflash = _command(None), _command(Path("d/draft.gguf"))
    assert dflash[: len(baseline)] == baseline
    assert {word for word in dflash[len(baseline) :] if word.startswith("-")} == {
        *("-md", "--spec-type", "--spec-draft-n-max", "-ctkd", "-ctvd")
    }
    assert {("--spec-draft-n-max", "15"), ("-ctkd", "q8_0"), ("-md", "d/draft.gguf")} <= _pairs(dflash)
    assert {("-c", "2048"), ("-ctk", "f16"), ("-np", "1"), ("-fa", "on")} <= _pairs(baseline)


def test_threads_and_gpu_layers_only_where_asked_for() -> None:
    assert not {"-t", "-ngl", "-ngld"} & set(_command(Path("d.gguf")))
    asked = _command(Path("d.gguf"), threads=1, gpu_layers=7)
    assert {("-t", "1"), ("-ngl", "7"), ("-ngld", "7")} <= _pairs(asked)
    assert "-ngld" not in _command(None, gpu_layers=7)


def test_a_report_names_files_not_paths() -> None:
    assert bench_flags.plain(_command(None))[:3] == ["llama-server", "-m", "target.gguf"]


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
    options = ["--server", str(server), "--target", str(target), "--draft", str(draft)]
    error = _bench(tmp_path, capsys, *options)
    assert "file is missing" in error
    said("Measuring: a draft that is not built", error)
    draft.write_bytes(b"x")
    error = _bench(tmp_path, capsys, *options)
    assert "serve names no n_max" in error
    said("Measuring: no number of drafted tokens", error)
    error = _bench(tmp_path, capsys, *options, "--serve", json.dumps({"nmax": 15}))
    assert "did you mean n_max?" in error
    said("Measuring: a misspelt key of serve", error)


def test_a_misspelt_key_of_bench(tmp_path: Path, capsys: pytest.CaptureFixture[str], said: Said) -> None:
    error = _bench(tmp_path, capsys, "--bench", json.dumps({"repeat": 2}))
    assert "unknown key repeat" in error
    said("Measuring: a misspelt key of bench", error)


def test_the_machine_is_described_without_its_name() -> None:
    found = machine.describe()
    assert found["cpu"]
    assert found["memory_bytes"] > 0
    assert set(found) == {"cpu", "cores", "threads", "memory_bytes", "gpus", "os"}
