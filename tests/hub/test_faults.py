"""Every way an answer can be broken, as the real client sees it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from huggingface_hub import HfApi, constants, hf_hub_download
from huggingface_hub.errors import HfHubHTTPError

from demo.hub import FaultRule, HubServer

Client = Callable[..., HfApi]


def fetch(hub: HubServer, repo_id: str, cache: Path) -> bytes:
    found = hf_hub_download(repo_id, "model.safetensors", endpoint=hub.endpoint, token=False, cache_dir=cache)
    return Path(found).read_bytes()


@pytest.mark.parametrize("status", [500, 503])
def test_status(hub: HubServer, seeded: str, api: Client, status: int) -> None:
    hub.break_with(FaultRule(f"^/api/models/{seeded}$", "status", status=status))
    with pytest.raises(HfHubHTTPError, match=f"Broken on purpose: {status}") as caught:
        api(None).model_info(seeded)
    assert caught.value.response.status_code == status
    assert api(None).model_info(seeded).id == seeded


def test_too_many_requests_is_waited_for(hub: HubServer, seeded: str, api: Client) -> None:
    hub.break_with(FaultRule("/tree/", "status", status=429, retry_after=0))
    started = time.monotonic()
    assert "config.json" in api(None).list_repo_files(seeded)
    assert time.monotonic() - started >= 1
    assert [entry.status for entry in hub.log.requests_for(seeded)] == [429, 200]
    hub.break_with(FaultRule("/refs$", "status", status=429, retry_after=7))
    with pytest.raises(HfHubHTTPError) as caught:
        api(None).list_repo_refs(seeded)
    assert caught.value.response.headers["Retry-After"] == "7"


def test_reset_is_an_error_and_the_next_try_works(hub: HubServer, seeded: str, folder: Path, tmp_path: Path) -> None:
    hub.break_with(FaultRule("^/cdn/", "reset", after=100_000))
    with pytest.raises(httpx2.ReadError):
        fetch(hub, seeded, tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.safetensors"))
    assert fetch(hub, seeded, tmp_path / "cache") == (folder / "model.safetensors").read_bytes()


def test_cut_after_no_byte(hub: HubServer, seeded: str, folder: Path, tmp_path: Path) -> None:
    hub.break_with(FaultRule("^/cdn/", "cut"))
    assert fetch(hub, seeded, tmp_path / "cache") == (folder / "model.safetensors").read_bytes()
    assert [entry.fault for entry in hub.log.entries(seeded, cdn=True)] == ["cut", None]


def test_short_body(hub: HubServer, seeded: str, tmp_path: Path) -> None:
    hub.break_with(FaultRule("^/cdn/", "short", after=1000))
    with pytest.raises(OSError, match="should be of size 300000 but has size 1000"):
        fetch(hub, seeded, tmp_path / "cache")


def test_another_body(hub: HubServer, seeded: str, tmp_path: Path, api: Client) -> None:
    hub.break_with(FaultRule("^/cdn/", "body"), FaultRule("^/api/models/", "body", body='{"id": "x/y"}'))
    with pytest.raises(OSError, match="should be of size 300000 but has size"):
        fetch(hub, seeded, tmp_path / "cache")
    assert api(None).model_info(seeded).id == "x/y"


def test_flipped_bit_goes_unseen_by_the_client(hub: HubServer, seeded: str, folder: Path, tmp_path: Path) -> None:
    hub.break_with(FaultRule("^/cdn/", "flip", after=150_000))
    content, wrong = (folder / "model.safetensors").read_bytes(), fetch(hub, seeded, tmp_path / "cache")
    assert [index for index, pair in enumerate(zip(content, wrong, strict=True)) if pair[0] != pair[1]] == [150_000]
    assert content[150_000] ^ wrong[150_000] == 1


def test_stall_is_left_after_the_time_out(
    hub: HubServer, seeded: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.3)
    hub.break_with(FaultRule("^/cdn/", "stall", after=1000, seconds=30))
    started = time.monotonic()
    assert fetch(hub, seeded, tmp_path / "cache") == (folder / "model.safetensors").read_bytes()
    assert 1.3 <= time.monotonic() - started < 10


def test_stall_goes_on(hub: HubServer, seeded: str, folder: Path, tmp_path: Path) -> None:
    hub.break_with(FaultRule("^/cdn/", "stall", after=1000, seconds=0.2))
    assert fetch(hub, seeded, tmp_path / "cache") == (folder / "model.safetensors").read_bytes()
    assert len(hub.log.entries(seeded, cdn=True)) == 1


def test_skip_times_and_method(web: httpx2.Client, hub: HubServer, seeded: str) -> None:
    hub.break_with(FaultRule("config.json$", "status", skip=1, times=2, method="GET", status=500))
    url = f"{hub.endpoint}/{seeded}/resolve/main/config.json"
    assert web.head(url).status_code == 200
    assert [web.get(url).status_code for _ in range(4)] == [200, 500, 500, 200]
    hub.break_with(FaultRule("config.json$", "status"))
    hub.faults.clear()
    assert web.get(url).status_code == 200
