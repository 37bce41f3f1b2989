"""A Hub that stalls, resets, is overloaded or loses its answers: what passes is overcome, what lasts is one line."""

import time
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi, constants

from demo.hub import FaultRule, HubServer
from scripts import fetch, hub, lock, preflight, publish
from scripts.core import BuildError
from tests import release_parts as parts
from tests.errors_table import Said

pytestmark = pytest.mark.usefixtures("short_pauses")

REPO, TARGET = "demo-org/Tiny-GGUF", "demo-org/target"
COMMIT = rf"/api/models/{REPO}/commit/"
INFO = rf"^/api/models/{TARGET}/revision/"


@pytest.fixture
def target(at_hub: HubServer, tmp_path: Path) -> dict[str, object]:
    """The lock entry of a target whose tokenizer is big enough to break off in the middle."""
    folder = tmp_path / "target"
    folder.mkdir()
    for name in ("config.json", "tokenizer_config.json"):
        (folder / name).write_text("{}")
    (folder / "tokenizer.json").write_text("x" * 20_000_000)
    at_hub.commit_folder(TARGET, folder, "Add files")
    return lock.resolve(TARGET, "main")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return parts.closed(tmp_path / "release")


def _publish(folder: Path, **options: Any) -> dict[str, object]:
    return publish.publish(folder, REPO, "Release Tiny", **options).figures


def _titles(revision: str | None = None) -> list[str]:
    return [commit.title for commit in HfApi().list_repo_commits(REPO, revision=revision)]


def test_a_download_that_stalls_is_taken_up_again(
    at_hub: HubServer, target: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.3)
    at_hub.break_with(FaultRule("/cdn/|tokenizer.json", "stall", method="GET", after=10_000_000, seconds=30))
    started = time.monotonic()
    fetch.fetch(target, "target", tmp_path / "out")
    assert (tmp_path / "out" / "tokenizer.json").stat().st_size == 20_000_000
    assert 0.3 <= time.monotonic() - started < 10


