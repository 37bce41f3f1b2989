"""The card's figures: measured ones come from reports of this very release, and no digit is written in the template."""

import re
from pathlib import Path
from typing import Any

import pytest

from scripts import card, card_measured, core
from scripts.core import BuildError
from tests import release_parts as parts
from tests.errors_table import Said

FACTS = {"22105", "0", "16", "256", "1"}
"""Digits that the template's own words may have: llama.cpp's pull request, f16, sha256, temperature 0."""


def spread(value: float) -> dict[str, float]:
    return {"median": value, "min": value, "max": value}


def row(**changes: Any) -> dict[str, Any]:
    made = {
        "workload": "code-edit",
        "format": "chat",
        "thinking": "off",
        "prompts": 4,
        "identical": 3,
        "baseline_tokens_per_second": spread(61.94),
        "dflash_tokens_per_second": spread(304.26),
        "ratio": spread(4.912),
        "acceptance": 0.8412,
        "tokens_per_pass": 13.66,
    }
    return made | changes


def bench(manifest: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A bench report on the last file of a release."""
    output = manifest["outputs"][-1]
    return {
        **parts.ok(),
        "machine": {"cpu": "A CPU", "cores": 8, "gpus": ["RTX 3070, 550.54"], "os": "Linux 6.1 x86_64"},
        "target": {"repo": "owner/Target-GGUF", "commit": "a" * 40, "quant": "Q3_K_M", "files": ["Target-Q3_K_M.gguf"]},
        "draft": {"files": [output["file"]], "sha256": [output["sha256"]]},
        "flags": {"dflash": ["-m", "Target-Q3_K_M.gguf", "-c", "4096"]},
        "build": {"dflash": "b1234-abcdef", "baseline": "b1234-abcdef"},
        **{"n_max": 15, "repeats": 3, "predict": 256, "temperature": 0, "seed": 42, "warnings": ["one thing to know"]},
        "rows": [row(), row(workload="prose", ratio=None, acceptance=None, tokens_per_pass=None)],
    } | changes


@pytest.fixture
def manifest(tmp_path: Path) -> dict[str, Any]:
    return parts.build(tmp_path / "release")


def written(folder: Path, report: dict[str, Any], name: str = "bench.json") -> Path:
    core.write_json(folder / name, report)
    return folder / name


def test_measured_figures_with_machine_build_flags_and_target(manifest: dict[str, Any], tmp_path: Path) -> None:
    own = written(tmp_path, bench(manifest))
    other = written(
        tmp_path, bench(manifest, machine={"cpu": "M3 Pro", "cores": 11, "gpus": [], "os": "Darwin"}), "b.json"
    )
    measured = card_measured.measured(own, [other], manifest)
    text = card.render(manifest, parts.OPTIONS, measured=measured)
    first = next(line for line in text.splitlines() if line.startswith("| RTX 3070 |"))
    cells = [cell.strip() for cell in first.strip("|").split("|")]
    assert dict(zip(card_measured.COLUMNS, cells, strict=True)) == {
        "machine": "RTX 3070",
        "target": "Q3_K_M",
        "draft": "Tiny-DFlash-Q4_K_M.gguf",
        "n-max": "15",
        "workload": "code-edit (chat)",
        "thinking": "off",
        "baseline tok/s": "61.9",
        "DFlash tok/s": "304.3",
        "ratio": "4.91x",
        "acceptance": "0.841",
        "tokens a pass": "13.7",
    }
    assert text.count("| M3 Pro, 11 cores |") == 2
    for part in (
        "b1234-abcdef",
        "-c 4096",
        "owner/Target-GGUF at `aaaaaaaaaaaa`",
        "6 of 8 the same",
        "one thing to know",
    ):
        assert part in text
    assert "Not measured yet" not in text


def test_without_a_report_there_is_no_figure(manifest: dict[str, Any]) -> None:
    assert card_measured.measured(None, [], manifest) is None
    text = card.render(manifest, parts.OPTIONS)
    assert "Not measured yet" in text
    assert "tok/s" not in text


def test_no_figure_is_written_in_the_template() -> None:
    """Every number of a card comes from a report or the config; the template has none of its own but known names."""
    words = re.sub(r"\{[%{].*?[%}]\}", "", card.TEMPLATE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert set(re.findall(r"\d+(?:\.\d+)?", words)) <= FACTS


def test_acceptance_of_every_file_from_the_gate(manifest: dict[str, Any]) -> None:
    gate = {**parts.ok(), "margin": 0.05, "acceptance": {"bf16": 0.8087, "Q8_0": 0.8086, "Q4_K_M": 0.7914}}
    text = card.render(manifest, parts.OPTIONS, gate=gate)
    assert "| 0.809 | `" in text
    assert "| 0.791 | `" in text
    assert "is for quantizing again.\n\nAcceptance is" in text
    gate["acceptance"].pop("Q8_0")
    with pytest.raises(BuildError, match="the card cannot be rendered"):
        card.render(manifest, parts.OPTIONS, gate=gate)


def test_the_mlx_folder_is_named_where_it_is_published(manifest: dict[str, Any]) -> None:
    assert "Apple" not in card.render(manifest, parts.OPTIONS)
    text = card.render(manifest, parts.OPTIONS | {"mlx": "me/Tiny-MLX"})
    assert "On Apple Silicon: [me/Tiny-MLX](https://huggingface.co/me/Tiny-MLX)" in text


def test_pictures_are_named_only_where_they_are_released(manifest: dict[str, Any], tmp_path: Path) -> None:
    measured = card_measured.measured(written(tmp_path, bench(manifest)), [], manifest)
    assert "](demo.gif)" not in card.render(manifest, parts.OPTIONS, measured=measured)
    shown = parts.OPTIONS | {"pictures": ["bench.png", "demo.gif"]}
    text = card.render(manifest, shown, measured=measured)
    assert "](demo.gif)" in text
    assert "](bench.png)" in text


def test_a_report_of_another_draft(manifest: dict[str, Any], tmp_path: Path, said: Said) -> None:
    report = bench(manifest, draft={"files": ["Other-Q4_K_M.gguf"], "sha256": ["b" * 64]})
    with pytest.raises(BuildError, match="measured with another draft") as caught:
        card_measured.measured(None, [written(tmp_path, report)], manifest)
    said("Card: figures of another draft", caught.value)


def test_a_report_that_failed(manifest: dict[str, Any], tmp_path: Path, said: Said) -> None:
    with pytest.raises(BuildError, match="says that a check failed") as caught:
        card_measured.measured(None, [written(tmp_path, bench(manifest, ok=False))], manifest)
    said("Card: figures of a measurement that failed", caught.value)


def test_a_file_that_is_no_report(manifest: dict[str, Any], tmp_path: Path, said: Said) -> None:
    with pytest.raises(BuildError, match="not a bench report") as caught:
        card_measured.measured(None, [written(tmp_path, {"rows": []})], manifest)
    said("Card: figures in a file that is no bench report", caught.value)
