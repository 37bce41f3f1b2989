"""Repositories on disk: ids, seeding, and what survives."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from demo.hub import HubServer, Store
from demo.hub.commits import History
from demo.hub.errors import HubError
from demo.hub.objects import GITATTRIBUTES, FileEntry, blob_id, tree_ids
from demo.hub.seed import commit_folder
from demo.hub.store import Repo
from scripts.core import BuildError


def seed(store: Store, folder: Path, message: str = "first", repo_id: str = "demo/m") -> Repo:
    repo = store.find(repo_id) or store.create(repo_id)
    commit_folder(store, repo, folder, message, lfs_over=200_000)
    return repo


@pytest.mark.skipif(shutil.which("git") is None, reason="compares with git itself")
def test_ids_are_those_of_git(tmp_path: Path) -> None:
    content = {"a.txt": b"a\n", "a/b.txt": b"b\n", "a.b": b"", "a/c/d.txt": b"d\n", "z.txt": b"a\n"}
    environment = {**os.environ, "GIT_AUTHOR_NAME": "demo", "GIT_AUTHOR_EMAIL": "demo@users.noreply.hub"}
    environment |= {"GIT_COMMITTER_NAME": "demo", "GIT_COMMITTER_EMAIL": "demo@users.noreply.hub"}
    del content["a.txt"]
    work = tmp_path / "work"

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-c", "core.autocrlf=false", *arguments], cwd=work, env=environment, check=True, capture_output=True
        )
        return done.stdout.decode().strip()

    for name, data in content.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_bytes(data)
    git("init", "-q")
    git("add", ".")
    history = History(tmp_path / "commits")
    files = {name: FileEntry(blob_id(data), len(data)) for name, data in content.items()}
    assert tree_ids(files)[""] == git("write-tree")
    first = history.add(files, (), "demo", "one", "")
    second = history.add(files, (first.id,), "demo", "two", "with a\ntext")
    start = 1767225600  # 2026-01-01T00:00:00Z
    environment |= {"GIT_AUTHOR_DATE": f"{start} +0000", "GIT_COMMITTER_DATE": f"{start} +0000"}
    assert first.id == git("commit-tree", git("write-tree"), "-m", "one")
    environment |= {"GIT_AUTHOR_DATE": f"{start + 60} +0000", "GIT_COMMITTER_DATE": f"{start + 60} +0000"}
    assert second.id == git("commit-tree", git("write-tree"), "-p", first.id, "-m", "two", "-m", "with a\ntext")


def test_the_same_history_has_the_same_ids(tmp_path: Path, folder: Path) -> None:
    heads = []
    for name in ("one", "two"):
        (folder / "config.json").write_text("{}")
        with Store(tmp_path / name) as store:
            seed(store, folder)
            (folder / "config.json").write_text('{"a": 1}')
            repo = seed(store, folder, "second")
            heads.append([commit.id for commit in repo.history.log(repo.resolve("main").id)])
    assert heads[0] == heads[1]
    assert len(heads[0]) == 3
    assert all(len(oid) == 40 for oid in heads[0])


def test_a_changed_byte_author_or_message_changes_the_id(tmp_path: Path) -> None:
    history = History(tmp_path)
    files = {"a": FileEntry(blob_id(b"a"), 1)}
    ids = {
        history.add(files, (), "demo", "title", "").id,
        history.add(files, (), "other", "title", "").id,
        history.add(files, (), "demo", "title", "text").id,
        history.add({"a": FileEntry(blob_id(b"b"), 1)}, (), "demo", "title", "").id,
    }
    assert len(ids) == 4


def test_seeding_twice_commits_once_and_hashes_once(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = folder / "model.safetensors"
    large.write_bytes(bytes(2 << 20))
    os.utime(large, ns=(time.time_ns() - 10**9,) * 2)
    with Store(tmp_path / "hub") as store:
        head = seed(store, folder).resolve("main").id
        hashed: list[Path] = []
        monkeypatch.setattr("demo.hub.seed.sha256_file", lambda path, label: hashed.append(path))
        assert seed(store, folder, "again").resolve("main").id == head
        assert hashed == []


def test_seeding_sees_a_change_of_the_same_size(tmp_path: Path, folder: Path) -> None:
    large = folder / "model.safetensors"
    with Store(tmp_path / "hub") as store:
        for value in (1, 2):
            large.unlink()
            large.write_bytes(bytes([value]) * (2 << 20))
            repo = seed(store, folder, f"v{value}")
        entry = repo.resolve("main").files["model.safetensors"]
        assert entry.sha256 == hashlib.sha256(bytes([2]) * (2 << 20)).hexdigest()
        assert len(list(repo.history.log(repo.resolve("main").id))) == 3


def test_seeding_removes_what_the_folder_lost_and_keeps_gitattributes(tmp_path: Path, folder: Path) -> None:
    with Store(tmp_path / "hub") as store:
        seed(store, folder)
        (folder / "config.json").unlink()
        (folder / ".cache").mkdir()
        (folder / ".cache" / "x").write_text("not a part of the model")
        repo = seed(store, folder, "second")
        files = repo.resolve("main").files
        assert set(files) == {".gitattributes", "README.md", "model.safetensors", "sub/notes.txt"}
        assert repo.blobs.read(files[".gitattributes"]) == GITATTRIBUTES


@pytest.mark.parametrize("link", [True, False])
def test_large_files_are_linked_or_copied(tmp_path: Path, folder: Path, link: bool) -> None:
    with Store(tmp_path / "hub") as store:
        repo = store.create("demo/m")
        commit_folder(store, repo, folder, "first", link=link, lfs_over=200_000)
        blob = repo.blobs.path(repo.resolve("main").files["model.safetensors"])
        assert blob.samefile(folder / "model.safetensors") is link
        assert blob.read_bytes() == (folder / "model.safetensors").read_bytes()


def test_seeding_an_empty_folder(tmp_path: Path) -> None:
    with Store(tmp_path / "hub") as store, pytest.raises(BuildError, match="nothing to put on the Hub"):
        seed(store, tmp_path / "none")


def test_seeding_an_unknown_branch(tmp_path: Path, folder: Path) -> None:
    with Store(tmp_path / "hub") as store, pytest.raises(BuildError, match="no branch 'dev'"):
        commit_folder(store, store.create("demo/m"), folder, "x", revision="dev", lfs_over=1)


def test_everything_is_there_after_a_restart(tmp_path: Path, folder: Path) -> None:
    with Store(tmp_path / "hub") as store:
        head = seed(store, folder).resolve("main")
    leftover = tmp_path / "hub" / "repos" / "demo" / "m" / "blobs" / "uploads" / "half"
    leftover.write_bytes(b"an upload that a kill left behind")
    with Store(tmp_path / "hub") as store:
        assert store.ids() == ["demo/m"]
        assert store.get("demo/m").resolve("main") == head
        assert not leftover.exists()


def test_a_folder_has_one_hub(tmp_path: Path) -> None:
    other = HubServer(tmp_path / "hub")
    with Store(tmp_path / "hub"), pytest.raises(BuildError, match="another Hub already uses this folder"):
        other.__enter__()
    with Store(tmp_path / "hub"):
        pass


def test_a_failed_change_leaves_the_state(tmp_path: Path) -> None:
    with Store(tmp_path / "hub") as store:
        repo = store.create("demo/m")
        with pytest.raises(HubError, match="already exists"), repo.change():
            repo.new_ref("heads", "dev", repo.resolve("main").id)
            repo.new_ref("heads", "dev", repo.resolve("main").id)
        assert list(repo.refs()) == ["refs/heads/main"]
