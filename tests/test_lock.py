"""Inputs are resolved once; nothing moves them but being asked to."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import constants, hf_hub_download

from demo.hub import FaultRule, HubServer
from scripts import hub, lock, preflight
from scripts.config import ROOT
from scripts.core import BuildError
from tests.errors_table import Said

SNAKEMAKE = (sys.executable, "-m", "snakemake")
PAIR: dict[str, Any] = {
    "draft": {"repo": "demo-org/draft", "revision": "main"},
    "target": {"repo": "demo-org/target", "revision": "main"},
}


def _commit(hub: HubServer, repo: str, folder: Path, **files: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_json", ".json")).write_text(text)
    return hub.commit_folder(repo, folder, "Change").id


@pytest.fixture
def seeded(at_hub: HubServer, tmp_path: Path) -> HubServer:
    for name in ("draft", "target"):
        _commit(at_hub, f"demo-org/{name}", tmp_path / name, config_json="{}")
    return at_hub


def test_a_branch_becomes_a_commit_with_the_hubs_own_checksums(seeded: HubServer, tmp_path: Path) -> None:
    path = tmp_path / "locks" / "pair.yaml"
    locked = lock.lock(PAIR, path)
    assert yaml.safe_load(path.read_text()) == locked
    assert len(locked["draft"]["commit"]) == 40
    (file,) = (file for file in locked["draft"]["files"] if file["path"] == "config.json")
    # git hash-object of the two bytes "{}"
    assert file == {"path": "config.json", "size": 2, "git": "9e26dfeeb6e641a33dae4961196235bdb965b21b"}


def test_a_lock_stays_when_the_branch_moves_and_moves_when_asked(seeded: HubServer, tmp_path: Path) -> None:
    path = tmp_path / "pair.yaml"
    before = lock.lock(PAIR, path)
    moved = _commit(seeded, "demo-org/draft", tmp_path / "draft", config_json='{"new": 1}')
    seeded.log.clear()
    assert lock.lock(PAIR, path) == before
    assert seeded.log.entries() == []
    after = lock.lock(PAIR, path, move=True)
    assert after["draft"]["commit"] == moved != before["draft"]["commit"]
    assert after["target"] == before["target"]


def test_only_the_entry_that_the_config_changed_is_resolved_again(seeded: HubServer, tmp_path: Path) -> None:
    path = tmp_path / "pair.yaml"
    before = lock.lock(PAIR, path)
    _commit(seeded, "demo-org/draft", tmp_path / "draft", config_json='{"new": 1}')
    _commit(seeded, "demo-org/other", tmp_path / "other", config_json="{}")
    after = lock.lock({**PAIR, "target": {"repo": "demo-org/other", "revision": "main"}}, path)
    assert after["draft"] == before["draft"]
    assert after["target"]["repo"] == "demo-org/other"


@pytest.mark.parametrize("existing", [False, True], ids=["frozen, nothing locked", "frozen, another lock"])
def test_frozen_refuses_to_resolve(existing: bool, seeded: HubServer, tmp_path: Path, said: Said) -> None:
    path = tmp_path / "pair.yaml"
    if existing:
        lock.lock(PAIR, path)
    before = path.read_bytes() if existing else None
    wanted = {**PAIR, "draft": {"repo": "demo-org/draft", "revision": "v2"}}
    with pytest.raises(BuildError, match="draft demo-org/draft at v2 is not locked and the run is frozen") as caught:
        lock.lock(wanted, path, frozen=True)
    assert (path.read_bytes() if path.exists() else None) == before
    said("Lock: {id}", caught.value)


def test_frozen_needs_no_hub_when_everything_is_locked(
    seeded: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pair.yaml"
    locked = lock.lock(PAIR, path)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert lock.lock(PAIR, path, frozen=True) == locked


@pytest.mark.parametrize("text", ["draft: 3", "- a", "draft: {repo: x}", "{", "\x00"])
def test_a_broken_lock_is_one_line(text: str, tmp_path: Path, said: Said) -> None:
    path = tmp_path / "pair.yaml"
    path.write_text(text)
    with pytest.raises(BuildError, match=r"lock.*restore it from git") as caught:
        lock.lock(PAIR, path, frozen=True)
    assert "\n" not in str(caught.value)
    said(f"Lock: a file that holds {text!r}", caught.value)


def test_unknown_revision(seeded: HubServer, tmp_path: Path, said: Said) -> None:
    wanted = {**PAIR, "draft": {"repo": "demo-org/draft", "revision": "v9"}}
    with pytest.raises(BuildError, match="revision v9 does not exist in demo-org/draft") as caught:
        lock.lock(wanted, tmp_path / "pair.yaml")
    assert not (tmp_path / "pair.yaml").exists()
    said("Hub: an unknown revision", caught.value)


def test_missing_repository(seeded: HubServer, tmp_path: Path, said: Said) -> None:
    with pytest.raises(BuildError, match="demo-org/nothing does not exist, or it is private") as caught:
        lock.lock({"draft": {"repo": "demo-org/nothing", "revision": "main"}}, tmp_path / "pair.yaml")
    said("Hub: a repository that does not exist (404)", caught.value)


def test_gated_repository(seeded: HubServer, monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    seeded.create_repo("demo-org/draft", gated="manual")
    monkeypatch.setenv("HF_TOKEN", seeded.token("stranger"))
    with (
        pytest.raises(BuildError, match=r"gated and this account has no access .*/demo-org/draft\): ask for") as caught,
        hub.explained("demo-org/draft", "file config.json"),
    ):
        hf_hub_download("demo-org/draft", "config.json")
    said("Hub: a gated repository (403), at a file", caught.value)


def test_a_wrong_token(seeded: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(BuildError, match="set HF_TOKEN") as caught:
        lock.lock(PAIR, tmp_path / "pair.yaml")
    assert "hf_wrong" not in str(caught.value)
    said("Hub: a wrong token (401)", caught.value)


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize(("status", "advice"), [(500, "run again later"), (503, "run again later")])
def test_a_failing_hub_is_one_line(status: int, advice: str, seeded: HubServer, tmp_path: Path, said: Said) -> None:
    seeded.break_with(FaultRule(r"/api/models/", "status", status=status, times=50))
    with pytest.raises(BuildError, match=rf"the Hub answered {status} for revision main.*{advice}") as caught:
        lock.lock(PAIR, tmp_path / "pair.yaml")
    said(f"Hub: a server error ({status})", caught.value)


def test_an_unreachable_hub_says_so_within_seconds_and_names_the_demo(tmp_path: Path, said: Said) -> None:
    started = time.monotonic()
    done = subprocess.run(
        [*SNAKEMAKE, "--cores", "1", "--directory", str(tmp_path), "--configfile", str(ROOT / "config.yaml")],
        cwd=ROOT,
        env={**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: the Hub cannot be reached")
    assert last.endswith("`make demo` builds an embedded pair without Hugging Face")
    assert time.monotonic() - started < 20
    said("Hub: no way to the Hub", last)


def test_nothing_is_asked_of_the_hub_when_everything_is_here(seeded: HubServer, tmp_path: Path) -> None:
    lock.lock(PAIR, tmp_path / "locks" / "pair.yaml")
    for role in ("draft", "target"):
        (tmp_path / "pair" / "reports").mkdir(parents=True, exist_ok=True)
        (tmp_path / "pair" / "reports" / f"fetch-{role}.json").write_text("{}")
    assert list(preflight.needed({"pair": PAIR}, tmp_path / "locks", tmp_path)) == []


def test_what_is_neither_locked_nor_cached_is_asked_for(seeded: HubServer, tmp_path: Path) -> None:
    assert list(preflight.needed({"pair": PAIR}, tmp_path / "locks", tmp_path)) == [
        ("draft", "demo-org/draft", "main"),
        ("target", "demo-org/target", "main"),
    ]
    locked = lock.lock(PAIR, tmp_path / "locks" / "pair.yaml")
    commits = [(role, entry["repo"], entry["commit"]) for role, entry in locked.items()]
    assert list(preflight.needed({"pair": PAIR}, tmp_path / "locks", tmp_path)) == commits
    preflight.check({"pair": PAIR}, tmp_path / "locks", tmp_path)


def test_a_served_target_is_asked_for_until_it_was_looked_at(seeded: HubServer, tmp_path: Path) -> None:
    pair = {"target_gguf": {"repo": "demo-org/target", "quant": "Q8_0"}}
    commit = lock.lock(pair, tmp_path / "locks" / "pair.yaml")["target_gguf"]["commit"]
    wanted = [("target_gguf", "demo-org/target", commit)]
    assert list(preflight.needed({"pair": pair}, tmp_path / "locks", tmp_path)) == wanted
    hf_hub_download("demo-org/target", "config.json", revision=commit)
    assert list(preflight.needed({"pair": pair}, tmp_path / "locks", tmp_path)) == wanted
    (tmp_path / "pair" / "reports").mkdir(parents=True)
    (tmp_path / "pair" / "reports" / "target.json").write_text("{}")
    assert list(preflight.needed({"pair": pair}, tmp_path / "locks", tmp_path)) == []


def test_a_served_target_on_this_machine_is_neither_locked_nor_asked_for(seeded: HubServer, tmp_path: Path) -> None:
    pair = {**PAIR, "target_gguf": {"path": str(tmp_path / "target" / "config.json")}}
    assert set(lock.lock(pair, tmp_path / "locks" / "pair.yaml")) == {"draft", "target"}
    preflight.check_local({"pair": pair})
    with pytest.raises(BuildError, match=r"pairs\.pair\.target_gguf\.path: no such file \(none\.gguf\): name the"):
        preflight.check_local({"pair": {**PAIR, "target_gguf": {"path": "none.gguf"}}})


def test_a_killed_lock_leaves_no_lock(seeded: HubServer, tmp_path: Path) -> None:
    seeded.break_with(FaultRule(r"/api/models/demo-org/target", kind="stall", times=5))
    env = {**os.environ, **seeded.environment("write")}
    command = [sys.executable, "-m", "scripts.lock", "--pairs", json.dumps({"pair": PAIR}), "--locks", str(tmp_path)]
    process = subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 20
    while not seeded.log.requests_for("demo-org/target") and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "pair.yaml").exists()
