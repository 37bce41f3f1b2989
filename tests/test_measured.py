"""The embedded pair measured by the workflow: gate, bench, card, pictures, tuning, and what serve makes of it."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from scripts import core, release
from tests.chain import KEY, Chain

pytestmark = pytest.mark.slow

BENCH = {"formats": ["chat"], "repeats": 1, "predict": 48}


def short(folder: Path) -> list[str]:
    """The workloads of the embedded pair with one prompt each."""
    names = []
    for name in ("code-edit", "code-new"):
        path = folder / "demo" / "workloads" / f"{name}.yaml"
        whole = yaml.safe_load(path.read_text(encoding="utf-8"))
        path.write_text(yaml.safe_dump(whole | {"prompts": whole["prompts"][:1]}), encoding="utf-8")
        names.append(str(path.relative_to(folder)))
    return names


@pytest.fixture(scope="module")
def measured(chain: Chain, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """A copy of the finished chain in which the pair is measured, with few and short answers."""
    folder = tmp_path_factory.mktemp("measured") / "project"
    shutil.copytree(chain.folder, folder, symlinks=True)
    path = folder / "demo" / "config.yaml"
    settings: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    settings["pairs"][KEY] |= {"bench": True, "gate": True}
    settings["bench"] = BENCH | {"workloads": short(folder)}
    settings["video"] = {"workload": "code-edit", "predict": 48}
    settings["tune"] = {"budget": 60, "n_max": [4, 15], "kv_types": ["f16"]}
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    made = Chain(folder, chain.hub, chain.work)
    done = made.snakemake("--cores", "2", "all", "demo_video")
    assert done.returncode == 0, done.stderr[-3000:]
    return made


def test_the_card_has_the_measured_rows_and_pictures(measured: Chain) -> None:
    folder = measured.results / "release"
    text = (folder / "README.md").read_text(encoding="utf-8")
    report = core.read_json(measured.results / "reports" / "bench.json")
    for row in report["rows"]:
        assert f"| {row['workload']} (chat) | off |" in text
        assert f"| {row['acceptance']:.3f} |" in text
    assert "Not measured yet" not in text
    names = set(release.read_sums(folder))
    assert {"bench.png", "demo.gif"} < names
    for name in ("bench.png", "demo.gif"):
        assert f"]({name})" in text
        Image.open(folder / name).verify()


def test_the_edit_is_accepted_and_every_output_is_the_same(measured: Chain) -> None:
    rows = core.read_json(measured.results / "reports" / "bench.json")["rows"]
    assert next(row for row in rows if row["workload"] == "code-edit")["acceptance"] > 0.7
    assert all(row["identical"] == row["prompts"] for row in rows)
    gate = core.read_json(measured.results / "reports" / "gate.json")
    assert gate["ok"]
    assert set(gate["acceptance"]) == {"bf16", "Q8_0", "Q4_K_M"}


def test_nothing_is_measured_again(measured: Chain) -> None:
    done = measured.snakemake("-n", "all", "demo_video")
    assert "Nothing to be done" in done.stderr + done.stdout


def test_what_tuning_finds_is_served(measured: Chain) -> None:
    done = measured.snakemake("--cores", "2", "tune")
    assert done.returncode == 0, done.stderr[-3000:]
    advice = yaml.safe_load((measured.results / "serve.yaml").read_text(encoding="utf-8"))
    report = core.read_json(measured.results / "reports" / "tune.json")
    assert advice == report["recommended"]
    assert advice["for"] == "code-edit"
    best = report["best"]["code-edit"]
    assert best["setting"]["n_max"] == advice["n_max"] in (4, 15)
    assert {row["n_max"] for row in report["rows"]} == {None, 4, 15}
    assert best["acceptance"] > 0.7
    command = ["-m", "scripts.serve", KEY, "--configfile", "demo/config.yaml", "--print"]
    printed = subprocess.run(
        [measured.command()[0], *command], cwd=measured.folder, env=measured.environment, capture_output=True, text=True
    )
    assert printed.returncode == 0, printed.stderr
    assert f"--spec-draft-n-max {advice['n_max']} " in printed.stdout
    assert f"-DFlash-{advice['draft_quant']}.gguf" in printed.stdout
