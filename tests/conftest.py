"""What the tests share: the pinned toolchain, the embedded pair and a local Hub."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants
from hypothesis import HealthCheck, settings

from demo import run as demo_run
from demo.hub import HubServer
from scripts import config
from scripts import hub as hub_client
from scripts import toolchain as llama_cpp
from tests import errors_table
from tests.chain import Chain, copy

# CI tries the same examples every time; a person looks for new ones with `--hypothesis-profile long`.
ANY_SPEED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
settings.register_profile(
    "short", max_examples=60, derandomize=True, database=None, deadline=None, suppress_health_check=ANY_SPEED
)
settings.register_profile("long", max_examples=5000, deadline=None, suppress_health_check=ANY_SPEED)
settings.load_profile("short")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes docs/errors.md."""
    parser.addoption("--write-errors", action="store_true", help="write docs/errors.md from what the tests show")


def pytest_configure(config: pytest.Config) -> None:
    """Keep the table of errors."""
    config.pluginmanager.register(errors_table.plugin(config), "errors table")


@pytest.fixture(autouse=True)
def no_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the token or the endpoint of the person who runs it."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def toolchain_quantize(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toolchain folder with the converter and llama-quantize."""
    out = tmp_path_factory.mktemp("toolchain")
    spec = llama_cpp.parse_spec(config.load(config.ROOT / "config.yaml")["llama_cpp"])
    llama_cpp.fetch_source(spec, out)
    llama_cpp.build(spec, out, "llama-quantize", os.cpu_count() or 1)
    return out


@pytest.fixture(scope="session", name="toolchain")
def toolchain_folder(toolchain_quantize: Path) -> Path:
    """A toolchain folder with llama-server as well."""
    spec = llama_cpp.parse_spec(config.load(config.ROOT / "config.yaml")["llama_cpp"])
    llama_cpp.build(spec, toolchain_quantize, "llama-server", os.cpu_count() or 1)
    return toolchain_quantize


@pytest.fixture(scope="session")
def pair_repos(toolchain_quantize: Path) -> Path:
    """The embedded pair's repositories as folders: draft, base, finetune, finetune-gguf."""
    return demo_run.repositories(llama_cpp.cache_root() / "pair", os.cpu_count() or 1, toolchain_quantize)


@pytest.fixture(scope="session")
def chain(tmp_path_factory: pytest.TempPathFactory, pair_repos: Path) -> Iterator[Chain]:
    """The chain, run once, publish included, in a folder with a space and an umlaut in its name."""
    tmp = tmp_path_factory.mktemp("chain")
    with HubServer(tmp / "hub") as server:
        demo_run.seed(server, pair_repos)
        made = Chain(copy(tmp / "a föl der"), server, tmp)
        server.log.clear()
        done = made.snakemake("--cores", str(os.cpu_count()), "all", "publish")
        assert done.returncode == 0, done.stderr[-3000:]
        yield made


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubServer]:
    """An empty local Hub."""
    with HubServer(tmp_path / "hub") as server:
        yield server


@pytest.fixture
def at_hub(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HubServer:
    """An empty local Hub that this process's client talks to, with the write token and a cache of its own."""
    monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
    template = f"{hub.endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", hub.token("write"))
    return hub


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow each other at once, where the server does not ask for more."""
    monkeypatch.setattr(hub_client, "PAUSE", 0.01)
