"""kill -9, of every step and of Snakemake, then the same command again: the same bytes as without it."""

import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen

import psutil
import pytest

from demo import run as demo_run
from demo.hub import HubServer
from scripts import core, release
from tests.chain import KEY, Chain, copy

pytestmark = pytest.mark.slow

NAME = "TinyQwen3.5-Coder-DFlash"


@dataclass(frozen=True)
class Victim:
    """A step, known by its log file; killed when it is so many seconds old, or has begun to write a big file."""

    log: str
    age: float = 0.0
    writing: bool = False
    whom: str = "step"

    def is_due(self, process: psutil.Process, results: Path) -> bool:
        words = process.cmdline()
        if words[1:2] != ["-m"] or not words[-1].endswith(f"/{self.log}.log"):
            return False
        parts = results.rglob(f".*{core.PART}")
        if self.writing and not any(part.stat().st_size for part in parts):
            return False
        return bool(time.time() - process.create_time() >= self.age)


STEPS = {
    "write_lock": Victim("write-lock"),
    "resolve": Victim("lock"),
    "fetch": Victim("fetch-target", age=0.8),
    "prepare_tokenizer": Victim("tokenizer", age=1),
    "check_vocabulary": Victim("vocab", age=1),
    "toolchain_source": Victim("source"),
    "toolchain_build": Victim("llama-quantize"),
    "convert": Victim(f"convert-{NAME}", writing=True),
    "convert_report": Victim("convert-report"),
    "quantize": Victim(f"quantize-{NAME}-Q8_0", writing=True),
    "verify": Victim("verify-Q4_K_M", age=1),
    "mlx": Victim("mlx"),
    "manifest": Victim("manifest"),
    "card": Victim("card"),
    "release_file": Victim(f"release-{NAME}-Q8_0"),
    "release": Victim("release"),
    "publish_pair": Victim("publish", age=0.8),
}
RUNS = {
    "Snakemake alone": Victim(f"convert-{NAME}", writing=True, whom="snakemake"),
    "Snakemake and all its steps": Victim("verify-bf16", age=1, whom="all"),
}


@pytest.fixture
def untouched(tmp_path: Path, pair_repos: Path) -> Iterator[Chain]:
    """A copy of the project in which nothing ran yet, and a Hub of its own to publish to."""
    with HubServer(tmp_path / "hub") as server:
        demo_run.seed(server, pair_repos)
        yield Chain(copy(tmp_path / "killed"), server, tmp_path)


def _watch(run: Popen[str], left: dict[str, Victim], results: Path) -> Iterator[str]:
    """Kill who is due until Snakemake has ended; yields whom."""
    snakemake = psutil.Process(run.pid)
    while run.poll() is None:
        try:
            children = snakemake.children(recursive=True)
        except psutil.NoSuchProcess:
            break
        for child in children:
            try:
                due = [name for name, victim in left.items() if victim.is_due(child, results)][:1]
            except (psutil.NoSuchProcess, psutil.ZombieProcess, FileNotFoundError):
                continue
            for name in due:
                whom = left.pop(name).whom
                for process in {"step": [child], "snakemake": [snakemake], "all": [snakemake, *children]}[whom]:
                    if process.is_running():
                        process.send_signal(signal.SIGKILL)
                yield name
        time.sleep(0.02)
    run.wait()


def test_every_step_and_snakemake_killed_once_and_run_again(chain: Chain, untouched: Chain) -> None:
    left, killed = {**STEPS, **RUNS}, list[str]()
    for _ in range(len(left) + 1):
        run = untouched.start("--cores", "2", "all", "publish")
        killed += _watch(run, left, untouched.results)
        if run.returncode == 0:
            break
    said = (untouched.folder / "said.log").read_text()
    assert run.returncode == 0, said[-3000:]
    assert sorted(killed) == sorted({**STEPS, **RUNS})
    assert [word for word in ("Traceback", "--unlock", "LockException") if word in said] == []
    assert "waiting: a step of a run that was killed is still at work" in said
    assert release.read_sums(untouched.results / "release") == release.read_sums(chain.results / "release")
    assert list(untouched.results.rglob(f".*{core.PART}")) == []
    report = core.read_json(untouched.results / "reports" / "publish.json")
    assert report["ok"] is True
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
