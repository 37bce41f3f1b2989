"""Reading with the real client."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from huggingface_hub import HfApi, HfFileSystem, RepoFile, RepoFolder, hf_hub_download, snapshot_download
from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

from demo.hub import FaultRule, HubServer
from demo.hub.objects import blob_id
from scripts.core import sha256_file

Client = Callable[..., HfApi]


def fetch(hub: HubServer, repo_id: str, name: str, cache: Path, revision: str | None = None) -> Path:
    found = hf_hub_download(
        repo_id, name, revision=revision, endpoint=hub.endpoint, token=hub.token("read"), cache_dir=cache / "cache"
    )
    return Path(found)


def test_one_regular_and_one_lfs_file(hub: HubServer, seeded: str, folder: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        assert fetch(hub, seeded, name, tmp_path).read_bytes() == (folder / name).read_bytes()


def test_snapshot_holds_the_folder(hub: HubServer, seeded: str, folder: Path, tmp_path: Path) -> None:
    where = Path(
        str(
            snapshot_download(
                seeded, endpoint=hub.endpoint, token=hub.token("read"), local_dir=tmp_path / "copy", max_workers=2
            )
        )
    )
    names = {"README.md", "config.json", "model.safetensors", "sub/notes.txt"}
    found = {path.relative_to(where).as_posix() for path in where.rglob("*") if path.is_file()}
    assert {name for name in found if not name.startswith(".cache/")} == names | {".gitattributes"}
    assert all((where / name).read_bytes() == (folder / name).read_bytes() for name in names)


def test_head_carries_what_the_client_needs(hub: HubServer, seeded: str, folder: Path, api: Client) -> None:
    head = hub.repo(seeded).resolve("main").id
    regular = api().get_hf_file_metadata(url=f"{hub.endpoint}/{seeded}/resolve/main/config.json")
    assert (regular.commit_hash, regular.size) == (head, (folder / "config.json").stat().st_size)
    assert regular.etag == blob_id((folder / "config.json").read_bytes())
    large = api().get_hf_file_metadata(url=f"{hub.endpoint}/{seeded}/resolve/main/model.safetensors")
    assert (large.commit_hash, large.size) == (head, 300_000)
    assert large.etag == sha256_file(folder / "model.safetensors")
    assert large.location.startswith(f"http://127.0.0.1:{hub.port}/cdn/")


def test_the_other_host_gets_no_token(hub: HubServer, seeded: str, tmp_path: Path) -> None:
    fetch(hub, seeded, "model.safetensors", tmp_path)
    there = hub.log.entries(seeded, cdn=True)
    here = hub.log.entries(seeded, cdn=False)
    assert [(entry.status, entry.bytes, entry.authorization) for entry in there] == [(200, 300_000, False)]
    assert here
    assert all(entry.authorization and entry.user == "demo" for entry in here)


def test_download_resumes_after_the_connection_closed(
    hub: HubServer, seeded: str, folder: Path, tmp_path: Path
) -> None:
    # the client keeps whole pieces of 10 MiB of a broken answer
    piece = 10 << 20
    (folder / "model.safetensors").write_bytes(os.urandom(2 * piece + 1000))
    hub.commit_folder(seeded, folder, "larger")
    hub.break_with(FaultRule("^/cdn/.*safetensors", "cut", after=piece + 5000))
    assert fetch(hub, seeded, "model.safetensors", tmp_path).read_bytes() == (folder / "model.safetensors").read_bytes()
    first, second = hub.log.entries(seeded, cdn=True)
    assert (first.fault, first.status, second.status, second.range) == ("cut", 200, 206, f"bytes={piece}-")
    assert (first.bytes, second.bytes) == (piece + 5000, piece + 1000)


def test_file_system_reads_ranges(hub: HubServer, seeded: str, folder: Path) -> None:
    files = HfFileSystem(endpoint=hub.endpoint, token=hub.token("read"), skip_instance_cache=True)
    content = (folder / "model.safetensors").read_bytes()
    with files.open(f"{seeded}/model.safetensors", "rb", block_size=1000) as stream:
        stream.seek(250_000)
        assert stream.read(10) == content[250_000:250_010]
    assert files.read_text(f"{seeded}/sub/notes.txt") == "notes\n"
    parts = hub.log.entries(seeded, suffix=".safetensors", status=206)
    assert parts
    assert all(entry.cdn and entry.bytes < 2000 for entry in parts)
    assert hub.log.bytes_for(seeded, ".safetensors") < 5000


@pytest.mark.parametrize(
    ("header", "status", "expected"),
    [
        ("bytes=0-3", 206, slice(0, 4)),
        ("bytes=299990-", 206, slice(299_990, None)),
        ("bytes=-5", 206, slice(-5, None)),
        ("bytes=299999-400000", 206, slice(299_999, None)),
        ("bytes=5-2", 200, slice(None)),
        ("items=0-3", 200, slice(None)),
    ],
)
def test_range_header(
    web: httpx2.Client, hub: HubServer, seeded: str, folder: Path, header: str, status: int, expected: slice
) -> None:
    url = f"{hub.endpoint}/{seeded}/resolve/main/model.safetensors"
    answer = web.get(url, headers={"Range": header}, follow_redirects=True)
    assert (answer.status_code, answer.content) == (status, (folder / "model.safetensors").read_bytes()[expected])


def test_range_behind_the_end_is_416(web: httpx2.Client, hub: HubServer, seeded: str) -> None:
    url = f"{hub.endpoint}/{seeded}/resolve/main/model.safetensors"
    answer = web.get(url, headers={"Range": "bytes=300000-"}, follow_redirects=True)
    assert (answer.status_code, answer.headers["content-range"]) == (416, "bytes */300000")


def test_info_lists_blobs(hub: HubServer, seeded: str, folder: Path, api: Client) -> None:
    info = api(None).model_info(seeded, files_metadata=True)
    assert info.sha == hub.repo(seeded).resolve("main").id
    assert info.siblings is not None
    by_name = {sibling.rfilename: sibling for sibling in info.siblings}
    assert by_name["config.json"].lfs is None
    large = by_name["model.safetensors"]
    assert large.lfs is not None
    assert (large.size, large.lfs.sha256) == (300_000, sha256_file(folder / "model.safetensors"))
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{large.lfs.sha256}\nsize 300000\n".encode()
    assert (large.blob_id, large.lfs.pointer_size) == (blob_id(pointer), len(pointer))
    assert info.card_data is not None
    assert info.card_data["license"] == "mit"
    assert {"gguf", "safetensors", "license:mit"} <= set(info.tags or [])


def test_tree_recursive_expanded_and_in_pages(small_hub: HubServer, repo_id: str, folder: Path) -> None:
    small_hub.commit_folder(repo_id, folder, "first")
    (folder / "sub" / "more.txt").write_text("more\n")
    second = small_hub.commit_folder(repo_id, folder, "second")
    client = HfApi(endpoint=small_hub.endpoint, token=False)
    small_hub.log.clear()
    tree = list(client.list_repo_tree(repo_id, recursive=True, expand=True))
    assert [item.path for item in tree] == [
        "sub",
        ".gitattributes",
        "README.md",
        "config.json",
        "model.safetensors",
        "sub/more.txt",
        "sub/notes.txt",
    ]
    titles = {item.path: item.last_commit.title for item in tree if item.last_commit}
    assert titles["sub"] == titles["sub/more.txt"] == "second"
    assert titles["config.json"] == titles["sub/notes.txt"] == "first"
    assert titles[".gitattributes"] == "initial commit"
    assert len(small_hub.log.requests_for(repo_id)) == 4
    assert [item.path for item in client.list_repo_tree(repo_id, "sub")] == ["sub/more.txt", "sub/notes.txt"]
    assert client.model_info(repo_id).sha == second.id


def test_paths_info(hub: HubServer, seeded: str, api: Client) -> None:
    found = api(None).get_paths_info(seeded, ["config.json", "sub", "none.txt"], expand=True)
    assert [(type(item), item.path) for item in found] == [(RepoFile, "config.json"), (RepoFolder, "sub")]


def test_missing_file_is_entry_not_found(hub: HubServer, seeded: str, tmp_path: Path) -> None:
    with pytest.raises(EntryNotFoundError, match="Entry Not Found"):
        fetch(hub, seeded, "none.bin", tmp_path)


def test_missing_folder_is_entry_not_found(hub: HubServer, seeded: str, api: Client) -> None:
    with pytest.raises(EntryNotFoundError):
        list(api(None).list_repo_tree(seeded, "nowhere"))


def test_unknown_revision(hub: HubServer, seeded: str, tmp_path: Path, api: Client) -> None:
    with pytest.raises(RevisionNotFoundError, match="Invalid rev id: v9"):
        fetch(hub, seeded, "config.json", tmp_path, revision="v9")
    with pytest.raises(RevisionNotFoundError):
        api(None).model_info(seeded, revision="0" * 40)


@pytest.mark.parametrize(("key", "status"), [(None, 401), ("read", 404)])
def test_missing_repository(key: str | None, status: int, api: Client) -> None:
    with pytest.raises(RepositoryNotFoundError) as caught:
        api(key).model_info("demo/none")
    assert caught.value.response.status_code == status


def test_list_models(hub: HubServer, seeded: str, api: Client) -> None:
    hub.create_repo("demo/hidden", private=True)
    found = {model.id for model in api(None).list_models(author="demo")}
    assert seeded in found
    assert "demo/hidden" not in found
    assert {model.id for model in api("read").list_models(search="hidden")} == {"demo/hidden"}


def test_access_log(hub: HubServer, seeded: str, folder: Path, tmp_path: Path) -> None:
    fetch(hub, seeded, "config.json", tmp_path)
    size = (folder / "config.json").stat().st_size
    assert {entry.method for entry in hub.log.requests_for(seeded)} == {"HEAD", "GET"}
    assert hub.log.bytes_for(seeded) == hub.log.bytes_for(seeded, ".json") == size
    assert hub.log.requests_for(seeded, ".safetensors") == []
    assert hub.log.bytes_for(seeded, ".safetensors") == 0
    last = hub.log.requests_for(seeded, "config.json")[-1]
    assert (last.file, last.status, last.user) == ("config.json", 200, "demo")
    assert f"{seeded}  2         0       {size} B" in hub.log.summary()
    assert hub.log.path is not None
    lines = [json.loads(line) for line in hub.log.path.read_text().splitlines()]
    assert [line["method"] for line in lines if line["repo"] == seeded] == ["HEAD", "GET"]
    assert [entry.bytes for entry in type(hub.log).load(hub.log.path).requests_for(seeded)] == [0, size]