@pytest.mark.slow
def test_a_download_that_always_stalls_is_one_line(
    at_hub: HubServer, target: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.1)
    at_hub.break_with(FaultRule("/cdn/|tokenizer.json", "stall", method="GET", times=99, after=10, seconds=30))
    with pytest.raises(BuildError, match=r"^the Hub cannot be reached for file tokenizer\.json .*timed out") as caught:
        fetch.fetch(target, "target", tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out" / "tokenizer.json").exists()


@pytest.mark.parametrize(
    "rule",
    [
        FaultRule(INFO, "status", status=500, times=2),
        FaultRule(INFO, "status", status=503),
        FaultRule(INFO, "reset", after=10),
        FaultRule(INFO, "cut"),
        FaultRule(INFO, "status", status=429, retry_after=1),
    ],
    ids=lambda rule: f"{rule.kind}-{rule.status}",
)
def test_the_lock_and_the_first_look_overcome_what_passes(
    rule: FaultRule, at_hub: HubServer, target: dict[str, object], tmp_path: Path
) -> None:
    at_hub.break_with(rule)
    started = time.monotonic()
    assert lock.resolve(TARGET, "main") == target
    assert time.monotonic() - started >= (rule.retry_after or 0)
    at_hub.faults.clear()
    at_hub.break_with(rule)
    pair = {role: {"repo": TARGET, "revision": "main"} for role in ("draft", "target")}
    preflight.check({"pair": pair}, tmp_path / "locks", tmp_path)


def test_a_wait_that_is_too_long_is_said_at_once(at_hub: HubServer, target: dict[str, object], said: Said) -> None:
    at_hub.break_with(FaultRule(INFO, "status", status=429, retry_after=3600, times=9))
    with pytest.raises(BuildError, match=r"the Hub answered 429 .*: wait 3600 seconds, then run again$") as caught:
        lock.resolve(TARGET, "main")
    said("Hub: too many requests (429), and a wait of an hour asked for", caught.value)
    assert len(at_hub.log.requests_for(TARGET)) == 2  # one for the fixture


@pytest.mark.parametrize(
    "rule",
    [
        FaultRule("/preupload/", "status", status=503),
        FaultRule("/lfs/", "reset", method="PUT"),
        FaultRule("/lfs/", "status", method="PUT", status=500),
        FaultRule("/info/lfs/objects/batch", "status", status=503),
        FaultRule(COMMIT, "status", status=500),
        FaultRule(COMMIT, "status", status=429, retry_after=1),
        FaultRule("/api/repos/create", "status", status=503),
        FaultRule("/api/repos/create", "reset"),
        FaultRule("/api/whoami-v2", "status", status=503),
    ],
    ids=lambda rule: f"{rule.path.split('/')[-1] or 'commit'}-{rule.kind}-{rule.status}",
)
@pytest.mark.slow
def test_publishing_overcomes_what_passes(rule: FaultRule, at_hub: HubServer, folder: Path) -> None:
    at_hub.break_with(rule)
    _publish(folder)
    assert [entry.fault for entry in at_hub.log.entries() if entry.fault] == [rule.kind]
    assert _titles().count("Release Tiny") == 1
    assert set(HfApi().list_repo_files(REPO)) - {".gitattributes"} == {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("kind", ["reset", "cut"])
def test_a_commit_whose_answer_was_lost_is_not_made_twice(kind: str, at_hub: HubServer, folder: Path) -> None:
    at_hub.break_with(FaultRule(COMMIT, kind))  # type: ignore[arg-type]
    figures = _publish(folder)
    assert _titles().count("Release Tiny") == 1
    assert figures["revision"] == "main"
    assert len(at_hub.log.entries(REPO, method="PUT")) == len({path.name for path in folder.glob("*.gguf")})


def test_a_pull_request_whose_answer_was_lost_is_not_opened_twice(at_hub: HubServer, folder: Path) -> None:
    at_hub.break_with(FaultRule(COMMIT, "reset"))
    assert _publish(folder, create_pr=True)["revision"] == "refs/pr/1"
    assert len(list(HfApi().get_repo_discussions(REPO))) == 1
    assert "Release Tiny" not in _titles()


def test_somebody_elses_commit_meanwhile_is_not_built_on(at_hub: HubServer, folder: Path, tmp_path: Path) -> None:
    HfApi().create_repo(REPO)
    other = tmp_path / "other"
    other.mkdir()
    (other / "README.md").write_text("# Theirs\n")
    at_hub.break_with(FaultRule(COMMIT, "status", status=500))
    moved = False

    def says(state: object) -> None:
        nonlocal moved
        moved = True
        at_hub.commit_folder(REPO, other, "Theirs")

    with (
        pytest.MonkeyPatch.context() as patch,
        pytest.raises(BuildError, match=r"^README\.md was changed in .* meanwhile"),
    ):
        patch.setattr(hub, "_again", says)
        _publish(folder)
    assert moved
    assert _titles()[0] == "Theirs"


@pytest.mark.parametrize("status", [500, 503])
def test_a_commit_that_never_works_is_one_line_and_leaves_the_repository(
    status: int, at_hub: HubServer, folder: Path, said: Said
) -> None:
    at_hub.break_with(FaultRule(COMMIT, "status", status=status, times=99))
    with pytest.raises(BuildError, match=rf"the Hub answered {status} for the upload.*: run again later$") as caught:
        _publish(folder)
    assert "\n" not in str(caught.value)
    assert len(at_hub.log.entries(REPO, method="POST")) > 3
    assert set(HfApi().list_repo_files(REPO)) <= {".gitattributes"}
    said(f"Publish: a Hub that fails ({status})", caught.value)


def test_a_file_that_changed_after_the_release_was_closed_is_not_sent(
    at_hub: HubServer, folder: Path, said: Said
) -> None:
    path = folder / "Tiny-DFlash-Q8_0.gguf"
    content = bytearray(path.read_bytes())
    content[70] ^= 1
    path.write_bytes(content)
    with pytest.raises(BuildError, match=r"^Tiny-DFlash-Q8_0\.gguf changed after the release was closed ") as caught:
        _publish(folder)
    said("Publish: a file that changed after the release was closed", caught.value)
    assert at_hub.log.entries() == []
