"""A token is nowhere but in the environment: not in logs, reports, records, caches, output or command lines."""

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from demo.hub import FaultRule, HubServer
from demo.hub.config import Account, HubConfig
from scripts import core, process
from tests.chain import KEY, OPTIONS, Chain

pytestmark = pytest.mark.slow

CANARY = "hf_canaryQ7vT2mZx9LwK4dPsB8rNcJ6yGf3hUe"
LOGIN = "hf_canaryLoginR5tY1uI9oP3aS7dF2gH6jK4lZ"
WRONG = "hf_canaryWrongN8bV4cX2zM6qW1eR5tY9uI3o"
REPO = "demo-org/TinyQwen3.5-Coder-DFlash-GGUF"


@dataclass
class Place:
    """A copy of a finished chain with a Hub of its own, whose tokens are canaries, and all that was said in it."""

    folder: Path
    home: Path
    hub: HubServer
    said: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    def run(self, *command: str, token: str | None) -> int:
        """Run a command here; every command line of the machine is looked at meanwhile."""
        home = {"HOME": str(self.home), "HF_HOME": str(self.home / "hf"), "XDG_CACHE_HOME": str(self.home / "cache")}
        env = process.environment(home) | self.hub.environment() | ({"HF_TOKEN": token} if token else {})
        ended = threading.Event()
        watch = threading.Thread(target=self._watch, args=(ended,))
        watch.start()
        try:
            done = subprocess.run(
                [sys.executable, "-m", *command], cwd=self.folder, env=env, capture_output=True, text=True
            )
        finally:
            ended.set()
            watch.join()
        self.said += [done.stdout, done.stderr]
        return done.returncode

    def _watch(self, ended: threading.Event) -> None:
        while not ended.wait(0.02):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    self.seen.add(path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
                except OSError:
                    continue

    def publish(self, *options: str, token: str | None) -> int:
        """Publish once more, by Snakemake."""
        target = ["--forcerun", "publish_pair", "--rerun-triggers", "mtime", "--", "publish"]
        command = ["snakemake", "--configfile", "demo/config.yaml", *OPTIONS, "--cores", "1", *options, *target]
        return self.run(*command, token=token)

    def script(self, *options: str, token: str | None) -> int:
        """Publish once more, by the script itself."""
        command = ["scripts.publish", "--folder", f"results/{KEY}/release", "--name", "Tiny", *options]
        return self.run(*command, "--options", f'{{"repo": "{REPO}"}}', "--log", "logs/script.log", token=token)

    def found(self) -> list[str]:
        """Where any of the tokens is."""
        found = [f"said: {text[:200]}" for text in self.said if "hf_canary" in text]
        found += [f"command line: {text[:200]}" for text in self.seen if "hf_canary" in text]
        for root in (self.folder, self.home):
            for path in root.rglob("*"):
                if path.is_file() and path != self.home / "hf" / "token" and b"hf_canary" in path.read_bytes():
                    found.append(str(path))
        return found


@pytest.fixture(scope="module")
def place(chain: Chain, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    tmp = tmp_path_factory.mktemp("secrets")
    shutil.copytree(chain.folder, tmp / "copy", symlinks=True)
    (tmp / "home").mkdir()
    accounts = {
        key: Account("demo", token, "write", ("demo-org",)) for key, token in (("write", CANARY), ("login", LOGIN))
    }
    with HubServer(tmp / "hub", HubConfig(accounts)) as hub:
        yield Place(tmp / "copy", tmp / "home", hub)


def test_the_search_finds_what_is_there(place: Place, tmp_path: Path) -> None:
    other = Place(tmp_path, tmp_path, place.hub)
    assert other.run("timeit", "-n1", f"print('{CANARY}'[:9])", token=None) == 0
    (tmp_path / "file").write_bytes(b"\0" + CANARY.encode())
    assert [text.partition(":")[0] for text in other.found()] == [
        "said",
        "command line",
        str(tmp_path / "file"),
        str(tmp_path / "file"),
    ]


def test_a_token_of_the_environment_is_nowhere_after_publishing(place: Place) -> None:
    assert place.publish("--verbose", "--printshellcmds", token=CANARY) == 0, place.said[-1][-3000:]
    assert core.read_json(place.folder / "results" / KEY / "reports" / "publish.json")["changed"]
    assert [entry.user for entry in place.hub.log.entries(REPO, method="PUT")]
    assert any("scripts.publish" in text for text in place.seen)
    assert place.found() == []


def test_a_token_is_nowhere_after_runs_that_fail(place: Place) -> None:
    card = place.folder / "results" / KEY / "release" / "README.md"
    place.hub.break_with(FaultRule(rf"/api/models/{REPO}", "status", status=403, times=99))
    try:
        assert place.publish("--verbose", "--show-failed-logs", token=CANARY) == 1
        assert place.script("--debug", token=CANARY) == 1
    finally:
        place.hub.faults.clear()
    assert card.is_file()
    assert "Traceback" in (place.folder / "logs" / "script.log").read_text()
    assert place.found() == []


def test_a_wrong_token_is_not_shown(place: Place) -> None:
    assert place.publish("--verbose", token=WRONG) == 1
    assert place.script("--debug", token=WRONG) == 1
    assert "HF_TOKEN to a valid token" in place.said[-1]
    assert place.found() == []


def test_a_login_is_only_where_the_login_is(place: Place) -> None:
    (place.home / "hf").mkdir(exist_ok=True)
    (place.home / "hf" / "token").write_text(LOGIN)
    assert place.publish("--verbose", token=None) == 0, place.said[-1][-3000:]
    assert place.script("--debug", token=None) == 0, place.said[-1][-3000:]
    assert place.found() == []
