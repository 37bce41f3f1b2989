"""A disk that is full or cannot be written: one line that says which, nothing half-written, a rerun that finishes."""

import argparse
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from demo.hub import HubServer
from scripts import convert, core, fetch, lock, release
from scripts.core import BuildError
from scripts.toolchain import fetch_source, parse_spec
from tests.chain import KEY, Chain, copy
from tests.errors_table import Said
from tests.faults.conftest import Disk
from tests.toolchain import fakes

Mount = Callable[[Path, str], Disk]
NAME = "TinyQwen3.5-Coder-DFlash"


@pytest.fixture
def target(at_hub: HubServer, tmp_path: Path) -> dict[str, object]:
    """The lock entry of a target with a tokenizer of six megabytes."""
    folder = tmp_path / "target"
    folder.mkdir()
    for name in ("config.json", "tokenizer_config.json"):
        (folder / name).write_text("{}")
    (folder / "tokenizer.json").write_bytes(os.urandom(6_000_000))
    at_hub.commit_folder("demo-org/target", folder, "Add files")
    return lock.resolve("demo-org/target", "main")


@pytest.mark.filterwarnings("ignore:Not enough free disk space")
@pytest.mark.parametrize("full", ["cache", "out"])
def test_a_download_that_does_not_fit(full: str, target: dict[str, object], disk: Mount, tmp_path: Path) -> None:
    small, out = disk(tmp_path / full, "4m"), tmp_path / "out"
    with pytest.raises(BuildError, match=rf"^the disk is full \({tmp_path / full}.*free some space and run again$"):
        fetch.fetch(target, "target", out)
    assert {path.name for path in out.iterdir()} <= {"config.json", "tokenizer_config.json"}
    small.remount("size=20m")
    assert fetch.fetch(target, "target", out).ok
    assert (out / "tokenizer.json").read_bytes() == (tmp_path / "target" / "tokenizer.json").read_bytes()


def test_the_sources_of_llama_cpp_do_not_fit(disk: Mount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = disk(tmp_path / "cache", "2m")
    content = fakes.sdist(extra={f"llama_cpp_python-{fakes.VERSION}/vendor/llama.cpp/big": os.urandom(3_000_000)})
    monkeypatch.setenv("DFLASH_CACHE", str(small.path))
    with fakes.serve(fakes.Index(content)) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        spec = parse_spec(fakes.pypi(content))
        with pytest.raises(BuildError, match=rf"^the disk is full \({small.path}/archives/"):
            fetch_source(spec, tmp_path / "out")
        small.remount("size=5m")
        with pytest.raises(BuildError, match=rf"^the disk is full \({small.path}/sources/"):
            fetch_source(spec, tmp_path / "out")
        assert not list((small.path / "sources").glob(f"*{core.PART}"))
        small.remount("size=20m")
        assert fetch_source(spec, tmp_path / "out").ok


def test_a_log_on_a_full_disk_hides_nothing(disk: Mount, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = disk(tmp_path / "logs", "1m")

    def step(_: argparse.Namespace) -> None:
        core.say("begun")
        (small.path / "rest").write_bytes(bytes(1 << 20))

    def speaks(_: argparse.Namespace) -> None:
        core.say("x" * 10_000)
        raise BuildError("this", "here", "do that")

    log = str(small.path / "step.log")
    assert core.run(core.parser("Full."), step, ["--log", log]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: the disk is full")
    assert core.run(core.parser("Full."), speaks, ["--log", log]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == "error: this (here): do that"
    assert "the log ends here: No space left on device" in said


def test_a_converter_that_says_so(tmp_path: Path, said: Said) -> None:
    error = convert.converter_failed(1, ["[Errno 28] No space left on device"], tmp_path, tmp_path, tmp_path / "x.gguf")
    assert str(error) == f"the disk is full ({tmp_path}): free some space and run again"
    said("Machine: a full disk", error)


def _again(chain: Chain, folder: Path) -> Chain:
    """A copy of a finished build in which everything from the bf16 file on is missing."""
    shutil.copytree(chain.folder, folder, symlinks=True, ignore=shutil.ignore_patterns("gguf", "release", "demo"))
    shutil.copytree(chain.folder / "demo", folder / "demo", symlinks=True)
    shutil.copytree(chain.folder / "results" / "demo", folder / "results" / "demo")
    return Chain(folder, chain.hub, chain.work)


def _errors(chain: Chain, *arguments: str) -> set[str]:
    done = chain.snakemake("--cores", "2", *arguments)
    assert done.returncode == 1, done.stderr[-3000:]
    return {line for line in done.stderr.splitlines() if line.startswith("error: ")}


@pytest.mark.slow
def test_converting_and_quantizing_on_a_full_disk(chain: Chain, disk: Mount, tmp_path: Path) -> None:
    again = _again(chain, tmp_path / "again")
    folder = again.results / "gguf"
    small = disk(folder, "5m")
    full = {f"error: the disk is full (results/{KEY}/gguf): free some space and run again"}
    assert _errors(again, f"results/{KEY}/gguf/{NAME}-bf16.gguf") == full
    assert list(folder.iterdir()) == []
    small.remount("size=14m")
    assert _errors(again, f"results/{KEY}/gguf/{NAME}-Q8_0.gguf") == full
    assert {path.name for path in folder.iterdir()} == {f"{NAME}-bf16.gguf", f"{NAME}-bf16.json"}
    small.remount("size=60m")
    done = again.snakemake("--cores", "2")
    assert done.returncode == 0, done.stderr[-3000:]
    assert release.read_sums(again.results / "release") == release.read_sums(chain.results / "release")


@pytest.mark.slow
@pytest.mark.parametrize("part", ["results", "logs", "."])
def test_a_folder_that_cannot_be_written_is_one_line(part: str, disk: Mount, chain: Chain, tmp_path: Path) -> None:
    folder = tmp_path / "read-only"
    if part == ".":
        mounted = disk(folder, "60m")
        copy(folder)
    else:
        copy(folder)
        mounted = disk(folder / part, "1m")
    mounted.remount("ro")
    done = Chain(folder, chain.hub, chain.work).snakemake("--cores", "1")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    where = folder if part == "." else part
    assert last == f"error: cannot write: Read-only file system ({where}): check its permissions and its disk"
