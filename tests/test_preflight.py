"""What is found out before the first job: inputs that may not be read, repositories that may not be written."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import HfApi

from demo.hub import HubServer
from scripts import preflight
from scripts.config import ROOT
from scripts.core import BuildError
from tests.errors_table import Said

REPO = "demo-org/Tiny-GGUF"
PAIR: dict[str, Any] = {
    "draft": {"repo": "demo-org/draft", "revision": "main"},
    "target": {"repo": "demo-org/target", "revision": "main"},
    "publish": {"repo": REPO},
}


@pytest.fixture
def inputs(at_hub: HubServer, tmp_path: Path) -> HubServer:
    """A Hub with two repositories that hold a config."""
    folder = tmp_path / "input"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    for role in ("draft", "target"):
        at_hub.commit_folder(f"demo-org/{role}", folder, "Add files")
    at_hub.log.clear()
    return at_hub


def refused(tmp_path: Path, publishing: tuple[str, ...] = (), **changes: Any) -> BuildError:
    with pytest.raises(BuildError) as caught:
        preflight.check({"pair": {**PAIR, **changes}}, tmp_path / "locks", tmp_path, publishing=publishing)
    return caught.value


def changing(server: HubServer) -> list[str]:
    """The requests that could have changed something."""
    return [entry.path for entry in server.log.entries() if entry.method not in ("GET", "HEAD")]


def test_a_gated_input(inputs: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    inputs.create_repo("demo-org/target", gated="manual")
    monkeypatch.setenv("HF_TOKEN", inputs.token("stranger"))
    error = refused(tmp_path)
    assert error.where == f"{inputs.endpoint}/demo-org/target"
    said("Hub: a gated repository (403), before the first job", error)
    monkeypatch.delenv("HF_TOKEN")
    assert "is gated and this account has no access" in str(refused(tmp_path))


def test_an_input_without_a_config(inputs: HubServer, tmp_path: Path, said: Said) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "README.md").write_text("# Nothing")
    inputs.commit_folder("demo-org/empty", tmp_path / "empty", "Add files")
    error = refused(tmp_path, target={"repo": "demo-org/empty", "revision": "main"})
    said("Hub: a target without config.json, before the first job", error)


ACCOUNTS = [
    ("read", False, "the token of demo may only read"),
    ("read", True, "the token of demo may only read"),
    ("none", False, "the fine-grained token of demo may not create repositories of demo-org"),
    ("none", True, "the Hub answered 403 for publishing: Forbidden"),
    ("stranger", False, "stranger may not create repositories of demo-org"),
    ("stranger", True, "the Hub answered 403 for publishing: Forbidden"),
    (None, False, "no token for publishing"),
    (None, True, "no token for publishing"),
]


@pytest.mark.parametrize(("account", "exists", "message"), ACCOUNTS)
def test_without_the_right_to_publish_nothing_is_begun(
    account: str | None,
    exists: bool,
    message: str,
    inputs: HubServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: Said,
) -> None:
    if exists:
        inputs.create_repo(REPO)
    monkeypatch.delenv("HF_TOKEN")
    if account:
        monkeypatch.setenv("HF_TOKEN", inputs.token(account))
    error = refused(tmp_path, publishing=("pair",))
    assert str(error).startswith(message)
    assert changing(inputs) == []
    state = "a repository that exists" if exists else "a new repository"
    who = {"read": "a read token", "none": "a fine-grained token without rights", "stranger": "another's token"}
    said(f"Publish: {state} with {who.get(account or '', 'no token')}, before the first job", error)
    preflight.check({"pair": PAIR}, tmp_path / "locks", tmp_path)  # who only builds needs no right to write


def test_a_wrong_token(inputs: HubServer, monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(BuildError, match="set HF_TOKEN to a valid token") as caught:
        preflight.check_writable(PAIR["publish"])
    assert "hf_wrong" not in str(caught.value)
    said("Publish: a wrong token (401), before the first job", caught.value)


@pytest.mark.parametrize("exists", [False, True])
def test_the_right_to_publish_is_found_without_changing_anything(
    exists: bool, inputs: HubServer, tmp_path: Path
) -> None:
    if exists:
        inputs.create_repo(REPO)
    preflight.check({"pair": PAIR}, tmp_path / "locks", tmp_path, publishing=["pair"])
    assert changing(inputs) == []
    assert HfApi().repo_exists(REPO) is exists


def test_a_pull_request_needs_no_right_to_write(inputs: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs.create_repo(REPO)
    monkeypatch.setenv("HF_TOKEN", inputs.token("stranger"))
    preflight.check_writable({"repo": REPO, "create_pr": True})
    assert changing(inputs) == []


@pytest.mark.slow
def test_snakemake_asks_for_the_right_before_its_first_job_only_when_it_publishes(
    inputs: HubServer, tmp_path: Path, said: Said
) -> None:
    config = yaml.safe_load((ROOT / "demo" / "config.yaml").read_text())
    (key,) = config["pairs"]
    config["pairs"][key] = {
        "expect": {"mask_token_id": 7, "block_size": 16},
        "name": "Tiny",
        "quants": ["Q8_0"],
        **PAIR,
    }
    config["locks"] = "locks"
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "--directory", str(tmp_path / "run")]
    command += ["--configfile", str(tmp_path / "mine.yaml")]

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, **inputs.environment("read")}
        return subprocess.run([*command, *more], cwd=ROOT, env=env, capture_output=True, text=True)

    done = run("--", "publish")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: the token of demo may only read")
    folders = (tmp_path / "run").glob("[!.]*")
    assert [path for folder in folders for path in folder.rglob("*")] == []
    said("Publish: a read token, as Snakemake says it", last)
    done = run("--until", "write_lock", "--", "all")
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "run" / "locks" / f"{key}.yaml").exists()
