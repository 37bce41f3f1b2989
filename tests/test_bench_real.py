"""Bench, acceptance and gate on the embedded pair, with the real llama-server."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo.pair import workloads as demo_workloads
from scripts import acceptance, bench, bench_run, core, gate, llama_server, workloads
from scripts.core import BuildError
from scripts.serve_command import command
from tests.chain import Chain
from tests.video_samples import SETTINGS

pytestmark = pytest.mark.slow

PREDICT = 48


@pytest.fixture(scope="module")
def server(toolchain: Path) -> Path:
    return toolchain / "bin" / "llama-server"


@pytest.fixture(scope="module")
def target(pair_repos: Path) -> Path:
    return pair_repos / "finetune-gguf" / "TinyQwen3.5-Coder-Q8_0.gguf"


@pytest.fixture(scope="module")
def drafts(chain: Chain) -> dict[str, Path]:
    (bf16,) = (chain.results / "gguf").glob("*-bf16.gguf")
    return {quant: bf16.with_name(bf16.name.replace("bf16", quant)) for quant in ("bf16", "Q8_0", "Q4_K_M")}


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The two workloads that the pair was trained on, one prompt each."""
    folder = tmp_path_factory.mktemp("workloads")
    for name in ("code-edit", "code-new"):
        whole = yaml.safe_load((demo_workloads.FOLDER / f"{name}.yaml").read_text())
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(whole | {"prompts": whole["prompts"][:1]}))
    return [str(path) for path in sorted(folder.iterdir())]


def _options(server: Path, target: Path, draft: Path, settings: dict[str, Any], report: Path) -> list[str]:
    named = ["--server", str(server), "--target", str(target), "--draft", str(draft), "--settings", SETTINGS.dump()]
    return [*named, "--bench", json.dumps(settings | {"predict": PREDICT}), "--report", str(report)]


@pytest.fixture(scope="module")
def measured(
    server: Path, target: Path, drafts: dict[str, Path], short: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The folder of a measurement of the Q4_K_M draft, with prompts raw and through the template."""
    out = tmp_path_factory.mktemp("bench")
    settings = {"workloads": short, "formats": ["raw", "chat"], "repeats": 1}
    options = _options(server, target, drafts["Q4_K_M"], settings, out / "bench.json")
    assert bench.main([*options, "--out", str(out), "--log", str(out / "bench.log")]) == 0
    return out


def test_the_code_edit_is_accepted_and_the_output_stays_the_same(measured: Path) -> None:
    report = core.read_json(measured / "bench.json")
    rows = {(row["workload"], row["format"]): row for row in report["rows"]}
    assert list(rows) == [("code-edit", "raw"), ("code-edit", "chat"), ("code-new", "raw"), ("code-new", "chat")]
    for row in rows.values():
        assert (row["identical"], row["prompts"], row["loops"]) == (1, 1, {"baseline": 0, "dflash": 0})
    assert rows["code-edit", "chat"]["acceptance"] > 0.7
    assert rows["code-edit", "chat"]["tokens_per_pass"] > 8
    assert rows["code-edit", "chat"]["thinking"] == "off"
    assert rows["code-edit", "chat"]["baseline_tokens_per_second"]["median"] > 0
    assert report["build"]["baseline"] == report["build"]["dflash"] != ""


def test_raw_and_chat_send_the_embedded_pair_the_same_prompt(measured: Path) -> None:
    lines = [json.loads(line) for line in (measured / "raw.jsonl").read_text().splitlines()]
    assert len(lines) == 8
    for name in ("code-edit", "code-new"):
        assert len({line["request"]["prompt"] for line in lines if line["workload"] == name}) == 1
    for line in lines:
        assert sum(piece["tokens"] for piece in line["pieces"]) == line["predicted_n"]
        assert line["pieces"][0]["at"] == pytest.approx(line["first_token_s"], abs=1e-6)
        assert (line["side"] == "dflash") is (line["draft_n"] is not None)


def test_no_path_in_what_is_kept_of_a_measurement(measured: Path, target: Path, server: Path) -> None:
    for name in ("bench.json", "raw.jsonl", "table.md", "bench.svg"):
        text = (measured / name).read_text()
        assert [path for path in (target.parent, server.parent, measured, Path.home()) if f"{path}/" in text] == []


def test_a_dflash_address_without_a_draft_fails_as_never_engaged(
    server: Path, target: Path, short: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the way: a template without a switch for thinking leaves that format out, and says so."""
    plain = [*command(SETTINGS, target, None, server), "--chat-template", "chatml"]
    with llama_server.running(plain, tmp_path / "server.txt") as client:
        urls = {"baseline": client.url, "dflash": client.url}
        settings = {"workloads": short[:1], "formats": ["raw"], "repeats": 1, "predict": 8, "urls": urls}
        report = tmp_path / "bench.json"
        arguments = ["--bench", json.dumps(settings), "--out", str(tmp_path), "--report", str(report)]
        assert bench.main(arguments) == 1
        loaded = workloads.load_all(short)
        made, skipped = bench_run.requests(client, loaded, ["chat", "chat-thinking"])
        assert {(one.format, one.thinking) for one in made} == {("chat", "no switch")}
        assert "same text" in skipped["chat-thinking"]
        with pytest.raises(BuildError, match="no format is left"):
            bench_run.requests(client, loaded, ["chat-thinking"])
    (error,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert "the draft never engaged: no tokens were drafted in 1 answers" in error
    assert not report.exists()


def test_both_quants_pass_the_gate(
    server: Path, target: Path, drafts: dict[str, Path], short: list[str], tmp_path: Path
) -> None:
    reports = {quant: tmp_path / f"acceptance-{quant}.json" for quant in drafts}
    listed = tmp_path / "files.json"
    (tmp_path / target.name).symlink_to(target)
    core.write_json(listed, {"files": [target.name]})
    settings = {"workloads": short[:1], "formats": ["raw"]}
    for quant, draft in drafts.items():
        options = _options(server, listed, draft, settings, reports[quant])
        assert acceptance.main([*options, "--quant", quant]) == 0
    quants = [str(reports[quant]) for quant in ("Q8_0", "Q4_K_M")]
    arguments = ["--reference", str(reports["bf16"]), "--quants", *quants, "--margin", "0.05"]
    assert gate.main([*arguments, "--report", str(tmp_path / "gate.json")]) == 0
    passed = core.read_json(tmp_path / "gate.json")
    assert len(passed["checks"]) == 3 + 2
    assert all(row["same_answers"] == 1 for row in passed["rows"])
    assert all(value > 0.7 for value in passed["acceptance"].values())
