"""One commit on the Hub: somebody else's meanwhile, no room, tags, old files, and what is sent after a kill."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import CommitOperationAdd, HfApi

from demo.hub import FaultRule, HubServer
from scripts import publish, release
from scripts.config import ROOT
from scripts.core import BuildError
from tests import release_parts as parts
from tests.errors_table import Said

REPO = "demo-org/Tiny-GGUF"
COMMIT = rf"/api/models/{REPO}/commit/"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return parts.closed(tmp_path / "release")


def _publish(folder: Path, **options: Any) -> dict[str, Any]:
    return publish.publish(folder, REPO, "Release Tiny", **options).figures


def _listed(revision: str = "main") -> set[str]:
    return set(HfApi().list_repo_files(REPO, revision=revision)) - {".gitattributes"}


def _closed_again(folder: Path, names: list[str]) -> None:
    """Close the release over ``names`` alone."""
    release.close(folder, names, {})


def _other_card(folder: Path, text: str = "# Another card\n") -> None:
    (folder / "README.md").write_text(text)
    _closed_again(folder, [path.name for path in folder.iterdir() if path.name != release.SUMS])


class _Meanwhile:
    """Somebody who commits a file just before our commit arrives, ``times`` times over."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, times: int = 1) -> None:
        self.left, self.name, ours = times, name, HfApi.create_commit

        def create_commit(api: HfApi, *arguments: Any, **options: Any) -> Any:
            if self.left:
                self.left -= 1
                theirs = CommitOperationAdd(self.name, f"theirs {self.left}\n".encode())
                ours(HfApi(), REPO, [theirs], commit_message="Theirs")
            return ours(api, *arguments, **options)

        monkeypatch.setattr(HfApi, "create_commit", create_commit)


def _titles() -> list[str]:
    return [commit.title for commit in HfApi().list_repo_commits(REPO)]


