"""Serving with dflash-mlx: the command from the config, what is refused before it, an environment that is not there."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import config, core, mlx_env, mlx_quant, serve_mlx
from scripts.core import BuildError
from scripts.draft_config import read_draft_config
from tests import verify_samples as samples
from tests.chain import KEY
from tests.errors_table import Said

RAW: dict[str, Any] = yaml.safe_load((config.ROOT / "demo" / "config.yaml").read_text())
FLAGS = "--verify-len-cap 8 --host 127.0.0.1 --port 8000 --max-tokens 512"


@pytest.fixture(name="work")
def folder_with_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a pair's MLX folder and the report on its MLX target."""
    results = tmp_path / "results" / KEY
    samples.write_draft(results / "mlx", {**samples.CONFIG, "hidden_size": 64, "head_dim": 32})
    core.write_json(results / "reports" / "mlx-target.json", {"repo": "owner/Target-MLX", "commit": "b" * 40})
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(mlx_env.VARIABLE, raising=False)
    write(tmp_path)
    return tmp_path


def write(folder: Path, **keys: Any) -> None:
    raw = copy.deepcopy(RAW)
    raw["pairs"][KEY] |= keys
    (folder / "config.yaml").write_text(yaml.safe_dump(raw))


def test_the_command_is_printed_with_the_checked_commit(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert serve_mlx.main([KEY, "--print"]) == 0
    target = f'"$(hf download owner/Target-MLX --revision {"b" * 40} --quiet)"'
    printed = capsys.readouterr().out
    assert printed == f"dflash serve --model {target} --draft-model results/{KEY}/mlx --draft-quant w4 {FLAGS}\n"


def test_another_target_and_further_arguments(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(work, serve_mlx={"draft_quant": "none", "block_tokens": 4, "port": 1234})
    assert serve_mlx.main([KEY, "--print", "--target", "my target", "--", "--temp", "0.5"]) == 0
    flags = "--verify-len-cap 4 --host 127.0.0.1 --port 1234 --max-tokens 512 --temp 0.5"
    start = f"dflash serve --model 'my target' --draft-model results/{KEY}/mlx --draft-quant none"
    assert capsys.readouterr().out == f"{start} {flags}\n"


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert serve_mlx.main(arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_what_is_refused(work: Path, capsys: pytest.CaptureFixture[str], said: Said) -> None:
    (work / "results" / KEY / "reports" / "mlx-target.json").unlink()
    line = refused([KEY, "--print"], capsys)
    assert "no MLX target was checked" in line
    said("MLX: serving without a checked target", line)
    line = refused(["nothing", "--print", "--target", "x"], capsys)
    assert f"no pair nothing (config.yaml): use one of: {KEY}" in line
    (work / "results" / KEY / "mlx" / "config.json").unlink()
    line = refused([KEY, "--print", "--target", "x"], capsys)
    assert "the MLX folder is not there" in line
    said("MLX: serving before the folder is made", line)


def test_a_group_that_does_not_divide_the_rows(work: Path, capsys: pytest.CaptureFixture[str], said: Said) -> None:
    write(work, serve_mlx={"draft_quant": "w4:gs128"})
    line = refused([KEY, "--print"], capsys)
    assert "group size 128 does not divide the rows of layers.0.self_attn.q_proj.weight, 64 long" in line
    said("MLX: a group size that does not divide the draft's rows", line)


def test_what_divides_the_rows_of_the_real_size(tmp_path: Path) -> None:
    real = {"hidden_size": 4096, "head_dim": 128, "intermediate_size": 12288}
    core.write_json(tmp_path / "config.json", {**samples.CONFIG, **real})
    shape = read_draft_config(tmp_path / "config.json")
    with pytest.raises(BuildError, match=r"group size 96 does not divide the rows of .*, 4096 long"):
        mlx_quant.check_rows(shape, 96, "here")
    for group in (32, 64, 128):
        mlx_quant.check_rows(shape, group, "here")


@pytest.mark.parametrize(
    ("spec", "quant"),
    [
        ("none", None),
        ("w4", mlx_quant.Quant(4, 64, 16)),
        ("w8a32:gs128", mlx_quant.Quant(8, 128, 32)),
    ],
)
def test_specs(spec: str, quant: mlx_quant.Quant | None) -> None:
    assert mlx_quant.parse(spec, "here") == quant


@pytest.mark.parametrize("spec", ["w3", "4", "w4:gs96", "true", ""])
def test_wrong_specs(spec: str, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=f"draft_quant is '{spec}'"):
        mlx_quant.parse(spec, "here")
    raw = copy.deepcopy(RAW)
    raw["pairs"][KEY]["serve_mlx"] = {"draft_quant": spec}
    with pytest.raises(BuildError, match=r"serve_mlx\.draft_quant"):
        config.validated(raw)


def test_a_block_larger_than_the_drafts(said: Said) -> None:
    raw = copy.deepcopy(RAW)
    raw["pairs"][KEY]["serve_mlx"] = {"block_tokens": 17}
    with pytest.raises(BuildError, match="block_tokens is 17, the draft's block has 16 tokens") as caught:
        config.validated(raw)
    said("Configuration: blocks for MLX larger than the draft's", caught.value)


def test_mlx_keys_without_mlx(said: Said) -> None:
    raw = copy.deepcopy(RAW)
    raw["pairs"][KEY] |= {"mlx": False, "mlx_target": {"repo": "owner/name"}}
    with pytest.raises(BuildError, match="mlx_target is given and mlx is false") as caught:
        config.validated(raw)
    said("Configuration: an MLX target without an MLX folder", caught.value)


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("echo '--model MODEL'", "dflash serve does not know --draft-quant"),
        ("echo 'ImportError: cannot import' >&2; exit 1", "dflash serve does not run: ImportError: cannot import"),
    ],
    ids=["an older dflash-mlx", "another mlx-lm"],
)
def test_flags_are_looked_for(text: str, message: str, tmp_path: Path, said: Said) -> None:
    with pytest.raises(BuildError, match=message) as caught:
        serve_mlx.check_flags(program(tmp_path / "dflash", text), ["--model", "--draft-quant"])
    said("MLX: {id}", caught.value)


def test_an_environment_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    place = tmp_path / "venv"
    monkeypatch.setenv(mlx_env.VARIABLE, str(place))
    with pytest.raises(BuildError, match=r"the MLX environment is not there .*: make .* make mlx-env") as caught:
        mlx_env.program("python")
    said("MLX: no environment", caught.value)
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "python").touch()
    (place / ".ready-of-other-pins").touch()
    with pytest.raises(BuildError, match="the MLX environment is made from other pins"):
        mlx_env.program("python")
    mlx_env.stamp(place).touch()
    assert mlx_env.program("dflash") == place / "bin" / "dflash"


