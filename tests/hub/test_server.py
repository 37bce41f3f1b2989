"""The server as a process and as an object: start, stop, configuration, pages, and a client set up by environment."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import httpx2
import pytest

from demo.hub import FaultRule, HubConfig, HubServer
from scripts.core import BuildError

PROJECT = Path(__file__).parents[2]
CLIENT = """
    import sys
    from huggingface_hub import HfApi, snapshot_download
    api, repo, folder = HfApi(), "demo/release", sys.argv[1]
    api.create_repo(repo, exist_ok=True)
    done = api.upload_folder(repo_id=repo, folder_path=folder)
    again = api.upload_folder(repo_id=repo, folder_path=folder)
    assert again.oid == done.oid, (again.oid, done.oid)
    print(snapshot_download(repo, revision=done.oid, cache_dir=sys.argv[2]))
"""


def test_client_set_up_by_its_environment_alone(hub: HubServer, folder: Path, tmp_path: Path) -> None:
    environment = {**os.environ, **hub.environment("write"), "HF_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-c", textwrap.dedent(CLIENT), str(folder), str(tmp_path / "cache")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    copy = Path(done.stdout.strip())
    assert (copy / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    assert hub.log.requests_for("demo/release")


def test_command_line_serves_prints_and_stops(web: httpx2.Client, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "demo.hub", "--root", str(tmp_path / "hub")]
    server = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        lines = [server.stdout.readline().strip() for _ in range(3)]
        values = dict(line.removeprefix("export ").split("=", 1) for line in lines)
        assert values["HF_HUB_DISABLE_XET"] == "1"
        headers = {"Authorization": f"Bearer {values['HF_TOKEN']}"}
        answer = web.get(f"{values['HF_ENDPOINT']}/api/whoami-v2", headers=headers)
        assert answer.json()["name"] == "demo"
    finally:
        server.send_signal(signal.SIGINT)
        _, messages = server.communicate(timeout=20)
    assert server.returncode == 0, messages
    assert "stopping" in messages
    assert "Traceback" not in messages


def test_stop_ends_stalled_answers_and_the_thread(web: httpx2.Client, tmp_path: Path, folder: Path) -> None:
    with HubServer(tmp_path / "hub") as server:
        server.commit_folder("demo/m", folder, "first")
        server.break_with(FaultRule("config.json", "stall", seconds=600))
        url, port = f"{server.endpoint}/demo/m/resolve/main/config.json", server.port
        client = threading.Thread(target=lambda: web.get(url, timeout=30))
        client.start()
        while not server.log.requests_for("demo/m"):
            pass
    assert not server.alive()
    client.join(10)
    assert not client.is_alive()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_port_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with (
            pytest.raises(BuildError, match="cannot listen on port"),
            HubServer(tmp_path / "hub", port=other.getsockname()[1]),
        ):
            pass


def test_only_loopback(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"serves this machine only, not '0\.0\.0\.0'"):
        HubServer(tmp_path, host="0.0.0.0")


def test_unknown_account(hub: HubServer) -> None:
    with pytest.raises(BuildError, match="no account 'root' on this Hub"):
        hub.token("root")


def test_pages(web: httpx2.Client, hub: HubServer, seeded: str, folder: Path) -> None:
    hub.create_repo("demo/secret-one", private=True)
    index = web.get(f"{hub.endpoint}/").text
    assert f'href="/{seeded}"' in index
    assert "demo/secret-one" not in index
    assert web.get(f"{hub.endpoint}/demo/secret-one").status_code == 401
    page = web.get(f"{hub.endpoint}/{seeded}").text
    entry = hub.repo(seeded).resolve("main").files["model.safetensors"]
    assert entry.sha256 is not None
    assert entry.sha256 in page
    assert "300.0 kB" in page
    assert "# A &lt;b&gt;card&lt;/b&gt;" in page
    assert "<b>" not in page


def test_damaged_content_is_an_error(web: httpx2.Client, hub: HubServer, seeded: str, folder: Path) -> None:
    (folder / "model.safetensors").open("ab").close()
    with (folder / "model.safetensors").open("r+b") as stream:
        stream.truncate(10)
    answer = web.get(f"{hub.endpoint}/{seeded}/resolve/main/model.safetensors", follow_redirects=True)
    assert answer.status_code == 500
    assert answer.headers["X-Error-Message"] == "The stored content is damaged: 10 bytes instead of 300000"


def test_configuration_file(tmp_path: Path) -> None:
    path = tmp_path / "hub.json"
    account = {"name": "me", "token": "hf_fake", "role": "write", "orgs": ["team"]}
    path.write_text(json.dumps({"accounts": {"me": account}, "part_size": 1000}))
    config = HubConfig.load(path)
    found = config.account("hf_fake")
    assert found is not None
    assert found.member_of("team")
    assert (config.part_size, config.account("hf_other")) == (1000, None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "is not a JSON object"),
        ('{"ports": 1}', "unknown key 'ports'"),
        ('{"part_size": 0}', "part_size must be a whole number above zero, not 0"),
        ('{"accounts": {"a": {"name": "a"}}}', "bad account in the Hub's configuration"),
        ('{"accounts": {"a": {"name": "a", "token": "t", "role": "root"}}}', "account 'a' has the unknown role 'root'"),
    ],
    ids=["list", "key", "number", "account", "role"],
)
def test_bad_configuration_file(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "hub.json"
    path.write_text(content)
    with pytest.raises(BuildError, match=message):
        HubConfig.load(path)
