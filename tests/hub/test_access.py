"""Who may do what, and requests that try to get out of a repository."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from huggingface_hub import HfApi, hf_hub_download
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

from demo.hub import HubServer

Client = Callable[..., HfApi]


def raw(hub: HubServer, method: str, path: str, body: bytes = b"", host: str = "") -> tuple[int, str]:
    """A request with the path exactly as given; its status and X-Error-Message."""
    connection = http.client.HTTPConnection("127.0.0.1", hub.port, timeout=10)
    headers = {"Host": host or f"localhost:{hub.port}", "Authorization": f"Bearer {hub.token('write')}"}
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status, answer.headers.get("X-Error-Message", "")


def test_wrong_token(hub: HubServer, seeded: str, tmp_path: Path) -> None:
    client = HfApi(endpoint=hub.endpoint, token="hf_wrong")
    for call in (client.model_info, client.list_repo_refs, client.auth_check):
        with pytest.raises(HfHubHTTPError, match="Invalid credentials in Authorization header") as caught:
            call(seeded)
        assert caught.value.response.status_code == 401
        assert not isinstance(caught.value, RepositoryNotFoundError)
    with pytest.raises(HfHubHTTPError, match="Invalid credentials in Authorization header"):
        hf_hub_download(seeded, "config.json", endpoint=hub.endpoint, token="hf_wrong", cache_dir=tmp_path)


def test_whoami(hub: HubServer, api: Client) -> None:
    roles = {key: api(key).whoami()["auth"]["accessToken"]["role"] for key in ("write", "read", "none")}
    assert roles == {"write": "write", "read": "read", "none": "fineGrained"}
    assert api("read").whoami()["name"] == "demo"
    assert [org["name"] for org in api("write").whoami()["orgs"]] == ["demo-org"]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("read", "you must use a write token"),
        ("none", "you must use a write token"),
        ("stranger", "doesn't have the rights to write under the namespace demo"),
    ],
)
def test_no_right_to_write_is_403(hub: HubServer, seeded: str, api: Client, key: str, message: str) -> None:
    before = hub.repo(seeded).resolve("main").id
    calls: list[Callable[[], object]] = [
        lambda: api(key).upload_file(path_or_fileobj=b"x", path_in_repo="x.txt", repo_id=seeded),
        lambda: api(key).upload_file(path_or_fileobj=b"x", path_in_repo="x.bin", repo_id=seeded),
        lambda: api(key).create_tag(seeded, tag="v1"),
        lambda: api(key).create_repo("demo/other"),
        lambda: api(key).delete_repo(seeded),
        lambda: api(key).update_repo_settings(seeded, private=True),
        lambda: api(key).auth_check(seeded, write=True),
    ]
    for call in calls:
        with pytest.raises(HfHubHTTPError, match=message) as caught:
            call()
        assert caught.value.response.status_code == 403
    assert hub.repo(seeded).resolve("main").id == before
    assert hub.store.find("demo/other") is None


def test_anonymous_cannot_write(seeded: str, api: Client) -> None:
    with pytest.raises(HfHubHTTPError) as caught:
        api(None).create_tag(seeded, tag="v1")
    assert caught.value.response.status_code == 401


def test_private_repository(hub: HubServer, seeded: str, api: Client, tmp_path: Path) -> None:
    api().update_repo_settings(seeded, private=True)
    assert api("read").model_info(seeded).private
    for key, status in ((None, 401), ("none", 404), ("stranger", 404)):
        with pytest.raises(RepositoryNotFoundError) as caught:
            api(key).model_info(seeded)
        assert caught.value.response.status_code == status
    with pytest.raises(RepositoryNotFoundError):
        hf_hub_download(seeded, "config.json", endpoint=hub.endpoint, token=False, cache_dir=tmp_path)


def test_gated_repository(hub: HubServer, seeded: str, api: Client, tmp_path: Path) -> None:
    api().update_repo_settings(seeded, gated="manual")
    assert api(None).model_info(seeded).gated == "manual"
    for token, status, message in (
        (hub.token("stranger"), 403, "you are not in the authorized list"),
        (hub.token("none"), 403, "you are not in the authorized list"),
        (False, 401, "Please log in"),
    ):
        with pytest.raises(GatedRepoError, match=message) as caught:
            hf_hub_download(seeded, "model.safetensors", endpoint=hub.endpoint, token=token, cache_dir=tmp_path)
        assert caught.value.response.status_code == status
    assert hub.log.bytes_for(seeded, ".safetensors") == 0
    with pytest.raises(GatedRepoError):
        api("stranger").auth_check(seeded)
    hub.grant(seeded, "stranger")
    api("stranger").auth_check(seeded)
    hf_hub_download(seeded, "model.safetensors", endpoint=hub.endpoint, token=hub.token("stranger"), cache_dir=tmp_path)
    assert hub.log.bytes_for(seeded, ".safetensors") == 300_000


def test_content_address_needs_its_signature(web: httpx2.Client, hub: HubServer, seeded: str) -> None:
    found = web.head(f"{hub.endpoint}/{seeded}/resolve/main/model.safetensors").headers["location"]
    assert web.get(found).status_code == 200
    assert web.get(found[:-1] + ("0" if found[-1] != "0" else "1")).status_code == 403
    assert web.get(found.partition("?")[0]).status_code == 403


def test_create_repo_that_exists(hub: HubServer, seeded: str, api: Client) -> None:
    with pytest.raises(HfHubHTTPError, match="You already created this model repo") as caught:
        api().create_repo(seeded)
    assert (caught.value.response.status_code, caught.value.response.json()["url"]) == (
        409,
        f"{hub.endpoint}/{seeded}",
    )
    assert api().create_repo(seeded, exist_ok=True) == f"{hub.endpoint}/{seeded}"


def test_create_private_in_an_org_and_delete(hub: HubServer, api: Client) -> None:
    assert api().create_repo("demo-org/new", private=True).repo_id == "demo-org/new"
    assert hub.repo("demo-org/new").private
    assert api().create_repo("bare").repo_id == "demo/bare"
    api("admin").create_repo("anybody/any")
    root = hub.repo("demo-org/new").root
    api().delete_repo("demo-org/new")
    assert not root.exists()
    with pytest.raises(RepositoryNotFoundError):
        api().delete_repo("demo-org/new")
    api().delete_repo("demo-org/new", missing_ok=True)


@pytest.mark.parametrize(
    "path",
    [
        "/{repo}/resolve/main/..%2Frepo.json",
        "/{repo}/resolve/main/../repo.json",
        "/{repo}/resolve/main/%2e%2e/%2e%2e/repo.json",
        "/{repo}/resolve/..%2F..%2Frepo/config.json",
        "/{repo}/resolve/main/%2Fetc%2Fpasswd",
        "/demo/..%2F..%2F/resolve/main/config.json",
        "/..%2F../x/resolve/main/config.json",
        "/api/models/..%2F../x",
        "/api/models/{repo}/tree/main/..%2F..",
        "/api/models/{repo}/revision/..%2F..%2Frepo",
        "/cdn/{repo}/main/..%2Frepo.json?signature=0",
    ],
)
def test_no_path_leads_out(hub: HubServer, seeded: str, path: str) -> None:
    status, _ = raw(hub, "GET", path.format(repo=seeded))
    assert status in (400, 403, 404)


@pytest.mark.parametrize(
    "path", ["../evil", "a/../../evil", "/etc/evil", "a//b", ".git/config", "a\\..\\b", "a\x00b", "a\ud800"]
)
def test_commit_to_a_bad_path(hub: HubServer, seeded: str, path: str) -> None:
    before = hub.repo(seeded).resolve("main").id
    value = {"path": path, "content": "eA==", "encoding": "base64"}
    lines = [{"key": "header", "value": {"summary": "evil"}}, {"key": "file", "value": value}]
    body = "\n".join(json.dumps(line) for line in lines).encode()
    status, message = raw(hub, "POST", f"/api/models/{seeded}/commit/main", body)
    assert (status, message.partition(":")[0]) == (400, "Invalid path in repository")
    assert hub.repo(seeded).resolve("main").id == before


@pytest.mark.parametrize("name", ["..", "../x", "a/b", ".hidden", "", "x.git", "a" * 200])
def test_bad_repository_name(hub: HubServer, name: str) -> None:
    status, message = raw(hub, "POST", "/api/repos/create", json.dumps({"name": name}).encode())
    assert (status, message.partition(":")[0]) == (400, "Invalid repository name")


def test_bad_lfs_oid(hub: HubServer, seeded: str) -> None:
    body = {"operation": "upload", "objects": [{"oid": "../../repo", "size": 3}]}
    status, message = raw(hub, "POST", f"/{seeded}.git/info/lfs/objects/batch", json.dumps(body).encode())
    assert (status, message.partition(":")[0]) == (422, "Not an LFS object")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"not json", "Line 1 of the commit is not an operation"),
        (b'{"key": "file", "value": {"path": "a", "content": "eA=="}}', "The commit has no summary"),
        (
            b'{"key": "header", "value": {"summary": "x"}}\n{"key": "x", "value": {"path": "a"}}',
            "Unknown operation in the commit: 'x'",
        ),
        (
            b'{"key": "header", "value": {"summary": "x"}}\n'
            b'{"key": "file", "value": {"path": "a", "content": "?", "encoding": "base64"}}',
            "The content of a is missing or not base64",
        ),
    ],
    ids=["json", "summary", "operation", "base64"],
)
def test_malformed_commit(hub: HubServer, seeded: str, body: bytes, message: str) -> None:
    assert raw(hub, "POST", f"/api/models/{seeded}/commit/main", body) == (400, message)


def test_foreign_host_name_is_not_answered(hub: HubServer, seeded: str) -> None:
    status, message = raw(hub, "GET", f"/api/models/{seeded}", host="evil.example:80")
    assert (status, message) == (421, "This Hub does not answer for the host 'evil.example:80'")


def test_unknown_address(hub: HubServer) -> None:
    assert raw(hub, "GET", "/api/nothing/here/at/all") == (404, "This Hub has no GET /api/nothing/here/at/all")
