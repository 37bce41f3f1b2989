"""Writing with the real client."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete, HfApi, RepoFile
from huggingface_hub.errors import BadRequestError, EntryNotFoundError, HfHubHTTPError

from demo.hub import HubServer
from scripts.core import sha256_file

Client = Callable[..., HfApi]


def add(path: str, content: bytes) -> CommitOperationAdd:
    return CommitOperationAdd(path, io.BytesIO(content) if len(content) > 1000 else content)


def sums(api: HfApi, repo_id: str, revision: str = "main") -> dict[str, str]:
    """sha256 of LFS files and blob ids of others, as the listing gives them."""
    tree = api.list_repo_tree(repo_id, recursive=True, revision=revision)
    files = [item for item in tree if isinstance(item, RepoFile)]
    return {item.path: item.lfs.sha256 if item.lfs else item.blob_id for item in files}


def test_upload_folder_lists_what_was_sent(hub: HubServer, repo_id: str, folder: Path, api: Client) -> None:
    api().create_repo(repo_id)
    done = api().upload_folder(repo_id=repo_id, folder_path=folder, commit_message="release")
    listed = sums(api(None), repo_id)
    assert listed["model.safetensors"] == sha256_file(folder / "model.safetensors")
    assert set(listed) == {".gitattributes", "README.md", "config.json", "model.safetensors", "sub/notes.txt"}
    assert done.oid == api(None).model_info(repo_id).sha
    assert [commit.title for commit in api(None).list_repo_commits(repo_id)] == ["release", "initial commit"]
    assert hub.log.entries(repo_id, method="PUT")[0].received == 300_000
    assert not hub.log.entries(repo_id, method="PUT")[0].authorization
    assert list(hub.repo(repo_id).blobs.uploads.iterdir()) == []


def test_unchanged_files_are_neither_uploaded_nor_committed(
    hub: HubServer, seeded: str, folder: Path, api: Client
) -> None:
    before = api().model_info(seeded).sha
    assert api().upload_folder(repo_id=seeded, folder_path=folder).oid == before
    (folder / "config.json").write_text("{}\n")
    after = api().upload_folder(repo_id=seeded, folder_path=folder)
    assert after.oid != before
    assert hub.log.entries(seeded, method="PUT") == []
    assert len(api().list_repo_commits(seeded)) == 3
    commit = [entry for entry in hub.log.requests_for(seeded) if "/commit/" in entry.path][-1]
    assert commit.received < 500


def test_size_alone_makes_a_file_lfs(small_hub: HubServer, repo_id: str) -> None:
    client = HfApi(endpoint=small_hub.endpoint, token=small_hub.token("write"))
    client.create_repo(repo_id)
    operations = [add("tokenizer.json", os.urandom(200_001)), add("small.json", b"{}"), add("empty.bin", b"")]
    client.create_commit(repo_id, operations, commit_message="tokenizer")
    lfs = {item.path: bool(item.lfs) for item in client.list_repo_tree(repo_id) if isinstance(item, RepoFile)}
    assert lfs == {".gitattributes": False, "tokenizer.json": True, "small.json": False, "empty.bin": False}


def test_multipart_upload(small_hub: HubServer, repo_id: str, tmp_path: Path) -> None:
    client = HfApi(endpoint=small_hub.endpoint, token=small_hub.token("write"))
    client.create_repo(repo_id)
    source = tmp_path / "model.gguf"
    source.write_bytes(os.urandom(350_001))
    small_hub.log.clear()
    client.upload_file(path_or_fileobj=source, path_in_repo="model.gguf", repo_id=repo_id)
    puts = small_hub.log.entries(repo_id, method="PUT")
    assert [entry.received for entry in puts] == [100_000, 100_000, 100_000, 50_001]
    assert sums(client, repo_id)["model.gguf"] == sha256_file(source)
    assert list(small_hub.repo(repo_id).blobs.uploads.iterdir()) == []


def _batch(web: httpx2.Client, hub: HubServer, repo_id: str, oid: str, size: int) -> dict[str, str]:
    body = {"operation": "upload", "transfers": ["basic"], "objects": [{"oid": oid, "size": size}]}
    headers = {"Authorization": f"Bearer {hub.token('write')}"}
    answer = web.post(f"{hub.endpoint}/{repo_id}.git/info/lfs/objects/batch", json=body, headers=headers)
    upload: dict[str, str] = answer.raise_for_status().json()["objects"][0]["actions"]["upload"]
    return upload


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"y" * 100, "was announced"),
        (b"x" * 99, "has 99 bytes, 100 were announced"),
        (b"x" * 101, "longer than the 100 bytes announced"),
    ],
    ids=["other", "short", "long"],
)
def test_wrong_content_is_refused(
    web: httpx2.Client, hub: HubServer, repo_id: str, content: bytes, message: str
) -> None:
    repo = hub.create_repo(repo_id)
    oid = hashlib.sha256(b"x" * 100).hexdigest()
    answer = web.put(_batch(web, hub, repo_id, oid, 100)["href"], content=content)
    assert answer.status_code == 400
    assert message in answer.headers["X-Error-Message"]
    assert repo.blobs.lfs_size(oid) is None
    assert list(repo.blobs.uploads.iterdir()) == []


def test_upload_address_needs_its_signature(web: httpx2.Client, hub: HubServer, repo_id: str) -> None:
    hub.create_repo(repo_id)
    href = _batch(web, hub, repo_id, "0" * 64, 100)["href"]
    answer = web.put(href.replace("size=100", "size=200"), content=b"x")
    assert (answer.status_code, answer.headers["X-Error-Message"]) == (
        403,
        "The signature of this address is not valid",
    )


def test_kill_during_an_lfs_upload_leaves_nothing(hub: HubServer, repo_id: str) -> None:
    repo = hub.create_repo(repo_id)
    before = repo.resolve("main").id
    script = """
        import io, time
        from huggingface_hub import CommitOperationAdd, HfApi
        class Stalling(io.BytesIO):
            sending = False
            def read(self, size=-1):
                if self.tell() >= 1_000_000 and self.sending:
                    print("half", flush=True)
                    time.sleep(60)
                return super().read(size)
        data = Stalling(bytes(3_000_000))
        operation = CommitOperationAdd("model.gguf", data)
        data.sending = True
        HfApi().create_commit(REPO, [operation], commit_message="never")
    """
    script = textwrap.dedent(script).replace("REPO", repr(repo_id))
    environment = {**os.environ, **hub.environment("write"), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    client = subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert client.stdout is not None
        assert client.stdout.readline() == "half\n"
        until = time.monotonic() + 5
        while not list(repo.blobs.uploads.glob("*")) and time.monotonic() < until:
            time.sleep(0.02)
        assert len(list(repo.blobs.uploads.iterdir())) == 1
    finally:
        client.send_signal(signal.SIGKILL)
        client.wait(10)
    until = time.monotonic() + 5
    while list(repo.blobs.uploads.iterdir()) and time.monotonic() < until:
        time.sleep(0.02)
    assert list(repo.blobs.uploads.iterdir()) == []
    assert not (repo.blobs.root / "lfs").exists()
    assert repo.resolve("main").id == before
    assert hub.log.entries(repo_id, method="PUT")[0].status == 499


def test_commit_cannot_point_to_an_object_that_is_not_there(
    web: httpx2.Client, hub: HubServer, seeded: str, repo_id: str
) -> None:
    other = hub.create_repo(f"{repo_id}-other")
    entry = hub.repo(seeded).resolve("main").files["model.safetensors"]
    lines = [
        '{"key": "header", "value": {"summary": "theft"}}',
        f'{{"key": "lfsFile", "value": {{"path": "a.gguf", "algo": "sha256", "oid": "{entry.sha256}"}}}}',
    ]
    answer = web.post(
        f"{hub.endpoint}/api/models/{other.id}/commit/main",
        content="\n".join(lines),
        headers={"Authorization": f"Bearer {hub.token('write')}"},
    )
    assert answer.status_code == 400
    assert "points to an LFS object that was not uploaded" in answer.json()["error"]


def test_delete_copy_and_rename(hub: HubServer, seeded: str, api: Client) -> None:
    before = sums(api(), seeded)
    operations: list[CommitOperationCopy | CommitOperationDelete] = [
        CommitOperationCopy("model.safetensors", "copy.safetensors"),
        CommitOperationCopy("config.json", "copy.json"),
        CommitOperationDelete("sub/"),
        CommitOperationDelete("model.safetensors"),
    ]
    api().create_commit(seeded, operations, commit_message="move")
    after = sums(api(), seeded)
    assert set(after) == {".gitattributes", "README.md", "config.json", "copy.json", "copy.safetensors"}
    assert after["copy.safetensors"] == before["model.safetensors"]
    assert after["copy.json"] == before["config.json"]


def test_copy_file_operation_of_older_clients(web: httpx2.Client, hub: HubServer, seeded: str, api: Client) -> None:
    lines = [
        '{"key": "header", "value": {"summary": "copy"}}',
        '{"key": "copyFile", "value": {"path": "b.safetensors", "srcPath": "model.safetensors"}}',
    ]
    headers = {"Authorization": f"Bearer {hub.token('write')}"}
    url = f"{hub.endpoint}/api/models/{seeded}/commit/main"
    web.post(url, content="\n".join(lines), headers=headers).raise_for_status()
    listed = sums(api(), seeded)
    assert listed["b.safetensors"] == listed["model.safetensors"]


def test_delete_of_a_missing_file(hub: HubServer, seeded: str, api: Client) -> None:
    with pytest.raises(EntryNotFoundError, match=r"A file with this name doesn't exist: none\.txt"):
        api().delete_file("none.txt", seeded)


def test_a_file_cannot_be_a_folder(hub: HubServer, seeded: str, api: Client) -> None:
    with pytest.raises(BadRequestError, match=r"config\.json is a file, so config\.json/x cannot lie below it"):
        api().create_commit(seeded, [add("config.json/x", b"x")], commit_message="no")


def test_card_with_broken_metadata_is_refused_before_the_upload(hub: HubServer, seeded: str, api: Client) -> None:
    with pytest.raises(ValueError, match="The metadata block is not YAML"):
        api().upload_file(path_or_fileobj=b"---\na: [\n---\n", path_in_repo="README.md", repo_id=seeded)


def test_parent_commit_that_is_not_the_head_is_412(hub: HubServer, seeded: str, api: Client) -> None:
    head = hub.repo(seeded).resolve("main").id
    api().create_commit(seeded, [add("a.txt", b"a")], commit_message="a", parent_commit=head)
    with pytest.raises(HfHubHTTPError, match="A commit has happened since") as caught:
        api().create_commit(seeded, [add("b.txt", b"b")], commit_message="b", parent_commit=head)
    assert caught.value.response.status_code == 412


def test_concurrent_commits_all_land_in_one_line(hub: HubServer, seeded: str, api: Client) -> None:
    def commit(number: int) -> None:
        api().create_commit(seeded, [add(f"{number}.txt", b"%d" % number)], commit_message=f"n{number}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(commit, range(8)))
    head = hub.repo(seeded).resolve("main")
    assert {f"{number}.txt" for number in range(8)} <= set(head.files)
    history = list(hub.repo(seeded).history.log(head.id))
    assert len(history) == 10
    assert all(len(item.parents) == 1 for item in history[:-1])


def test_of_concurrent_commits_on_one_parent_one_wins(hub: HubServer, seeded: str, api: Client) -> None:
    head = hub.repo(seeded).resolve("main").id

    def commit(number: int) -> int:
        try:
            operations = [add(f"{number}.txt", b"x")]
            api().create_commit(seeded, operations, commit_message="race", parent_commit=head)
        except HfHubHTTPError as error:
            return error.response.status_code
        return 200

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(commit, range(4))) == [200, 412, 412, 412]


def test_gitignore_is_obeyed(hub: HubServer, seeded: str, api: Client) -> None:
    operations = [add(".gitignore", b"*.tmp\nlogs/\n"), add("a.tmp", b"x"), add("logs/b.txt", b"x"), add("c.txt", b"x")]
    api().create_commit(seeded, operations, commit_message="ignore")
    assert set(sums(api(), seeded)) & {".gitignore", "a.tmp", "logs/b.txt", "c.txt"} == {".gitignore", "c.txt"}


def test_client_with_xet_is_told_what_to_set(web: httpx2.Client, hub: HubServer, seeded: str) -> None:
    answer = web.get(
        f"{hub.endpoint}/api/models/{seeded}/xet-write-token/main",
        headers={"Authorization": f"Bearer {hub.token('write')}"},
    )
    assert answer.status_code == 404
    assert "HF_HUB_DISABLE_XET=1" in answer.headers["X-Error-Message"]
