"""The llama.cpp tree a spec names: put in the cache once, checked on every use."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from scripts import process
from scripts.core import BuildError, Progress, Report, read_json, say, write_json
from scripts.toolchain_cache import cache_root, fresh_folder, locked, point, tree_sha256
from scripts.toolchain_download import fetch_archive, unpack
from scripts.toolchain_spec import (
    MINIMUM,
    WHERE,
    GitSpec,
    PathSpec,
    PypiSpec,
    Spec,
    describe,
    source_key,
    toolchain_id,
)

CONVERTER = ("convert_hf_to_gguf.py", "conversion", "gguf-py")
"""What makes up the converter, below the tree."""
ARCHITECTURE = "DFlashDraftModel"
"""The draft's architecture as its config.json names it; a converter that knows it says so."""

_GIT_COUNT = re.compile(r"(Receiving objects|Updating files):\s+\d+% \((\d+)/(\d+)\)")


@dataclass(frozen=True)
class Source:
    """A tree on this machine, the llama.cpp commit it is (if known) and what a report says of it."""

    tree: Path
    commit: str | None
    figures: dict[str, Any]


def fetch_source(spec: Spec, out: Path) -> Report:
    """Put the source tree in the cache and link it as ``out/llama.cpp``; writes ``out/source.json``.

    Figures: id, source, version (of the package), commit, converter_sha256 and what pins the source:
    archive_sha256 (pypi), tree (git's id of it), dirty (path). No paths, times or names of this machine.

    Raises:
        BuildError: the source cannot be had, is not what the config says, or knows no DFlash drafts.
    """
    source = ensure_source(spec)
    report = Report(figures={"id": toolchain_id(spec), **source.figures})
    for name in ("convert_hf_to_gguf.py", "gguf-py/gguf"):
        there = (source.tree / name).exists()
        do = "give the top folder of a llama.cpp checkout" if isinstance(spec, PathSpec) else "pin another version"
        report.require(name, there, "there" if there else "missing", source.tree, do)
    knows = _knows_dflash(source.tree)
    detail = f"the converter {'knows' if knows else 'does not know'} {ARCHITECTURE}"
    report.require("converter", knows, detail, describe(spec), f"pin {MINIMUM} or newer")
    report.figures["converter_sha256"] = tree_sha256(source.tree, CONVERTER)
    point(out / "llama.cpp", source.tree)
    report.write(out / "source.json")
    return report


def _knows_dflash(tree: Path) -> bool:
    files = [tree / CONVERTER[0], *sorted((tree / CONVERTER[1]).glob("*.py"))]
    return any(ARCHITECTURE in file.read_text(encoding="utf-8", errors="replace") for file in files)


def ensure_source(spec: Spec) -> Source:
    """The tree of a spec, fetched when the cache lacks it or holds it damaged.

    Raises:
        BuildError: as :func:`fetch_source`.
    """
    if isinstance(spec, PathSpec):
        return _local(spec)
    folder = cache_root() / "sources" / f"{spec_label(spec)}-{source_key(spec)}"
    tree, stamp = folder / "llama.cpp", folder / "source.json"
    with locked(folder.with_name(f".{folder.name}.lock"), describe(spec)):
        if stamp.is_file():
            known = read_json(stamp)
            if tree_sha256(tree) == known["tree_sha256"]:
                return Source(tree, known["commit"], _figures(spec, known["commit"], known["pinned_by"]))
            say(f"the cached source of {describe(spec)} was changed: getting it again")
        with fresh_folder(folder) as new:
            commit, pinned_by = _fill_pypi(spec, new) if isinstance(spec, PypiSpec) else _fill_git(spec, new)
            record = {"commit": commit, "pinned_by": pinned_by, "tree_sha256": tree_sha256(new / "llama.cpp")}
            write_json(new / stamp.name, record)
    return Source(tree, commit, _figures(spec, commit, pinned_by))


def spec_label(spec: PypiSpec | GitSpec) -> str:
    """The readable start of a cache folder's name."""
    return f"{spec.package}-{spec.version}" if isinstance(spec, PypiSpec) else f"git-{spec.commit[:12]}"


def _figures(spec: PypiSpec | GitSpec, commit: str, pinned_by: dict[str, str]) -> dict[str, Any]:
    if isinstance(spec, PypiSpec):
        return {
            "source": "pypi",
            "package": spec.package,
            "version": spec.version,
            "commit": commit,
            **pinned_by,
        }
    return {"source": "git", "url": public_url(spec.url), "version": None, "commit": commit, **pinned_by}


def public_url(url: str) -> str | None:
    """A repository's address without credentials; None for a path, which means nothing elsewhere."""
    parts = urlsplit(url)
    if parts.scheme in ("http", "https", "ssh", "git") and parts.hostname:
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"
    return url if re.match(r"^[\w.-]+@[\w.-]+:", url) else None