def test_a_commit_in_other_files_meanwhile_is_built_on(
    at_hub: HubServer, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _publish(folder)
    _other_card(folder)
    _Meanwhile(monkeypatch, "notes.txt")
    assert _publish(folder)["changed"] == ["README.md", "SHA256SUMS"]
    assert _titles()[:3] == ["Release Tiny", "Theirs", "Release Tiny"]
    assert "notes.txt" in _listed()
    assert "in files that are not ours: trying once more" in capsys.readouterr().err
    assert [entry.status for entry in at_hub.log.entries(REPO, method="POST") if "/commit/" in entry.path] == [
        200,
        200,
        412,
        200,
    ]


@pytest.mark.parametrize("create_pr", [False, True])
def test_a_commit_in_our_files_meanwhile_is_not_built_on(
    create_pr: bool, at_hub: HubServer, folder: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    _publish(folder)
    _other_card(folder)
    _Meanwhile(monkeypatch, "README.md")
    with pytest.raises(BuildError, match=r"^README\.md was changed in demo-org/Tiny-GGUF meanwhile") as caught:
        _publish(folder, create_pr=create_pr)
    said("Publish: a file of the release that somebody changed meanwhile", caught.value)
    assert _titles()[0] == "Theirs"


def test_a_repository_that_moves_all_the_time_is_given_up(
    at_hub: HubServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _publish(folder)
    _other_card(folder)
    _Meanwhile(monkeypatch, "notes.txt", times=9)
    with pytest.raises(BuildError, match="the repository moved meanwhile; run again"):
        _publish(folder)
    assert _titles()[:3] == ["Theirs", "Theirs", "Release Tiny"]


def test_no_room_is_fatal_at_once(folder: Path, at_hub: HubServer, said: Said) -> None:
    object.__setattr__(at_hub.config, "storage", 1000)  # bytes
    with pytest.raises(BuildError, match=r"403 .*storage limit reached.*: free some of the owner's storage") as caught:
        _publish(folder)
    said("Publish: no storage left (403)", caught.value)
    batches = [entry for entry in at_hub.log.entries(REPO, method="POST") if entry.path.endswith("/batch")]
    assert [entry.status for entry in batches] == [403]
    assert at_hub.log.entries(REPO, method="PUT") == []
    assert _listed() == set()


def test_every_release_gets_its_own_tag(at_hub: HubServer, folder: Path) -> None:
    first = _publish(folder, tag="r-{id}")
    assert _publish(folder, tag="r-{id}")["tag"] == first["tag"]
    _other_card(folder)
    second = _publish(folder, tag="r-{id}")
    tags = {ref.name: ref.target_commit for ref in HfApi().list_repo_refs(REPO).tags}
    assert tags == {first["tag"]: first["commit"], second["tag"]: second["commit"]}
    assert first["commit"] != second["commit"]


def test_a_tag_is_never_moved_and_nothing_is_sent(at_hub: HubServer, folder: Path, said: Said) -> None:
    first = _publish(folder, tag="v1")
    _other_card(folder)
    with pytest.raises(BuildError, match=r"^tag v1 of demo-org/Tiny-GGUF is another release, at ") as caught:
        _publish(folder, tag="v1")
    said("Publish: a tag that another release has", caught.value)
    assert HfApi().model_info(REPO).sha == first["commit"]


def test_a_tag_whose_answer_was_lost_is_there(at_hub: HubServer, folder: Path, short_pauses: None) -> None:
    at_hub.break_with(FaultRule(rf"/api/models/{REPO}/tag/", "reset"))
    figures = _publish(folder, tag="v1")
    assert [(ref.name, ref.target_commit) for ref in HfApi().list_repo_refs(REPO).tags] == [("v1", figures["commit"])]


def test_a_tag_waits_for_the_pull_request(at_hub: HubServer, folder: Path) -> None:
    assert _publish(folder, create_pr=True, tag="v1")["tag"] is None
    assert HfApi().list_repo_refs(REPO).tags == []
    HfApi().merge_pull_request(REPO, 1)
    figures = _publish(folder, create_pr=True, tag="v1")
    assert (figures["changed"], figures["revision"], figures["tag"]) == ([], "main", "v1")
    assert [ref.target_commit for ref in HfApi().list_repo_refs(REPO).tags] == [figures["commit"]]


def _without_q8(folder: Path) -> list[str]:
    """Take one file out of the release; the names that stay."""
    (folder / "Tiny-DFlash-Q8_0.gguf").unlink()
    names = [path.name for path in folder.iterdir() if path.name != release.SUMS]
    _closed_again(folder, names)
    return [*names, release.SUMS]


def test_old_files_stay_where_nobody_asked(at_hub: HubServer, folder: Path) -> None:
    _publish(folder)
    _without_q8(folder)
    assert _publish(folder)["removed"] == []
    assert "Tiny-DFlash-Q8_0.gguf" in _listed()


def test_old_files_go_in_the_same_commit_when_asked(at_hub: HubServer, folder: Path) -> None:
    _publish(folder)
    HfApi().upload_file(path_or_fileobj=b"x", path_in_repo="plot.png", repo_id=REPO)
    commits = len(_titles())
    names = _without_q8(folder)
    dry = _publish(folder, remove=True, dry_run=True)
    assert (dry["removed"], len(_titles())) == (["Tiny-DFlash-Q8_0.gguf"], commits)
    assert _publish(folder, remove=True)["removed"] == ["Tiny-DFlash-Q8_0.gguf"]
    assert _listed() == {*names, "plot.png"}
    assert len(_titles()) == commits + 1


def test_an_old_file_that_somebody_replaced_stays(at_hub: HubServer, folder: Path) -> None:
    _publish(folder)
    HfApi().upload_file(path_or_fileobj=b"theirs", path_in_repo="Tiny-DFlash-Q8_0.gguf", repo_id=REPO)
    _without_q8(folder)
    assert _publish(folder, remove=True)["removed"] == []
    assert "Tiny-DFlash-Q8_0.gguf" in _listed()


def test_a_removal_whose_answer_was_lost_is_not_made_twice(at_hub: HubServer, folder: Path, short_pauses: None) -> None:
    _publish(folder)
    _without_q8(folder)
    at_hub.break_with(FaultRule(COMMIT, "reset"))
    assert _publish(folder, remove=True)["removed"] == ["Tiny-DFlash-Q8_0.gguf"]
    assert _titles().count("Release Tiny") == 2


def test_sums_that_cannot_be_read_remove_nothing(at_hub: HubServer, folder: Path, said: Said) -> None:
    _publish(folder)
    HfApi().upload_file(path_or_fileobj=b"<html>\n", path_in_repo=release.SUMS, repo_id=REPO)
    with pytest.raises(BuildError, match=r"^cannot read SHA256SUMS of demo-org/Tiny-GGUF: ") as caught:
        _publish(folder, remove=True)
    said("Publish: old files to remove, and a SHA256SUMS that is none", caught.value)


def test_what_arrived_before_a_kill_is_not_sent_again(at_hub: HubServer, folder: Path) -> None:
    HfApi().create_repo(REPO)
    late = release.read_sums(folder)["Tiny-DFlash-Q8_0.gguf"]
    at_hub.break_with(FaultRule(rf"/lfs/{REPO}/{late}", "status", method="PUT", status=503, times=99))
    env = {**os.environ, **at_hub.environment("write")}
    command = [sys.executable, "-m", "scripts.publish", "--folder", str(folder), "--name", "Tiny"]
    command += ["--options", f'{{"repo": "{REPO}"}}']
    process = subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 30
    while len(_arrived(at_hub)) < 2 and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(_arrived(at_hub)) == 2
    assert _listed() == set()
    at_hub.faults.clear()
    at_hub.log.clear()
    _publish(folder)
    assert _listed() == {path.name for path in folder.iterdir()}
    assert _arrived(at_hub) == {late}
    assert len(at_hub.log.entries(REPO, method="PUT")) == 1


def _arrived(hub: HubServer) -> set[str]:
    """The objects that were put and stored."""
    return {
        entry.path.split("?")[0].rpartition("/")[2]
        for entry in hub.log.entries(REPO, method="PUT")
        if entry.status == 200
    }
