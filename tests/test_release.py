"""Manifest, card and SHA256SUMS: made from reports alone, closed over exactly what is published."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard

from scripts import card, core, manifest, release
from scripts.core import BuildError
from tests import release_parts as parts
from tests.errors_table import Said


def test_sums_are_what_sha256sum_checks(tmp_path: Path) -> None:
    folder = parts.closed(tmp_path / "release")
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", release.SUMS], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count(": OK") == 5


def test_what_left_the_release_leaves_the_folder(tmp_path: Path) -> None:
    folder = parts.closed(tmp_path / "release")
    (folder / "Tiny-DFlash-Q2_K.gguf").write_text("an old quant")
    sums = release.read_sums
    with pytest.raises(BuildError, match=r"Tiny-DFlash-Q2_K\.gguf is in only one of"):
        sums(folder)
    parts.closed(folder)
    assert "Tiny-DFlash-Q2_K.gguf" not in sums(folder)


def test_a_missing_file_does_not_close(tmp_path: Path, said: Said) -> None:
    folder = parts.closed(tmp_path / "release")
    with pytest.raises(BuildError, match=r"gone\.gguf is missing") as caught:
        release.close(folder, ["gone.gguf"], {})
    said("Release: a file that is not there", caught.value)


@pytest.mark.parametrize("text", [None, "no two columns\n"])
def test_broken_sums_are_one_line(text: str | None, tmp_path: Path, said: Said) -> None:
    folder = parts.closed(tmp_path / "release")
    (folder / release.SUMS).unlink()
    if text:
        (folder / release.SUMS).write_text(text)
    with pytest.raises(BuildError, match="cannot read SHA256SUMS") as caught:
        release.read_sums(folder)
    assert "\n" not in str(caught.value)
    said(f"Release: SHA256SUMS {'that is broken' if text else 'missing'}", caught.value)


def test_a_served_file_of_this_machine_is_not_named() -> None:
    assert manifest.served({"target": {**parts.ok(), "files": ["private-name.gguf"]}}) == {}
    assert manifest.served({"convert": parts.ok()}) == {}


def test_a_failed_check_stops_the_release(tmp_path: Path, said: Said) -> None:
    bad = {**parts.ok(), "ok": False, "checks": [{"name": "rope theta", "ok": False, "detail": "1e6, not 1e7"}]}
    with pytest.raises(
        BuildError, match=r"rope theta: 1e6, not 1e7 \(report of convert\): nothing is released"
    ) as caught:
        manifest.manifest("tiny", "Tiny", {}, parts.ok(), {"convert": bad, "vocab": parts.ok()}, [])
    said("Release: a report with a failed check", caught.value)


def test_the_manifest_names_no_path_time_or_machine(tmp_path: Path) -> None:
    folder = parts.closed(tmp_path / "release")
    text = (folder / "manifest.json").read_text()
    assert str(tmp_path) not in text
    assert parts.build(tmp_path / "other") == core.read_json(folder / "manifest.json")


def test_the_card_is_a_card_with_our_metadata(tmp_path: Path) -> None:
    loaded = ModelCard(card.render(parts.build(tmp_path), parts.OPTIONS))
    data = loaded.data.to_dict()  # type: ignore[no-untyped-call]
    assert data["license"] == "apache-2.0"
    assert data["base_model"] == ["owner/draft", "owner/target"]
    assert data["base_model_relation"] == "quantized"
    assert {"gguf", "llama.cpp", "dflash", "speculative-decoding", "draft-model"} <= set(data["tags"])


def test_every_figure_of_the_card_is_in_the_reports(tmp_path: Path) -> None:
    made = parts.build(tmp_path)
    text = card.render(made, parts.OPTIONS)
    for output in made["outputs"]:
        row = f"| {output['file']} | {core.human(output['bytes'])} | {output['bpw']:.2f} | `{output['sha256']}` |"
        assert row in text
    assert "--spec-draft-n-max 15" in text
    assert "-hfd demo-org/Tiny-GGUF:Q4_K_M" in text
    assert "Not measured yet" in text


def test_the_cards_commands_use_only_files_of_the_release(tmp_path: Path) -> None:
    made = parts.build(tmp_path)
    made["outputs"] = [output for output in made["outputs"] if output["quant"] == "bf16"]
    text = card.render(made, parts.OPTIONS)
    assert "Q4_K_M" not in text.partition("## How it was built")[0]
    assert "-md Tiny-DFlash-bf16.gguf" in text


def test_without_a_served_target_the_card_has_no_command_for_it(tmp_path: Path) -> None:
    text = card.render(parts.build(tmp_path), parts.OPTIONS | {"publish": None, "target_gguf": None})
    assert "-hf " not in text
    assert "-md Tiny-DFlash-Q4_K_M.gguf" in text


def test_a_figure_without_a_report_cannot_get_into_the_card(tmp_path: Path, said: Said) -> None:
    template = tmp_path / "card.md.j2"
    template.write_text("Acceptance {{ manifest.bench.acceptance }}")
    with pytest.raises(BuildError, match=r"cannot be rendered: .*bench") as caught:
        card.render(parts.build(tmp_path), parts.OPTIONS, template)
    assert "\n" not in str(caught.value)
    said("Release: a figure in the card that no report has", caught.value)


@pytest.mark.parametrize("key", ["license_name", "license_link"])
def test_other_licenses_keep_their_name_and_link(key: str, tmp_path: Path) -> None:
    made: dict[str, Any] = parts.build(tmp_path)
    made["general"] |= {"general.license": "other", f"general.{key.replace('_', '.')}": "x"}
    front = card.render(made, parts.OPTIONS).split("---")[1]
    assert yaml.safe_load(front)[key] == "x"
