"""Figures of dflash-mlx in the terms of llama-server, and the MLX folder as it is published."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from scripts import bench_mlx, config, mlx_env, mlx_release, release
from scripts.bench_mlx import asked, measured, report_of
from scripts.core import BuildError
from scripts.mlx import make_mlx
from tests import release_parts
from tests import verify_samples as samples
from tests.errors_table import Said

SERVE: dict[str, Any] = {"draft_quant": "w4:gs32", "block_tokens": 8}
BENCH = config.section("bench", {"workloads": ["demo/workloads/code-new.yaml"], "formats": ["raw"]}, "here")


def answer(side: str, tokens: list[int], cycles: list[tuple[int, int, str]]) -> dict[str, Any]:
    """An answer as ``on_mlx.answer`` gives it: the first token after a second, one more every tenth of one."""
    keys = ("drafted", "accepted", "source")
    return {
        "prompt": 0,
        "repeat": 1,
        "side": side,
        "prompt_tokens": 5,
        "tokens": tokens,
        "text": "text",
        "texts": [f"<{token}>" for token in tokens],
        "times": [1 + at / 10 for at in range(len(tokens))],
        "stop": "eos",
        "cycles": [dict(zip(keys, cycle, strict=True)) for cycle in cycles],
        "prefill_s": 0.5,
        "peak_gb": 6.1,
        "their_acceptance": 0.8 if cycles else None,
    }


def given(tokens: list[int]) -> dict[str, Any]:
    prompt = {"workload": "code-new", "id": "sum", "format": "raw", "text": "Write", "tokens": 5, "thinking": "raw"}
    cycles = [(7, 6, "dflash"), (7, 1, "copyspec")]
    return {
        "versions": {"dflash-mlx": "0.1.8", "mlx": "0.32.4", "device": "Device(gpu, 0)"},
        "block_size": 16,
        "prompts": [prompt],
        "answers": [answer("baseline", list(range(10)), []), answer("dflash", tokens, cycles)],
    }


def test_acceptance_is_accepted_over_drafted() -> None:
    report = report_of(given(list(range(10))), SERVE, BENCH)
    (row,) = report.figures["rows"]
    assert (row["drafted"], row["accepted"], row["acceptance"]) == (14, 7, 0.5)
    assert report.figures["their_acceptance"] == 0.7
    assert row["tokens_per_pass"] == pytest.approx(10 / 3)
    assert row["dflash_tokens_per_second"]["median"] == pytest.approx(10)
    assert (row["identical"], row["baseline_first_token_s"]["median"]) == (1, 1)
    assert report.figures["copied_drafts"] == 7
    assert report.figures["peak_gb"] == 6.1
    assert report.ok


def test_another_output_is_named() -> None:
    (row,) = report_of(given([0, 1, 2, 9, 9]), SERVE, BENCH).figures["rows"]
    assert row["identical"] == 0
    assert row["differences"][0]["position"] == 3
    assert row["differences"][0]["dflash"] == {"id": 9, "text": "<9>"}
    assert measured(given([1, 2])).runs[1].answer.stop == "eos"


def test_every_prompt_is_asked_in_every_format(tmp_path: Path) -> None:
    samples.write_draft(tmp_path / "draft")
    ask = asked(tmp_path / "target", tmp_path / "draft", SERVE, {**BENCH, "formats": ["raw", "chat"]}, copies=True)
    assert {prompt["format"] for prompt in ask["prompts"]} == {"raw", "chat"}
    assert (ask["block"], ask["draft_quant"], ask["copies"], ask["sides"]) == (
        8,
        "w4:gs32",
        True,
        ["baseline", "dflash"],
    )


def test_a_block_that_the_draft_has_not(tmp_path: Path, said: Said) -> None:
    samples.write_draft(tmp_path / "draft")
    with pytest.raises(BuildError, match="block_tokens is 17, the draft's block has 16 tokens") as caught:
        asked(tmp_path, tmp_path / "draft", {**SERVE, "block_tokens": 17}, BENCH, copies=True)
    said("MLX: measuring blocks larger than the draft's", caught.value)


def reports(tmp_path: Path) -> dict[str, Any]:
    samples.write_draft(tmp_path / "draft")
    mlx = make_mlx(tmp_path / "draft", tmp_path / "mlx", tmp_path / "mlx.json").as_dict()
    return {"manifest": release_parts.build(tmp_path / "gguf"), "mlx": mlx}


OPTIONS: dict[str, Any] = {"publish_mlx": {"repo": "demo-org/Tiny-MLX"}, "serve_mlx": SERVE}


def test_the_card_says_bits_group_block_and_memory(tmp_path: Path) -> None:
    target = {"repo": "owner/Target-MLX-4bit", "commit": "c" * 40, "bits": 4, "group_size": 64}
    bench = report_of(given(list(range(10))), SERVE, BENCH).as_dict()
    text = mlx_release.render({**reports(tmp_path), "mlx_target": target, "bench": bench}, OPTIONS)
    assert "4 bits a weight, groups of 32, 16 bits an activation" in text
    assert "--draft-model demo-org/Tiny-MLX" in text
    assert "| block size | 16 |" in text
    assert "4 bits in groups of 64" in text
    assert "At most 6.1 GB of memory" in text
    assert re.search(r"\| +0\.5 \|", text)
    assert "library_name: mlx" in text
    assert f"dflash-mlx {mlx_env.pins()['dflash-mlx']} lets a position of a sliding-window layer" in text
    assert "gguf" not in text.lower()


def test_a_card_without_measurement_names_no_figure(tmp_path: Path) -> None:
    options = {**OPTIONS, "serve_mlx": {**SERVE, "draft_quant": "none"}}
    text = mlx_release.render(reports(tmp_path), options)
    assert "Not measured yet: this card names no speed, no acceptance and no memory." in text
    assert "The draft is used as it is stored, in bf16." in text
    assert "GB of memory" not in text


def test_the_folder_is_closed_with_linked_weights(tmp_path: Path) -> None:
    made = reports(tmp_path)
    text = mlx_release.render(made, OPTIONS)
    mlx_release.close(tmp_path / "out", tmp_path / "mlx", text, made["mlx"]["sha256"])
    sums = release.read_sums(tmp_path / "out")
    assert set(sums) == {"README.md", "config.json", "model.safetensors"}
    assert (tmp_path / "out" / "model.safetensors").samefile(tmp_path / "draft" / "model.safetensors")
    for name, sha256 in sums.items():
        assert hashlib.sha256((tmp_path / "out" / name).read_bytes()).hexdigest() == sha256


def test_a_card_with_a_figure_that_no_report_has(tmp_path: Path, said: Said) -> None:
    made = reports(tmp_path)
    del made["mlx"]["block_size"]
    with pytest.raises(BuildError, match=r"the card cannot be rendered: .*block_size") as caught:
        mlx_release.render(made, OPTIONS)
    said("MLX: a card with a figure that no report has", caught.value)


def test_the_command_checks_its_section(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples.write_draft(tmp_path / "draft")
    arguments = [f"--{key}={tmp_path / path}" for key, path in (("target", "no"), ("draft", "draft"), ("out", "o"))]
    section = json.dumps({"draft_quant": "w3"})
    assert bench_mlx.main([*arguments, f"--report={tmp_path / 'r'}", f"--serve-mlx={section}"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: draft_quant: 'w3' does not match")
    assert not (tmp_path / "o").exists()