def test_an_environment_whose_mlx_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    place = tmp_path / "venv"
    monkeypatch.setenv(mlx_env.VARIABLE, str(place))
    (place / "bin").mkdir(parents=True)
    program(place / "bin" / "python", "echo 'ImportError: no libmlx' >&2; exit 1")
    mlx_env.stamp(place).touch()
    with pytest.raises(BuildError, match=r"on_mlx\.load ended with code 1: ImportError: no libmlx") as caught:
        mlx_env.answer_of("load", {})
    said("MLX: an environment whose MLX does not run", caught.value)
    program(place / "bin" / "python", """echo '{"error": "TypeError: missing"}'; exit 1""")
    assert mlx_env.answer_of("load", {}) == {"error": "TypeError: missing"}
    with pytest.raises(BuildError, match="dflash-mlx: TypeError: missing"):
        mlx_env.call("load", {}, "here", "mend it")


def test_every_package_of_the_environment_is_pinned() -> None:
    lines = [line for line in mlx_env.REQUIREMENTS.read_text().splitlines() if not line.startswith("#")]
    assert [
        line for line in lines if not re.match(r"[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9.]*(; sys_platform == |$)", line)
    ] == []
    assert len(mlx_env.pins()) == len(lines)
    assert {"dflash-mlx", "mlx", "mlx-cpu", "mlx-metal", "mlx-lm", "transformers"} <= mlx_env.pins().keys()
