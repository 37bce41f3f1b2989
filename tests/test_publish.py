"""Publishing: one commit, read back; twice is once; a refusal leaves the repository as it was."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi, hf_hub_download

from demo.hub import FaultRule, HubServer
from scripts import publish, release
from scripts.config import ROOT
from scripts.core import BuildError
from tests import release_parts as parts
from tests.errors_table import Said

REPO = "demo-org/Tiny-GGUF"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return parts.closed(tmp_path / "release")


def _publish(folder: Path, repo: str = REPO, **options: Any) -> dict[str, object]:
    return publish.publish(folder, repo, "Release Tiny", **options).figures


def _listed(repo: str = REPO, revision: str = "main") -> set[str]:
    return set(HfApi().list_repo_files(repo, revision=revision)) - {".gitattributes"}


def test_a_release_is_one_commit_with_every_file(at_hub: HubServer, folder: Path) -> None:
    figures = _publish(folder)
    assert _listed() == {path.name for path in folder.iterdir()}
    commits = HfApi().list_repo_commits(REPO)
    assert commits[0].title == "Release Tiny"
    assert commits[0].commit_id == figures["commit"]
    local = Path(hf_hub_download(REPO, "Tiny-DFlash-Q8_0.gguf"))
    assert local.read_bytes() == (folder / "Tiny-DFlash-Q8_0.gguf").read_bytes()


def test_the_second_time_nothing_changes(at_hub: HubServer, folder: Path) -> None:
    first = _publish(folder)
    at_hub.log.clear()
    second = _publish(folder)
    assert second["changed"] == []
    assert second["commit"] == first["commit"]
    assert [entry for entry in at_hub.log.entries(REPO) if entry.method in ("PUT", "POST")] == []


def test_only_what_changed_is_sent_again(at_hub: HubServer, folder: Path) -> None:
    _publish(folder)
    (folder / "README.md").write_text("# Another card\n")
    sums = release.read_sums(folder)
    del sums["README.md"]
    release.close(folder, [*sums, "README.md"], sums)
    assert _publish(folder)["changed"] == ["README.md", "SHA256SUMS"]


def test_a_dry_run_sends_nothing(at_hub: HubServer, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = _publish(folder, dry_run=True)
    assert len(figures["changed"]) == 6  # type: ignore[arg-type]
    assert "dry run: 6 of 6 files" in capsys.readouterr().err
    assert not HfApi().repo_exists(REPO)


def test_a_pull_request_leaves_main_alone_and_is_opened_once(at_hub: HubServer, folder: Path) -> None:
    first = _publish(folder, create_pr=True)
    assert first["revision"] == "refs/pr/1"
    assert _listed() == set()
    assert _listed(revision="refs/pr/1") == {path.name for path in folder.iterdir()}
    second = _publish(folder, create_pr=True)
    assert (second["revision"], second["changed"]) == ("refs/pr/1", [])


def test_private(at_hub: HubServer, folder: Path) -> None:
    _publish(folder, private=True)
    assert HfApi().model_info(REPO).private is True


@pytest.mark.parametrize(
    ("account", "repo", "message"),
    [
        ("read", REPO, "the Hub answered 403 for creating it"),
        ("none", REPO, "the Hub answered 403 for creating it"),
        ("stranger", REPO, "the Hub answered 403 for creating it"),
        (None, REPO, "set HF_TOKEN"),
    ],
)
def test_without_the_right_to_write_nothing_is_sent(
    account: str | None,
    repo: str,
    message: str,
    at_hub: HubServer,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: Said,
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    if account:
        monkeypatch.setenv("HF_TOKEN", at_hub.token(account))
    with pytest.raises(BuildError, match=message) as caught:
        _publish(folder, repo)
    assert "not_a_secret" not in str(caught.value)
    assert at_hub.log.entries(REPO, method="PUT") == []
    said(f"Publish: with {account or 'no'} token", caught.value)


def test_a_wrong_token(at_hub: HubServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(BuildError, match="set HF_TOKEN to a valid token"):
        _publish(folder)


@pytest.mark.parametrize(
    ("metadata", "name"),
    [
        ("license: Not A License", "a license that the Hub does not know"),
        ("base_model: [nobody]", "a base model that is none"),
        ("license: [never closed", "a card whose metadata is no YAML"),
    ],
)
def test_a_card_that_is_refused(at_hub: HubServer, folder: Path, metadata: str, name: str, said: Said) -> None:
    sums = release.read_sums(folder)
    (folder / "README.md").write_text(f"---\n{metadata}\n---\n\n# Tiny\n")
    del sums["README.md"]
    release.close(folder, [*sums, "README.md"], sums)
    with pytest.raises(BuildError, match="the card's metadata is refused") as caught:
        _publish(folder)
    assert not any(entry.method in ("PUT", "POST") for entry in at_hub.log.entries(REPO))
    said(f"Publish: {name}", caught.value)


def test_an_open_folder_is_not_published(at_hub: HubServer, folder: Path, said: Said) -> None:
    (folder / "notes.txt").write_text("not part of it")
    with pytest.raises(BuildError, match=r"notes\.txt is in only one of the folder and SHA256SUMS") as caught:
        _publish(folder)
    assert not HfApi().repo_exists(REPO)
    said("Publish: a folder with a file that SHA256SUMS does not name", caught.value)


def test_a_repository_that_moved_meanwhile_is_refused(at_hub: HubServer, folder: Path, said: Said) -> None:
    _publish(folder)
    (folder / "README.md").write_text("# Mine\n")
    release.close(folder, list(release.read_sums(folder)), {})
    at_hub.break_with(FaultRule(rf"/api/models/{REPO}/commit/", "status", status=412, times=9))
    with pytest.raises(BuildError, match="the repository moved meanwhile") as caught:
        _publish(folder)
    said("Publish: a repository that moved meanwhile (412)", caught.value)


def test_what_is_read_back_is_compared(at_hub: HubServer, folder: Path, said: Said) -> None:
    _publish(folder)
    empty = json.dumps({"id": REPO, "sha": "0" * 40, "siblings": []})
    rule = FaultRule(rf"^/api/models/{REPO}$", "body", skip=2, body=empty, content_type="application/json")
    at_hub.break_with(rule)
    with pytest.raises(BuildError, match=r"published files match: 0 of 6 .*README\.md differs") as caught:
        _publish(folder)
    said("Publish: a file that arrives with other content", caught.value)


def test_killed_in_the_middle_leaves_nothing_visible_and_a_rerun_finishes(at_hub: HubServer, folder: Path) -> None:
    HfApi().create_repo(REPO)
    before = HfApi().model_info(REPO).sha
    at_hub.break_with(FaultRule(r"/lfs/", "stall", method="PUT", times=9, seconds=20))
    env = {**os.environ, **at_hub.environment("write")}
    command = [sys.executable, "-m", "scripts.publish", "--folder", str(folder), "--name", "Tiny"]
    command += ["--options", f'{{"repo": "{REPO}"}}']
    process = subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 20
    while not at_hub.log.entries(REPO, method="PUT") and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert HfApi().model_info(REPO).sha == before
    at_hub.faults.clear()
    assert _publish(folder)["revision"] == "main"
    assert _listed() == {path.name for path in folder.iterdir()}
