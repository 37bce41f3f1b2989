"""The two models that the doctor looks at: which file is meant, and its header, from the Hub or from this machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts import gguf_remote, gguf_resolve, hub, lock
from scripts.core import BuildError
from scripts.fit import EMBEDDING
from scripts.gguf_remote import HubGgufs
from scripts.verify_gguf import GgufHeader, GgufTensor, open_gguf

_REPO = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^:@]+))?(?::(?P<pick>[^:]+))?")
FORM = "write REPO, REPO:QUANT, REPO:FILE.gguf, REPO@REVISION:QUANT, or the path of a file or folder"
OTHER = "name another file, or have it published again"

Choose = Callable[[Sequence[str], str | None], str | None]
"""Gives the file that llama.cpp would take of a listing for a quant, None where there is none."""


@dataclass(frozen=True)
class Place:
    """Where a model is to be looked for: a repository at a revision or a path, and which file or quant of it."""

    repo: str | None = None
    revision: str = "main"
    path: Path | None = None
    pick: str | None = None

    @property
    def quant(self) -> str | None:
        """The quant asked for, where no file is."""
        return None if self.file else self.pick

    @property
    def file(self) -> str | None:
        """The file asked for, where one is."""
        return self.pick if self.pick and self.pick.endswith(".gguf") else None


@dataclass(frozen=True)
class Model:
    """One of the two models.

    Attributes:
        place: what was asked for.
        where: address or path of its first file, for messages.
        listing: all files beside it: of the repository, or of the folder on this machine.
        files: its own files in order, as the listing has them; more than one of a split model.
        values: metadata of its first file.
        tensors: its tensors, of all files that were opened.
        bytes: size of its files.
        bytes_read: what was read of them.
        requests: requests made to the Hub.
        commit: the commit that was looked at, on the Hub.
    """

    place: Place
    where: str
    listing: Sequence[str]
    files: Sequence[str]
    values: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]
    bytes: int
    bytes_read: int
    requests: int
    commit: str | None

    @property
    def architecture(self) -> Any:
        """``general.architecture``, whatever it is."""
        return self.values.get("general.architecture")


def parse(text: str) -> Place:
    """Read ``REPO[@REVISION][:FILE or QUANT]`` or a path; what exists on this machine is a path.

    Raises:
        BuildError: it is neither.
    """
    whole = Path(text).expanduser()
    if whole.is_file():
        return Place(path=whole.parent, pick=whole.name)
    if whole.is_dir():
        return Place(path=whole)
    folder, _, pick = text.rpartition(":")
    if folder and Path(folder).expanduser().is_dir():
        return Place(path=Path(folder).expanduser(), pick=pick)
    if text.startswith(("/", "./", "../", "~")):
        raise BuildError("no such file or folder", text, FORM)
    match = _REPO.fullmatch(text)
    if match is None:
        raise BuildError(f"{text!r} names no model", "the command line", FORM)
    return Place(match["repo"], match["revision"] or "main", None, match["pick"])


def read(text: str, choose: Choose, *, all_tensors: bool) -> Model:
    """Find a model and read its header.

    Args:
        text: as :func:`parse` takes it.
        choose: llama.cpp's choice.
        all_tensors: whether every part of a split model is opened, or only as many as it takes to the embedding.

    Raises:
        BuildError: there is no such file, it is no whole GGUF, or the Hub said no.
    """
    place = parse(text)
    return (_on_hub if place.repo else _on_disk)(place, choose, all_tensors)


def _on_hub(place: Place, choose: Choose, all_tensors: bool) -> Model:
    repo = str(place.repo)
    entry = lock.resolve(repo, place.revision)
    commit = entry["commit"]
    known = {file["path"]: file for file in entry["files"]}
    files = _files(place, list(known), choose, f"{hub.page(repo)}/tree/{commit}")
    source = HubGgufs(repo, commit, OTHER)
    headers = list(_headers(files, lambda path: source.header(known[path]), all_tensors))
    return Model(
        place=place,
        where=f"{hub.page(repo)}/blob/{commit}/{files[0]}",
        listing=list(known),
        files=files,
        values=headers[0].values,
        tensors={name: tensor for header in headers for name, tensor in header.tensors.items()},
        bytes=sum(known[path]["size"] for path in files),
        bytes_read=source.bytes_read,
        requests=source.requests + 1,  # the listing
        commit=commit,
    )


def _on_disk(place: Place, choose: Choose, all_tensors: bool) -> Model:
    folder = place.path or Path()
    listing = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.gguf"))
    files = _files(place, listing, choose, str(folder))

    def header(path: str) -> GgufHeader:
        try:
            return open_gguf(folder / path)
        except BuildError as error:
            raise BuildError(error.what, error.where, OTHER) from error

    headers = list(_headers(files, header, all_tensors))
    return Model(
        place=place,
        where=str(folder / files[0]),
        listing=listing,
        files=files,
        values=headers[0].values,
        tensors={name: tensor for one in headers for name, tensor in one.tensors.items()},
        bytes=sum((folder / path).stat().st_size for path in files),
        bytes_read=sum(one.data_start for one in headers),
        requests=0,
        commit=None,
    )


def _files(place: Place, listing: Sequence[str], choose: Choose, where: str) -> list[str]:
    """The files of the model that is meant, all parts of a split one.

    A file that llama.cpp does not find under a quant is still looked at where its name has the quant in it.
    """
    ggufs = [path for path in listing if path.endswith(".gguf")]
    if not ggufs:
        raise BuildError("there is no GGUF", where, "name a repository or folder that holds some")
    if place.file:
        if place.file not in listing:
            raise BuildError(f"there is no {place.file}", where, f"use one of: {', '.join(ggufs)}")
        return _parts(place.file, listing, where)
    chosen = choose(listing, place.quant) or _like(ggufs, place.quant)
    if chosen is None:
        raise BuildError(f"llama.cpp finds no GGUF of quant {place.quant}", where, f"use one of: {', '.join(ggufs)}")
    return _parts(chosen, listing, where)


def _parts(path: str, listing: Sequence[str], where: str) -> list[str]:
    try:
        return gguf_remote.parts(path, listing, where)
    except BuildError as error:
        raise BuildError(error.what, error.where, OTHER) from error


def _like(ggufs: Sequence[str], quant: str | None) -> str | None:
    return next((path for path in ggufs if (quant or "").upper() in path.upper()), None)


def _headers(files: Sequence[str], header: Callable[[str], GgufHeader], all_tensors: bool) -> Iterator[GgufHeader]:
    for path in files:
        one = header(path)
        yield one
        if not all_tensors and EMBEDDING in one.tensors:
            return


def draft_file(listing: Sequence[str], quant: str | None) -> str | None:
    """What llama.cpp takes as a draft."""
    found = gguf_resolve.draft(listing, quant)
    return found.path if found else None
