"""kill -9, of every step and of Snakemake, then the same command again: the same bytes as without it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo import run as demo_run
from demo.hub import HubServer
from scripts import core, release
from tests.chain import KEY, Chain, copy

pytestmark = pytest.mark.slow

NAME = "TinyQwen3.5-Coder-DFlash"
KILLS = {
    "write-lock": ["rename step"],
    "lock": ["rename step"],
    "fetch-draft": ["rename step"],
    "fetch-target": ["rename step"],
    "tokenizer": ["rename step"],
    "vocab": ["rename step"],
    "source": ["rename step"],
    "llama-quantize": ["rename step"],
    f"convert-{NAME}": ["program step", "program snakemake"],
    "convert-report": ["rename step"],
    f"quantize-{NAME}-Q8_0": ["rename step"],
    "verify-Q4_K_M": ["rename step"],
    "verify-bf16": ["rename all"],
    "mlx": ["rename step"],
    "manifest": ["rename step"],
    "card": ["rename step"],
    "sbom": ["rename step"],
    "provenance": ["rename step"],
    f"release-{NAME}-Q8_0": ["rename step"],
    "release": ["rename step"],
    "sign": ["rename step"],
    "publish": ["rename step"],
}
"""Log file of a step -> when it is killed and who (see hook/sitecustomize.py): every rule, and Snakemake twice."""


@pytest.fixture
def untouched(tmp_path: Path, pair_repos: Path) -> Iterator[Chain]:
    """A copy of the project in which nothing ran yet, and a Hub of its own to publish to."""
    with HubServer(tmp_path / "hub") as server:
        demo_run.seed(server, pair_repos)
        yield Chain(copy(tmp_path / "killed"), server, tmp_path)


@pytest.mark.timeout(1800)
def test_every_step_and_snakemake_killed_and_the_same_command_again(
    chain: Chain, untouched: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tmp_path / "plan"
    plan.mkdir()
    for log, kills in KILLS.items():
        (plan / log).write_text("".join(f"{kill}\n" for kill in kills))
    monkeypatch.setenv("KILL_PLAN", str(plan))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "hook"))
    codes = [1]
    while codes[-1] and len(codes) <= len(KILLS) + 2:
        codes.append(untouched.start("--cores", "2", "all", "publish").wait())
    said = (untouched.folder / "said.log").read_text()
    assert codes[-1] == 0, said[-3000:]
    assert [path.name for path in plan.iterdir() if path.read_text()] == []
    assert codes.count(-9) == 2
    assert [word for word in ("Traceback", "--unlock", "LockException") if word in said] == []
    assert "waiting: a step of a run that was killed is still at work in this folder" in said
    assert release.read_sums(untouched.results / "release") == release.read_sums(chain.results / "release")
    assert list((untouched.folder / "results").rglob(f".*{core.PART}")) == []
    report = core.read_json(untouched.results / "reports" / "publish.json")
    assert (report["ok"], report["changed"]) == (True, [])  # it was killed after the upload, before its report
    planned = untouched.snakemake("-n", "all", "publish")
    assert "Nothing to be done" in planned.stdout + planned.stderr


def test_what_a_killed_step_left_is_removed_and_said(untouched: Chain) -> None:
    left = untouched.results / "gguf" / f".{NAME}-bf16.gguf.abc{core.PART}"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    foreign = untouched.folder / "results" / "mine" / left.name
    foreign.parent.mkdir()
    shutil.copy(left, foreign)
    done = untouched.snakemake("--cores", "1", f"results/{KEY}/reports/lock.json")
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"{left.name}: a step that was killed left it" in done.stderr
    assert not left.exists()
    assert foreign.exists()
