"""The toolchain's cache: where it lies, locks and checked folders."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from scripts import locks
from scripts.core import PART, BuildError, say, sha256_file, writing

_SKIPPED = {"__pycache__", ".git"}


def cache_root() -> Path:
    """``$DFLASH_CACHE``, else ``$XDG_CACHE_HOME/dflash-drafts``, else ``~/.cache/dflash-drafts``."""
    if own := os.environ.get("DFLASH_CACHE"):
        return Path(own).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).expanduser() if base else Path.home() / ".cache").absolute() / "dflash-drafts"


@contextlib.contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold a file lock; says so once when another process holds it.

    Raises:
        BuildError: the lock file cannot be written.
    """
    with contextlib.ExitStack() as stack:
        try:
            with writing(path):
                stack.enter_context(locks.hold(path, lambda: say(f"waiting: another process is at work on {what}")))
        except OSError as error:
            raise BuildError(f"cannot write to the cache: {error.strerror}", path.parent, "set DFLASH_CACHE") from error
        yield


@contextlib.contextmanager
def fresh_folder(destination: Path) -> Iterator[Path]:
    """Yield an empty folder beside ``destination``; it takes its place on success and goes on any failure.

    Only under the lock of ``destination``: what a killed process left of an earlier try goes too.
    """
    with writing(destination):
        destination.parent.mkdir(parents=True, exist_ok=True)
        for left in destination.parent.glob(f".{glob.escape(destination.name)}.*{PART}"):
            shutil.rmtree(left, ignore_errors=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", suffix=PART, dir=destination.parent))
        try:
            new = temporary / "new"
            new.mkdir()
            yield new
            if destination.exists():
                destination.rename(temporary / "old")
            new.rename(destination)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def point(link: Path, target: Path) -> None:
    """Make ``link`` a symbolic link to ``target``, replacing another link in one step.

    Raises:
        BuildError: something that is no link is in the way.
    """
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.exists() and not link.is_symlink():
        raise BuildError("a file or folder is in the way of a link", link, "remove it and run again")
    temporary = link.with_name(f".{link.name}.{os.getpid()}.part")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(link)


def tree_sha256(root: Path, parts: Sequence[str] = (".",)) -> str:
    """One sha256 over names and contents of all files of ``parts`` of a folder.

    ``.git`` and ``__pycache__`` are left out: they change without the sources changing.
    """
    result = hashlib.sha256()
    for path in sorted(file for part in parts for file in _files(root / part)):
        content = f"-> {path.readlink()}" if path.is_symlink() else sha256_file(path)
        result.update(f"{path.relative_to(root).as_posix()}\0{content}\n".encode())
    return result.hexdigest()


def _files(path: Path) -> Iterator[Path]:
    if path.is_symlink() or path.is_file():
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        yield from (Path(folder) / name for name in (*names, *links) if name not in _SKIPPED)
