"""Two runs at once: in one folder the second stops, in two folders that share their caches both finish."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo import pair
from demo import run as demo_run
from demo.hub import FaultRule, HubServer
from scripts import core, locks, release, runs
from scripts.config import ROOT
from scripts.toolchain_cache import cache_root, tree_sha256
from tests.chain import KEY, Chain, copy
from tests.errors_table import Said

NAME = "TinyQwen3.5-Coder-DFlash"


@pytest.fixture
def seeded(tmp_path: Path, pair_repos: Path) -> Iterator[HubServer]:
    with HubServer(tmp_path / "hub") as server:
        demo_run.seed(server, pair_repos)
        yield server


def _soon(path: Path, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < until, path
        time.sleep(0.05)


@pytest.mark.slow
def test_a_second_run_in_one_folder_says_who_works_there(seeded: HubServer, tmp_path: Path) -> None:
    chain = Chain(copy(tmp_path / "one"), seeded, tmp_path)
    report = f"results/{KEY}/reports/fetch-draft.json"
    seeded.break_with(FaultRule(rf"{pair.DRAFT_REPO}.*README", "stall", method="GET", seconds=8))
    first = chain.start("--cores", "1", report)
    try:
        _soon(chain.results / "reports" / "lock.json")
        started = time.monotonic()
        second = chain.snakemake("--cores", "1", report)
        took = time.monotonic() - started
        planned = chain.snakemake("-n", report)
    finally:
        first.wait(60)
    line = second.stderr.strip().splitlines()[-1]
    assert line == (
        f"error: another run, pid {first.pid}, works in this folder ({chain.folder}): wait for it or stop it"
    )
    assert (second.returncode, first.returncode, planned.returncode) == (1, 0, 0)
    assert took < 15
    assert core.read_json(chain.folder / report)["ok"] is True


@pytest.mark.slow
def test_two_folders_that_share_their_caches(chain: Chain, seeded: HubServer, tmp_path: Path) -> None:
    (quantizer,) = (path.relative_to(chain.folder) for path in chain.folder.rglob("results/toolchain/*/llama-q*.json"))
    cache = tmp_path / "cache"
    for part in ("archives", "builds"):  # the sources are unpacked again, by one of the two
        ignored = shutil.ignore_patterns("build")
        shutil.copytree(cache_root() / part, cache / part, copy_function=os.link, ignore=ignored)
    both = [Chain(copy(tmp_path / name), seeded, tmp_path) for name in ("one", "two")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DFLASH_CACHE", str(cache))
        reports = [f"results/{KEY}/reports/fetch-{role}.json" for role in ("draft", "target", "base", "mlx_target")]
        started = [made.start("--cores", "1", *reports, quantizer.as_posix()) for made in both]
        codes = [run.wait(300) for run in started]
    assert codes == [0, 0], [(made.folder / "said.log").read_text()[-2000:] for made in both]
    assert len({tree_sha256(made.results / "source") for made in (chain, *both)}) == 1
    assert len({(made.folder / quantizer).read_text() for made in (chain, *both)}) == 1
    sources = [path for path in (cache / "sources").iterdir() if path.is_dir()]
    assert len(sources) == 1


def test_the_lock_of_a_run_ends_with_its_process(tmp_path: Path, said: Said) -> None:
    def begins(then: str) -> subprocess.Popen[str]:
        code = f"import time\nfrom scripts import core, runs\ntry:\n    runs.begin([])\n{then}"
        code += "\nexcept core.BuildError as error:\n    raise SystemExit(str(error))"
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)

    stays = begins("    time.sleep(60)")
    try:
        _soon(tmp_path / runs.RUN)
        while (tmp_path / runs.RUN).read_text() != f"{stays.pid}\n":
            time.sleep(0.01)
        line = begins("    pass").communicate(timeout=30)[1]
        said("Machine: two runs in one folder", line.strip().replace(f"pid {stays.pid}", "pid 4711"))
        assert line == (f"another run, pid {stays.pid}, works in this folder ({tmp_path}): wait for it or stop it\n")
    finally:
        stays.kill()
        stays.communicate()
    assert begins("    pass").communicate(timeout=30)[1] == ""


def test_a_program_that_outlives_its_step_keeps_the_steps_lock(tmp_path: Path) -> None:
    code = "from scripts import locks, process\nfrom pathlib import Path\n"
    code += "locks.take(Path('x.lock'))\nprocess.stream(['sh', '-c', 'echo $$ > pid; exec sleep 60'], print)"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    step = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=env)
    _soon(tmp_path / "pid")
    while not (text := (tmp_path / "pid").read_text()):
        time.sleep(0.01)
    step.kill()
    step.wait()
    try:
        assert locks.take(tmp_path / "x.lock") is None
    finally:
        os.kill(int(text), signal.SIGKILL)
    lock = locks.take(tmp_path / "x.lock", wait=True)
    assert lock is not None
    locks.drop(lock)


@pytest.mark.slow
def test_a_bit_that_flips_in_a_finished_file_is_found_before_it_is_published(chain: Chain, tmp_path: Path) -> None:
    shutil.copytree(chain.folder, tmp_path / "damaged", symlinks=True)
    again = Chain(tmp_path / "damaged", chain.hub, chain.work)
    bf16 = again.results / "gguf" / f"{NAME}-bf16.gguf"
    times = (bf16.stat().st_atime_ns, bf16.stat().st_mtime_ns)
    content = bytearray(bf16.read_bytes())
    content[-100] ^= 1
    bf16.write_bytes(content)
    os.utime(bf16, ns=times)  # as a failing disk leaves it
    before = len(chain.hub.log.entries())
    publish = ("--cores", "2", "--forcerun", "publish_pair", "--", "publish")
    done = again.snakemake(*publish)
    assert done.returncode == 1
    line = f"error: {bf16.name} changed after the release was closed ({bf16}): delete this file and SHA256SUMS"
    assert f"{line}, and run again" in done.stderr.splitlines()
    assert [entry for entry in chain.hub.log.entries()[before:] if entry.method in ("PUT", "POST")] == []
    bf16.unlink()
    (again.results / "release" / release.SUMS).unlink()
    planned = again.snakemake("-n", "--", "publish")
    assert "to bf16" in planned.stdout + planned.stderr
    assert "close the release" in planned.stdout + planned.stderr
