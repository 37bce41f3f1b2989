"""Hubs to test against; the client is the installed huggingface_hub, told the endpoint in every call."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from huggingface_hub import HfApi, constants
from huggingface_hub.utils.tqdm import disable_progress_bars

from demo.hub import HubConfig, HubServer

_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def _quiet_client(monkeypatch: pytest.MonkeyPatch) -> None:
    # what HF_HUB_DISABLE_XET=1 does when it is set before the import, which another test may have done already
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    disable_progress_bars()


@pytest.fixture(scope="session")
def web() -> Iterator[httpx2.Client]:
    """A plain HTTP client, for what the Hub's own client never does."""
    with httpx2.Client(timeout=30) as client:
        yield client


@pytest.fixture(scope="session")
def _shared_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    with HubServer(tmp_path_factory.mktemp("hub")) as server:
        yield server


@pytest.fixture
def hub(_shared_hub: HubServer) -> HubServer:
    _shared_hub.faults.clear()
    _shared_hub.log.clear()
    return _shared_hub


@pytest.fixture(scope="session")
def small_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    """Pages of 3, parts of 100,000 bytes, everything over 200,000 bytes is LFS."""
    config = HubConfig(lfs_over=200_000, multipart_over=250_000, part_size=100_000, page_size=3, expanded_page_size=2)
    with HubServer(tmp_path_factory.mktemp("small"), config) as server:
        yield server


@pytest.fixture
def repo_id() -> str:
    return f"demo/model-{next(_numbers)}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder: config.json, README.md, sub/notes.txt and 300,000 bytes of model.safetensors."""
    result = tmp_path / "model"
    (result / "sub").mkdir(parents=True)
    (result / "config.json").write_text('{"block_size": 16}\n')
    (result / "README.md").write_text("---\nlicense: mit\ntags:\n- gguf\n---\n# A <b>card</b>\n")
    (result / "sub" / "notes.txt").write_text("notes\n")
    (result / "model.safetensors").write_bytes(os.urandom(300_000))
    return result


@pytest.fixture
def seeded(hub: HubServer, repo_id: str, folder: Path) -> str:
    """The id of a repository on the Hub that holds ``folder``."""
    hub.commit_folder(repo_id, folder, "first")
    return repo_id


@pytest.fixture
def api(hub: HubServer) -> Callable[..., HfApi]:
    """``api("write")`` is a client with the token of that account, ``api(None)`` an anonymous one."""

    def client(key: str | None = "write") -> HfApi:
        return HfApi(endpoint=hub.endpoint, token=hub.token(key) if key else False)

    return client
