"""Uploads by Xet with the unmodified client: what arrives is what was sent, and without Xet storage LFS takes over."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import lz4.frame
import numpy as np
import pytest

from demo.hub import FaultRule, HubServer, xet
from demo.hub.config import HubConfig
from demo.hub.errors import HubError
from scripts.config import ROOT
from tests import release_parts as parts

REPO = "demo-org/Tiny-GGUF"
UPLOAD = """import sys, huggingface_hub as hub
hub.create_repo(sys.argv[1])
hub.upload_folder(repo_id=sys.argv[1], folder_path=sys.argv[2])"""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubServer]:
    with HubServer(tmp_path / "hub", HubConfig(xet=True)) as server:
        yield server


def _environment(hub: HubServer, home: Path, account: str = "write") -> dict[str, str]:
    return {**os.environ, **hub.environment(account), "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "0"}


def _publish(folder: Path) -> list[str]:
    options = ["--folder", str(folder), "--name", "Tiny", "--options", f'{{"repo": "{REPO}"}}']
    return [sys.executable, "-m", "scripts.publish", *options]


def _run(command: list[str], hub: HubServer, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, env=_environment(hub, home), capture_output=True, text=True)


def _sent(hub: HubServer, what: str) -> list[int]:
    """Bytes of each request that has ``what`` in its path."""
    return [entry.received for entry in hub.log.entries() if f"/{what}/" in entry.path and entry.status == 200]


@pytest.mark.slow
def test_a_release_goes_by_xet_each_content_once_and_never_again(hub: HubServer, tmp_path: Path) -> None:
    folder = parts.closed(tmp_path / "release", sidecar=True)
    done = _run(_publish(folder), hub, tmp_path / "home")
    assert done.returncode == 0, done.stderr[-2000:]
    repo = hub.repo(REPO)
    stored = repo.resolve("main").files
    assert set(stored) - {".gitattributes"} == {path.name for path in folder.iterdir()}
    for path in folder.glob("*.gguf"):
        assert repo.blobs.read(stored[path.name]) == path.read_bytes()
    assert hub.log.entries(REPO, method="PUT") == []
    assert len(_sent(hub, "xorbs")) == 1
    hub.log.clear()
    again = _run(_publish(folder), hub, tmp_path / "other-home")
    assert again.returncode == 0
    assert [entry.method for entry in hub.log.entries(REPO) if entry.method in ("PUT", "POST")] == []


@pytest.mark.slow
def test_every_kind_of_chunk_arrives_as_it_was(hub: HubServer, tmp_path: Path) -> None:
    folder, drawn = tmp_path / "folder", np.random.default_rng(0)
    folder.mkdir()
    contents = {
        "random.bin": drawn.bytes(3_000_001),
        "floats.bin": drawn.normal(1, 1e-3, 700_001).astype("<f4").tobytes(),
        "text.bin": b"the same words again and again " * 40_000,
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    done = _run([sys.executable, "-c", UPLOAD, REPO, str(folder)], hub, tmp_path / "home")
    assert done.returncode == 0, done.stderr[-2000:]
    repo = hub.repo(REPO)
    stored = repo.resolve("main").files
    assert {name: repo.blobs.read(stored[name]) == content for name, content in contents.items()} == dict.fromkeys(
        contents, True
    )
    schemes = {chunk[4] for path in (repo.blobs.root / "xorbs").iterdir() for chunk in _heads(path.read_bytes())}
    assert schemes == {0, 1, 2}


def _heads(xorb: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(xorb) and not xorb.startswith(b"XETBLOB", at):
        yield xorb[at : at + 8]
        at += 8 + int.from_bytes(xorb[at + 1 : at + 4], "little")


@pytest.mark.slow
def test_a_hub_without_xet_gets_the_release_by_lfs(tmp_path: Path) -> None:
    folder = parts.closed(tmp_path / "release", sidecar=True)
    with HubServer(tmp_path / "plain") as plain:
        done = _run(_publish(folder), plain, tmp_path / "home")
        assert done.returncode == 0, done.stderr[-2000:]
        assert "once more without Xet" in done.stderr
        assert len(plain.log.entries(REPO, method="PUT", status=200)) == 3


@pytest.mark.slow
def test_killed_in_the_middle_leaves_nothing_visible_and_a_rerun_finishes(hub: HubServer, tmp_path: Path) -> None:
    folder = parts.closed(tmp_path / "release")
    hub.create_repo(REPO)
    before = hub.repo(REPO).resolve("main").id
    hub.break_with(FaultRule("/v1/shards", "stall", method="POST", times=9, seconds=30))
    process = subprocess.Popen(
        _publish(folder), cwd=ROOT, env=_environment(hub, tmp_path / "home"), stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 30
    while not _sent(hub, "xorbs") and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert hub.repo(REPO).resolve("main").id == before
    hub.faults.clear()
    assert _run(_publish(folder), hub, tmp_path / "home").returncode == 0
    assert set(hub.repo(REPO).resolve("main").files) - {".gitattributes"} == {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    "xorb",
    [b"\x01\x04\0\0\0\x04\0\0abcd", b"\0\x04\0", b"\0\x04\0\0\0\x05\0\0abcd", b"\0\x04\0\0\x01\x04\0\0abcd"],
    ids=["another version", "half a header", "another size", "no lz4"],
)
def test_what_is_no_xorb(xorb: bytes) -> None:
    with pytest.raises(HubError):
        list(xet.chunks(xorb))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 10, 4096])
def test_grouped_bytes_are_put_back_in_their_order(size: int) -> None:
    content = bytes(number % 251 for number in range(size))
    packed = lz4.frame.compress(b"".join(content[start::4] for start in range(4)))
    head = b"\0" + len(packed).to_bytes(3, "little") + b"\2" + size.to_bytes(3, "little")
    assert list(xet.chunks(head + packed)) == [content]


@pytest.mark.parametrize("shard", [b"", b"\0" * 60], ids=["nothing", "half a row"])
def test_what_is_no_shard(shard: bytes) -> None:
    with pytest.raises(HubError):
        list(xet.files(shard))


def test_who_may_not_write_gets_no_token_and_no_upload_goes_without_one(hub: HubServer) -> None:
    import httpx2

    hub.create_repo(REPO)
    address = f"{hub.endpoint}/api/models/{REPO}/xet-write-token/main"
    asked = {
        key: httpx2.get(address, headers={"Authorization": f"Bearer {hub.token(key)}"}) for key in ("write", "read")
    }
    assert {key: answer.status_code for key, answer in asked.items()} == {"write": 200, "read": 403}
    xorb = f"{hub.endpoint}/xet/{REPO}/v1/xorbs/default/{'0' * 64}"
    for token in ("wrong", hub.token("write")):
        assert httpx2.post(xorb, content=b"", headers={"Authorization": f"Bearer {token}"}).status_code == 401
    assert asked["write"].json()["accessToken"] not in hub.log.summary()
