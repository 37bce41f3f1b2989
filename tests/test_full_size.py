"""The full-size run: the draft's shapes and size, and what the tables say of a run."""

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from demo import full_draft, full_size, full_tables
from demo.full_tables import Plain, Run
from scripts import config, core
from scripts.core import BuildError
from scripts.draft_config import check_against_target, expected_tensors, read_draft_config
from scripts.safetensors_header import map_tensor, read_header
from scripts.usage import Usage

SMALL = {"norm.weight": (1000,), "fc.weight": (32, 7), "layers.0.mlp.up_proj.weight": (700, 64)}
"""Not in the order of names, and of a length that is not a whole number of pieces."""


def _shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    core.write_json(folder / "config.json", full_draft.draft_config())
    return expected_tensors(read_draft_config(folder / "config.json"))


def test_the_file_has_the_size_of_the_real_one(tmp_path: Path) -> None:
    shapes = _shapes(tmp_path)
    assert len(shapes) == 69
    assert full_draft.file_bytes(shapes) == full_draft.BYTES == 2_583_816_472


def test_the_header_is_that_of_safetensors_own_writer() -> None:
    tensors = {name: torch.zeros(shape, dtype=torch.bfloat16) for name, shape in SMALL.items()}
    written = safetensors.torch.save(tensors, metadata={"format": "pt"})
    header = full_draft.header(SMALL)
    assert written[: len(header)] == header
    assert len(written) == full_draft.file_bytes(SMALL)


def test_the_draft_fits_its_target(tmp_path: Path) -> None:
    _shapes(tmp_path)
    checks = check_against_target(read_draft_config(tmp_path / "config.json"), full_draft.target_config())
    assert [check for check in checks if not check.ok] == []


def test_the_repositories_are_those_of_the_config() -> None:
    (pair,) = config.load(full_size.CONFIG)["pairs"].values()
    assert {pair[role]["repo"] for role in ("draft", "target", "base")} == set(full_draft.FOLDERS)
    assert set(pair["quants"]) == set(full_tables.SIZES)
    assert "publish" not in pair


def test_weights_are_random_and_the_same_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_draft, "PIECE", 1 << 14)
    for name in ("one", "two"):
        full_draft.write_weights(tmp_path / name, SMALL)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    header = read_header(tmp_path / "one")
    values = {
        name: (map_tensor(tensor).astype(np.uint32) << np.uint32(16)).view(np.float32)
        for name, tensor in header.tensors.items()
    }
    matrix, norm = values["layers.0.mlp.up_proj.weight"], values["norm.weight"]
    assert matrix.std() == pytest.approx(full_draft.SPREAD, rel=0.03)
    assert abs(matrix.mean()) < 1e-3
    assert norm.mean() == pytest.approx(1, abs=0.01)
    assert len(np.unique(matrix)) > 1000
    assert not np.array_equal(matrix[0], matrix[256])


def test_rounding_to_bf16_is_torchs() -> None:
    values = np.random.default_rng(1).standard_normal(10_000, dtype=np.float32)
    values[:4] = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x80000000], dtype=np.uint32).view(np.float32)
    wanted = torch.from_numpy(values.copy()).to(torch.bfloat16).view(torch.uint16).numpy()
    assert np.array_equal(full_draft.to_bf16(values), wanted)


def _step(name: str, wall: float, cpu: float, peak: int = 1 << 20) -> Usage:
    return Usage(name, wall, cpu, peak, 5 << 20, None, 1_234 << 20)


DONE = Run(
    steps=[_step("fetch-draft", 10, 5), _step("convert-X", 40, 41, full_tables.PEAK)],
    wall=100,
    cpu=50,
    hub_cpu=4,
    fetched=full_draft.BYTES + full_tables.TOKENIZERS,
    sizes={quant: size + full_tables.METADATA for quant, size in full_tables.SIZES.items()},
    checks=7,
)
PLAIN = Plain([_step("convert", 39, 40)], 100)


def _missed(done: Run, plain: Plain = PLAIN) -> list[str]:
    return [target.name for target in full_tables.targets(done, plain) if not target.met]


def test_a_run_at_the_limits_meets_every_target() -> None:
    assert _missed(DONE) == []
    full_size.judge(full_tables.targets(DONE, PLAIN), strict=True)


@pytest.mark.parametrize(
    ("done", "name"),
    [
        (replace(DONE, sizes={**DONE.sizes, "Q8_0": DONE.sizes["Q8_0"] + 1}), "bytes of Q8_0"),
        (replace(DONE, sizes={**DONE.sizes, "bf16": full_tables.SIZES["bf16"] - 1_000_001}), "bytes of bf16"),
        (replace(DONE, sizes={key: DONE.sizes[key] for key in ("bf16", "Q8_0")}), "bytes of Q4_K_M"),
        (replace(DONE, fetched=DONE.fetched + 1), "bytes fetched"),
        (replace(DONE, steps=[_step("mlx", 1, 1, full_tables.PEAK + 1), *DONE.steps]), "peak memory of a step"),
    ],
)
def test_a_missed_target_is_named_and_ends_the_run(done: Run, name: str) -> None:
    assert _missed(done) == [name]
    with pytest.raises(BuildError, match=re.escape(f"target missed: {name} is ")):
        full_size.judge(full_tables.targets(done, PLAIN), strict=False)


def test_a_slow_run_fails_only_where_that_is_asked_for() -> None:
    reached = full_tables.targets(replace(DONE, wall=100.5), PLAIN)
    assert [target.name for target in reached if not target.met] == ["wall time"]
    full_size.judge(reached, strict=False)
    with pytest.raises(BuildError, match=r"target missed: wall time is 100 s, the target is 100 s, the plain sequence"):
        full_size.judge(reached, strict=True)


def test_others_that_were_missed_are_counted() -> None:
    with pytest.raises(BuildError, match=r"\(and 2 more\)"):
        full_size.judge(full_tables.targets(replace(DONE, sizes={}), PLAIN), strict=False)


def test_the_table_has_a_row_a_step_and_the_totals() -> None:
    rows = full_tables.table(DONE.steps, ("whole chain", 100, 50.04))
    assert list(rows["step"]) == ["fetch-draft", "convert-X", "whole chain"]
    assert list(rows["wall s"]) == ["10.0", "40.0", "100.0"]
    assert list(rows["CPU s"]) == ["5.0", "41.0", "50.0"]
    assert list(rows["peak MiB"]) == ["1", "1,536", ""]
    assert list(rows["read MiB"]) == ["5", "5", ""]
    assert list(rows["from disk MiB"]) == ["", "", ""]
    assert list(rows["written MiB"]) == ["1,234", "1,234", ""]


def test_the_report_shows_all_of_it() -> None:
    slow = replace(DONE, wall=120.0, cpu=math.pi * 50)
    text = full_tables.report(slow, PLAIN, full_tables.targets(slow, PLAIN), cores=2)
    lines = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("|")}
    assert "111.1" in lines["Snakemake itself"]  # what the two steps did not take of 157.1
    assert "157.1" in lines["whole chain"]
    assert lines["bytes fetched"].rstrip("| ").endswith("met")
    assert lines["wall time"].rstrip("| ").endswith("missed")
    assert "takes 40 CPU seconds and leaves 160 of 2 cores unused" in text
    assert "takes 121 CPU seconds (4 of them are the local Hub's)" in text
    assert "would take 81 s, and it took 120 s" in text


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        full_size.main(["--help"])
    assert caught.value.code == 0
    assert "--strict" in capsys.readouterr().out
