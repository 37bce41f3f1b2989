"""The source step: a package index with faults, a git repository, a folder of the user's."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import re
import socket
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts import toolchain_download
from scripts.core import BuildError
from scripts.toolchain import fetch_source, parse_spec, toolchain_id
from scripts.toolchain_source import public_url
from tests.toolchain.fakes import CHANGELOG, COMMIT, TINY, VERSION, Index, git, pypi, repository, sdist, serve

DFLASH_FILE = "conversion/__init__.py"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(toolchain_download, "WAIT", 0.0)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    with serve(Index(sdist())) as running:
        monkeypatch.setenv("PIP_INDEX_URL", running.url)
        yield running


def fetch(value: dict[str, Any], out: Path) -> dict[str, Any]:
    fetch_source(parse_spec(value), out)
    written: dict[str, Any] = json.loads((out / "source.json").read_text())
    assert written["ok"] is True
    return written


def refused(value: dict[str, Any], out: Path) -> str:
    with pytest.raises(BuildError) as caught:
        fetch_source(parse_spec(value), out)
    assert "\n" not in str(caught.value)
    assert not (out / "source.json").exists()
    return str(caught.value)


def assert_portable(report: dict[str, Any], tmp_path: Path) -> None:
    """No absolute path, user or machine name is in a report."""
    text = json.dumps(report)
    assert not re.search(r'["= ]/\w', text), text
    for private in (str(tmp_path), str(Path.home()), socket.gethostname(), f"/{getpass.getuser()}/"):
        assert private not in text


def archives(cache: Path) -> list[str]:
    return [path.name for path in (cache / "archives").iterdir() if path.suffix != ".lock"]


def test_an_index_is_followed(index: Index, tmp_path: Path, cache: Path) -> None:
    value = pypi(index.content)
    report = fetch(value, tmp_path / "out")
    tree = tmp_path / "out" / "llama.cpp"
    assert tree.is_symlink()
    assert (tree / "convert_hf_to_gguf.py").read_bytes() == (TINY / "convert_hf_to_gguf.py").read_bytes()
    assert not (tree / ".git").exists()
    assert report["id"] == toolchain_id(parse_spec(value))
    expected = {"source": "pypi", "version": VERSION, "commit": COMMIT, "archive_sha256": value["sha256"]}
    assert report.items() >= expected.items()
    assert index.accept == ["application/vnd.pypi.simple.v1+json"]
    assert_portable(report, tmp_path)
    assert not list((cache / "sources").glob(".*.part"))


def test_the_cache_needs_no_network(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = fetch(pypi(index.content), tmp_path / "a")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    assert fetch(pypi(index.content), tmp_path / "b") == first


def test_a_damaged_cached_tree_is_unpacked_again(
    index: Index, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    first = fetch(pypi(index.content), out)
    (out / "llama.cpp" / "__pycache__").mkdir()
    (out / "llama.cpp" / "__pycache__" / "convert.pyc").write_bytes(b"x")
    fetch(pypi(index.content), out)
    assert "was changed" not in capsys.readouterr().err
    (out / "llama.cpp" / "convert_hf_to_gguf.py").write_text("broken")
    assert fetch(pypi(index.content), out) == first
    assert "the cached source of llama-cpp-python 9.9.9 was changed: getting it again" in capsys.readouterr().err


def test_a_dropped_connection_is_resumed(index: Index, tmp_path: Path) -> None:
    index.content = sdist(extra={f"llama_cpp_python-{VERSION}/pad": os.urandom(5000)})
    index.drop_after = [1000, 500]
    fetch(pypi(index.content), tmp_path / "out")
    ranges = [wanted for path, wanted in index.asked if path.startswith("/files/")]
    assert ranges == [None, "bytes=1000-", "bytes=1500-"]


def test_an_interrupted_download_goes_on(index: Index, tmp_path: Path, cache: Path) -> None:
    value = pypi(index.content)
    part = cache / "archives" / f"llama-cpp-python-{VERSION}-{value['sha256'][:16]}.tar.gz.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(index.content[:700])
    fetch(value, tmp_path / "out")
    assert index.asked[-1][1] == "bytes=700-"
    assert archives(cache) == [part.name.removesuffix(".part")]


def test_a_complete_part_is_only_checked(index: Index, tmp_path: Path, cache: Path) -> None:
    value = pypi(index.content)
    part = cache / "archives" / f"llama-cpp-python-{VERSION}-{value['sha256'][:16]}.tar.gz.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(index.content)
    fetch(value, tmp_path / "out")
    assert index.asked[-1][1] == f"bytes={len(index.content)}-"


def test_a_wrong_part_is_thrown_away(index: Index, tmp_path: Path, cache: Path) -> None:
    value = pypi(index.content)
    part = cache / "archives" / f"llama-cpp-python-{VERSION}-{value['sha256'][:16]}.tar.gz.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 700)
    fetch(value, tmp_path / "out")
    assert [wanted for _, wanted in index.asked[1:]] == ["bytes=700-", None]


def test_a_server_without_ranges_starts_over(index: Index, tmp_path: Path) -> None:
    index.ranges, index.drop_after = False, [1000]
    fetch(pypi(index.content), tmp_path / "out")


def test_a_busy_server_is_asked_again(index: Index, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index.statuses = [503, 429]
    fetch(pypi(index.content), tmp_path / "out")
    assert "connection to 127.0.0.1 failed (HTTP 503): trying again" in capsys.readouterr().err


def test_a_dead_server_is_given_up(index: Index, tmp_path: Path) -> None:
    index.drop_after = [0] * 99
    assert "no download after 5 tries" in refused(pypi(index.content), tmp_path / "out")
    assert len(index.drop_after) == 99 - 5


def test_no_server_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:secret@127.0.0.1:9/simple")
    message = refused(pypi(b""), tmp_path / "out")
    assert "no download after 5 tries" in message
    assert "secret" not in message


def test_a_wrong_sha256_is_told_with_both_values(index: Index, tmp_path: Path, cache: Path) -> None:
    message = refused(pypi(index.content, sha256="0" * 64), tmp_path / "out")
    found = hashlib.sha256(index.content).hexdigest()
    assert f"sha256 of llama-cpp-python 9.9.9 is {found}, the config says {'0' * 64}" in message
    assert archives(cache) == []
    assert not (tmp_path / "out").exists()


def test_a_wrong_sha256_is_told_before_the_download(index: Index, tmp_path: Path) -> None:
    index.hashes = {"sha256": hashlib.sha256(index.content).hexdigest()}
    message = refused(pypi(index.content, sha256="0" * 64), tmp_path / "out")
    assert f"is {index.hashes['sha256']}, the config says {'0' * 64}" in message
    assert [path for path, _ in index.asked] == ["/simple/llama-cpp-python/"]


def test_a_version_that_is_not_there(index: Index, tmp_path: Path) -> None:
    message = refused(pypi(index.content, version="9.9.7"), tmp_path / "out")
    assert "llama-cpp-python 9.9.7 has no source distribution here" in message


def test_a_package_that_is_not_there(index: Index, tmp_path: Path) -> None:
    assert "no package llama-cpp-pyton" in refused(pypi(b"", package="llama-cpp-pyton"), tmp_path / "out")


def test_an_index_that_forbids(index: Index, tmp_path: Path) -> None:
    index.statuses = [403]
    assert "HTTP 403 (127.0.0.1): check the package index" in refused(pypi(b""), tmp_path / "out")


def test_an_index_without_json(index: Index, tmp_path: Path) -> None:
    index.listing = b"<html>"
    message = refused(pypi(index.content), tmp_path / "out")
    assert "the package index did not answer with JSON (127.0.0.1)" in message


def test_an_index_that_is_no_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "file:///srv/simple")
    assert "the package index is no http address (PIP_INDEX_URL)" in refused(pypi(b""), tmp_path / "out")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not an archive", "not a tar.gz archive"),
        (sdist()[:-400], "not a tar.gz archive"),
        (sdist(extra={f"llama_cpp_python-{VERSION}/../../evil": b"x"}), "refused to unpack"),
        (sdist(extra={"/../evil": b"x"}), "refused to unpack"),
        (sdist(extra={"other/file": b"x"}), "2 folders at the top, not one"),
        (sdist(changelog="# Changelog\n"), "CHANGELOG.md names no llama.cpp commit under 9.9.9"),
        (sdist(changelog=CHANGELOG.replace(COMMIT, "none")), "names no llama.cpp commit under 9.9.9"),
        (sdist(tree=TINY / "gguf-py"), "convert_hf_to_gguf.py: missing"),
        (sdist(tree=TINY / "no-such-folder"), "no vendor/llama.cpp inside"),
        (
            sdist(extra={f"llama_cpp_python-{VERSION}/vendor/llama.cpp/{DFLASH_FILE}": b""}),
            "the converter does not know DFlashDraftModel (llama-cpp-python 9.9.9): pin llama.cpp with DFlash drafts "
            "(PR #22105) or newer",
        ),
    ],
    ids=["text", "cut", "dotdot", "absolute", "two-roots", "changelog", "no-commit", "no-converter", "no-tree", "old"],
)
def test_an_archive_with_the_right_hash_and_wrong_content(
    index: Index, tmp_path: Path, cache: Path, content: bytes, message: str
) -> None:
    index.content = content
    assert message in refused(pypi(content), tmp_path / "out")
    assert not list(tmp_path.rglob("evil"))
    assert not list((cache / "sources").glob(".*.part"))


def test_a_link_out_of_the_archive_is_refused(index: Index, tmp_path: Path) -> None:
    archive = tmp_path / "links.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        info = tarfile.TarInfo(f"llama_cpp_python-{VERSION}/vendor/llama.cpp/gguf-py")
        info.type, info.linkname = tarfile.SYMTYPE, "../../../../../../etc"
        tar.addfile(info)
    index.content = archive.read_bytes()
    assert "refused to unpack" in refused(pypi(index.content), tmp_path / "out")


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    return repository(tmp_path_factory.mktemp("upstream") / "llama.cpp")


def test_a_git_commit_is_fetched(upstream: tuple[Path, str, str], tmp_path: Path) -> None:
    url, older, _ = upstream
    value = {"source": "git", "url": str(url), "commit": older}
    report = fetch(value, tmp_path / "out")
    assert not (tmp_path / "out" / "llama.cpp" / "NEWS").exists()
    assert report["commit"] == older
    assert report["tree"] == git(url, "rev-parse", f"{older}^{{tree}}")
    assert report["url"] is None
    assert report["id"].startswith(f"git-{older[:12]}-")
    assert_portable(report, tmp_path)
    assert fetch(value | {"url": "/no/such/mirror"}, tmp_path / "again") == report


def test_a_server_that_refuses_a_bare_commit(
    upstream: tuple[Path, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url, older, _ = upstream
    # the first protocol serves advertised commits alone
    for name, text in {"COUNT": "1", "KEY_0": "protocol.version", "VALUE_0": "0"}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", text)
    report = fetch({"source": "git", "url": str(url), "commit": older}, tmp_path / "out")
    assert report["commit"] == older
    assert "fetching the whole history" in capsys.readouterr().err


def test_a_commit_that_is_not_there(upstream: tuple[Path, str, str], tmp_path: Path, cache: Path) -> None:
    message = refused({"source": "git", "url": str(upstream[0]), "commit": "1" * 40}, tmp_path / "out")
    assert f"no commit {'1' * 40} there (llama.cpp)" in message
    assert not list((cache / "sources").glob(".*.part"))


def test_a_tag_object_is_no_commit(upstream: tuple[Path, str, str], tmp_path: Path) -> None:
    url, older, _ = upstream
    git(url, "-c", "user.name=t", "-c", "user.email=t@example.org", "tag", "-a", "-m", "t", "v1", older)
    tag = git(url, "rev-parse", "v1")
    message = refused({"source": "git", "url": str(url), "commit": tag}, tmp_path / "out")
    assert f"got commit {older}, not {tag}" in message


def test_no_repository(tmp_path: Path) -> None:
    value = {"source": "git", "url": str(tmp_path / "nothing"), "commit": "1" * 40}
    assert "git fetch: fatal:" in refused(value, tmp_path / "out")


def test_git_is_missing(upstream: tuple[Path, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    value = {"source": "git", "url": str(upstream[0]), "commit": upstream[1]}
    assert "git is not installed (PATH)" in refused(value, tmp_path / "out")


def test_addresses_lose_their_credentials() -> None:
    assert public_url("https://me:token@example.org:8443/llama.cpp") == "https://example.org:8443/llama.cpp"
    assert public_url("git@example.org:ggml-org/llama.cpp") == "git@example.org:ggml-org/llama.cpp"
    assert public_url("/home/me/llama.cpp") is None
    assert public_url("file:///home/me/llama.cpp") is None


def test_a_checkout_is_used_as_it_is(tmp_path: Path) -> None:
    folder, _, newer = repository(tmp_path / "mine")
    value = {"source": "path", "dir": str(folder)}
    report = fetch(value, tmp_path / "out")
    assert (tmp_path / "out" / "llama.cpp").resolve() == folder
    assert (report["commit"], report["dirty"]) == (newer, False)
    assert_portable(report, tmp_path)
    (folder / "convert_hf_to_gguf.py").write_text("# changed\n")
    changed = fetch(value, tmp_path / "out")
    assert (changed["commit"], changed["dirty"]) == (newer, True)
    assert changed["converter_sha256"] != report["converter_sha256"]


def test_a_folder_inside_another_repository_has_no_commit(tmp_path: Path) -> None:
    folder, _, _ = repository(tmp_path / "outer", {})
    inner = folder / "inner"
    inner.mkdir()
    for name in ("convert_hf_to_gguf.py", "gguf-py", "conversion"):
        (inner / name).symlink_to(TINY / name)
    report = fetch({"source": "path", "dir": str(inner)}, tmp_path / "out")
    assert (report["commit"], report["dirty"]) == (None, None)


def test_a_folder_that_is_no_llama_cpp(tmp_path: Path) -> None:
    assert f"no such folder ({tmp_path / 'x'})" in refused(
        {"source": "path", "dir": str(tmp_path / "x")}, tmp_path / "o"
    )
    message = refused({"source": "path", "dir": str(tmp_path)}, tmp_path / "out")
    assert "convert_hf_to_gguf.py: missing" in message
    assert "give the top folder of a llama.cpp checkout" in message


def test_a_cache_that_cannot_be_written(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path / "file" / "cache"))
    message = refused(pypi(index.content), tmp_path / "out")
    assert message.startswith("cannot write to the cache: Not a directory")
    assert message.endswith("set DFLASH_CACHE")


def test_something_in_the_way_of_the_link(index: Index, tmp_path: Path) -> None:
    (tmp_path / "out" / "llama.cpp").mkdir(parents=True)
    assert "in the way of a link" in refused(pypi(index.content), tmp_path / "out")
