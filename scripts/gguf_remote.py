"""Read the header of a GGUF on the Hub: a few megabytes of a file of many gigabytes, and which file a quant is.

The file's first bytes are asked for in growing pieces with HTTP Range requests at the locked commit, until metadata and
tensor table are there. What is read is not covered by a checksum: that would take the whole file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from huggingface_hub import constants, hf_hub_url
from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status  # type: ignore[attr-defined]

from scripts import hub, resolve
from scripts.core import BuildError, human
from scripts.verify_gguf import GgufHeader, read_header

FIRST, LARGEST = 1 << 20, 4 << 20
"""Bytes of the first piece and of the largest; each piece is twice the one before."""

MOST = 64 << 20
"""Most bytes that are read of one file; a vocabulary of 250,000 tokens with its merges takes 11 MB."""

OTHER_FILE = "name another quant or repository of the target in target_gguf"


def parts(path: str, paths: Iterable[str], where: str) -> list[str]:
    """All files of the model that ``path`` is the first file of, in order.

    Raises:
        BuildError: a part is not among ``paths``.
    """
    stem, _, count = resolve.split(path)
    if count <= 1:
        return [path]
    found = {resolve.split(other)[1]: other for other in paths if resolve.split(other)[::2] == (stem, count)}
    if missing := [number for number in range(1, count + 1) if number not in found]:
        raise BuildError(f"part {missing[0]} of {count} of {stem}.gguf is missing", where, OTHER_FILE)
    return [found[number] for number in range(1, count + 1)]


def choose(paths: Sequence[str], quant: str, where: str) -> list[str]:
    """The files that llama.cpp serves for ``-hf <repository>:<quant>``, all parts of a split model.

    Raises:
        BuildError: there is no model, none of this quant, or a part of it is missing.
    """
    models = resolve.models(paths)
    if not models:
        raise BuildError("no GGUF of a model in the repository of target_gguf", where, "name one that holds some")
    if path := resolve.best_model(paths, quant):
        return parts(path, paths, where)
    known = ", ".join(dict.fromkeys(resolve.label(path) for path in models))
    raise BuildError(f"target_gguf has no quant {quant}", where, f"use one of: {known}")


class HubGgufs:
    """GGUF headers of one locked repository; counts the requests made and the bytes of the bodies taken.

    ``do`` is what to do about a file that is no whole GGUF, for messages.
    """

    def __init__(self, repo: str, commit: str, do: str = OTHER_FILE) -> None:
        self.repo, self.commit, self.do = repo, commit, do
        self.bytes_read = self.requests = 0

    def header(self, file: Mapping[str, Any]) -> GgufHeader:
        """Read one file's header; ``file`` is its entry of the lock ({path, size, ...}).

        Raises:
            BuildError: the Hub says no, does not answer with the range asked for, or the file is no whole GGUF.
        """
        path, size = file["path"], file["size"]
        where = f"{hub.page(self.repo)}/blob/{self.commit}/{path}"
        have = bytearray()

        def more(end: int) -> bytearray:
            if end > MOST:
                raise BuildError(f"the GGUF's metadata runs over {human(MOST)}", where, self.do)
            while len(have) < end:
                piece = min(len(have) + FIRST, LARGEST)
                have.extend(self._range(path, len(have), min(len(have) + piece, size), size))
            return have

        return read_header(where, size, more, self.do)

    def _range(self, path: str, begin: int, end: int, size: int) -> bytes:
        """The bytes from ``begin`` up to ``end`` of a file of ``size`` bytes."""
        with hub.explained(self.repo, f"file {path} at {self.commit}"):
            body: bytes = hub.persistent()(self._get, path, begin, end, size)
        return body

    def _get(self, path: str, begin: int, end: int, size: int) -> bytes:
        url = hf_hub_url(self.repo, path, revision=self.commit)
        # Compressed, a range would be one of other bytes.
        asked = {"Range": f"bytes={begin}-{end - 1}", "Accept-Encoding": "identity"}
        headers = build_hf_headers(library_name=hub.LIBRARY, headers=asked)
        self.requests += 1
        body = bytearray()
        # Nothing of the body has been taken before the headers are known to be right.
        with get_session().stream("GET", url, headers=headers, timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT) as answer:
            hf_raise_for_status(answer)
            given = answer.headers.get("Content-Range")
            if given != f"bytes {begin}-{end - 1}/{size}":
                what = f"with {given}" if given else f"{answer.status_code} and the whole file"
                raise BuildError(
                    f"the Hub answers {what} where bytes {begin}-{end - 1} of {size} of {path} were asked for",
                    hub.page(self.repo),
                    "use a Hub or mirror that serves ranges, or a file on this machine",
                )
            for piece in answer.iter_raw():
                self.bytes_read += len(piece)
                body += piece
                if len(body) > end - begin:
                    break
        if len(body) != end - begin:
            raise OSError(f"{hub.SHORT}: {path} should be of size {end - begin} but has size {len(body)}")
        return bytes(body)