def _fill_pypi(spec: PypiSpec, new: Path) -> tuple[str, dict[str, str]]:
    archive = fetch_archive(spec)
    say(f"unpacking {describe(spec)}")
    root = unpack(archive, new / "unpacked")
    tree = root / "vendor" / "llama.cpp"
    if not tree.is_dir():
        raise BuildError("no vendor/llama.cpp inside", describe(spec), f"correct package in {WHERE}")
    commit = changelog_commit(root / "CHANGELOG.md", spec)
    tree.rename(new / "llama.cpp")
    shutil.rmtree(new / "unpacked")
    return commit, {"archive_sha256": spec.sha256}


def changelog_commit(changelog: Path, spec: PypiSpec) -> str:
    """The llama.cpp commit (short hex) that the changelog names first under the version's heading.

    Raises:
        BuildError: no changelog, no such heading, or no commit under it.
    """
    text = changelog.read_text(encoding="utf-8", errors="replace") if changelog.is_file() else ""
    sections = re.split(r"^## \[?([^\]\s]+)\]?.*$", text, flags=re.MULTILINE)
    section = dict(zip(sections[1::2], sections[2::2], strict=True)).get(spec.version, "")
    found = re.search(r"ggml-org/llama\.cpp@([0-9a-f]{7,40})\b", section)
    if not found:
        what = f"CHANGELOG.md names no llama.cpp commit under {spec.version}"
        raise BuildError(what, describe(spec), "pin a version whose changelog names one")
    return found[1]


def _fill_git(spec: GitSpec, new: Path) -> tuple[str, dict[str, str]]:
    tree = new / "llama.cpp"
    local = Path(spec.url).expanduser()
    url = str(local.absolute()) if local.exists() else spec.url
    where = public_url(spec.url) or local.name
    _git(["init", "--quiet", str(tree)], new, where)
    fetch = ["fetch", "--progress", "--no-tags"]
    try:
        _git([*fetch, "--depth", "1", url, spec.commit], tree, where)
    except BuildError as refused:
        say(f"no single commit from {where} ({refused.what}): fetching the whole history")
        _git([*fetch, url, "+refs/*:refs/remotes/origin/*"], tree, where)
    try:
        _git(["checkout", "--quiet", "--detach", spec.commit], tree, where)
    except BuildError as error:
        raise BuildError(f"no commit {spec.commit} there", where, f"correct url or commit in {WHERE}") from error
    head = _git(["rev-parse", "HEAD"], tree, where)
    if head != spec.commit:
        raise BuildError(f"got commit {head}, not {spec.commit}", where, "give the full hash of a commit, not of a tag")
    return head, {"tree": _git(["rev-parse", "HEAD^{tree}"], tree, where)}


_GIT_SETTINGS = {
    "core.autocrlf": "false",
    "core.hooksPath": os.devnull,
    "http.lowSpeedLimit": "1000",  # bytes/s, for lowSpeedTime seconds: then it counts as dropped
    "http.lowSpeedTime": "60",
}


def _git(arguments: Sequence[str], cwd: Path, where: str) -> str:
    """Run git and return the last line of its output; never asks for a password."""
    settings = [part for key, value in _GIT_SETTINGS.items() for part in ("-c", f"{key}={value}")]
    lines: list[str] = []
    with Progress("fetching llama.cpp", 0, "objects") as progress:

        def on_line(line: str) -> None:
            if counted := _GIT_COUNT.search(line):
                progress.total = int(counted[3])
                progress.set(int(counted[2]))
            else:
                lines.append(line.strip())

        try:
            code, _ = process.stream(["git", *settings, *arguments], on_line, cwd=cwd, env=_git_environment())
        except FileNotFoundError as error:
            raise BuildError("git is not installed", "PATH", "install git or use source: pypi") from error
    if code:
        fatal = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines or ["no message"]
        raise BuildError(f"git {arguments[0]}: {fatal[0]}", where, f"check url and commit in {WHERE} and the network")
    return lines[-1] if lines else ""


def _git_environment() -> dict[str, str]:
    """The environment without variables by which a calling git hook would redirect git to its repository."""
    redirect = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY")
    kept = {key: value for key, value in os.environ.items() if key not in redirect}
    return kept | {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


def _local(spec: PathSpec) -> Source:
    if not spec.dir.is_dir():
        raise BuildError("no such folder", spec.dir, f"correct dir in {WHERE}")
    commit, dirty = _local_commit(spec.dir)
    return Source(spec.dir, commit, {"source": "path", "version": None, "commit": commit, "dirty": dirty})


def _local_commit(folder: Path) -> tuple[str | None, bool | None]:
    """Commit and whether tracked files were changed; None for a folder that is no checkout of its own."""

    def ask(*arguments: str) -> str | None:
        try:
            answer = subprocess.run(
                ["git", *arguments], cwd=folder, env=_git_environment(), capture_output=True, text=True, check=False
            )
        except FileNotFoundError:
            return None
        return answer.stdout.strip() if answer.returncode == 0 else None

    top, head = ask("rev-parse", "--show-toplevel"), ask("rev-parse", "HEAD")
    if top is None or head is None or Path(top) != folder.resolve():
        return None, None
    return head, bool(ask("status", "--porcelain", "--untracked-files=no"))
