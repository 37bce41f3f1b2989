"""Xet storage: the addresses that hf_xet uploads to, and files put together again from chunks.

A client cuts files into chunks, sends them in bundles (xorbs) and then a list (shard) that says which chunks make up
which file. A file counts once its chunks are here and their bytes have the sha256 that the list says; from then on it
is stored as any other large file. Nothing is downloaded by Xet from here.
"""

from __future__ import annotations

import hashlib
import re
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lz4.frame
import numpy as np
from starlette.responses import JSONResponse, Response

from demo.hub.call import Call, Route
from demo.hub.errors import HubError
from demo.hub.store import Repo

TOKEN_SECONDS = 3600

ROW = 48
"""Bytes of each row of a shard, its header included."""

VERIFIED, WITH_SHA256 = 1 << 31, 1 << 30
"""Flags of a file in a shard: a row follows for each of its pieces, and one with its sha256."""

END = b"\xff" * 32
"""What stands in place of a hash at the end of a shard's files."""

NO_XET = "This Hub has no Xet storage: set HF_HUB_DISABLE_XET=1 before huggingface_hub is imported"


def _hex(raw: bytes) -> str:
    """A hash as text: four numbers of eight bytes each, the smallest byte first."""
    return "".join(f"{part:016x}" for part in struct.unpack("<4Q", raw))


def files(shard: bytes) -> Iterator[tuple[str, list[tuple[str, int, int]]]]:
    """The files of a shard: sha256, and pieces as (xorb, first chunk, chunk after the last).

    Raises:
        HubError: 400, it is no shard, or a file has no sha256.
    """
    at = ROW
    try:
        while shard[at : at + 32] != END:
            flags, count = struct.unpack_from("<II", shard, at + 32)
            pieces = []
            for number in range(1, count + 1):
                xorb, _, _, first, last = struct.unpack_from("<32s4I", shard, at + ROW * number)
                pieces.append((_hex(xorb), first, last))
            at += ROW * (1 + count * (2 if flags & VERIFIED else 1))
            if not flags & WITH_SHA256:
                raise HubError(400, "The shard has a file without a sha256")
            yield _hex(shard[at : at + 32]), pieces
            at += ROW
    except struct.error as error:
        raise HubError(400, "The shard ends early") from error


def chunks(xorb: bytes) -> Iterator[bytes]:
    """The chunks of a bundle, in their order.

    Raises:
        HubError: 400, it is no bundle of chunks.
    """
    at = 0
    while at < len(xorb) and not xorb.startswith(b"XETBLOB", at):
        head = xorb[at : at + 8]
        if len(head) < 8 or head[0] != 0:
            raise HubError(400, "The xorb has no chunk where one should begin")
        stored, size = int.from_bytes(head[1:4], "little"), int.from_bytes(head[5:8], "little")
        at += 8 + stored
        chunk = _unpacked(xorb[at - stored : at], head[4], size)
        if len(chunk) != size:
            raise HubError(400, f"A chunk has {len(chunk)} bytes, not {size}")
        yield chunk


def _unpacked(stored: bytes, scheme: int, size: int) -> bytes:
    if scheme == 0:
        return stored
    try:
        data: bytes = lz4.frame.decompress(stored)
    except RuntimeError as error:
        raise HubError(400, "A chunk cannot be unpacked") from error
    if scheme == 1 or len(data) != size:
        return data
    # Bytes 0, 4, 8, ... come first, then 1, 5, 9, ...
    result = np.empty(size, np.uint8)
    groups = np.array_split(np.frombuffer(data, np.uint8), np.cumsum([len(result[start::4]) for start in range(3)]))
    for start, group in enumerate(groups):
        result[start::4] = group
    return result.tobytes()


def token(call: Call) -> Response:
    """GET where to upload to, with a token for it; the right to write was asked for here."""
    if not call.config.xet:
        call.repo("see")
        raise HubError(404, NO_XET)
    create_pr = call.flag("create_pr") or call.params["revision"].startswith("refs/pr/")
    repo = call.repo("discuss" if create_pr else "write")
    address, secret = f"{call.endpoint}/xet/{repo.id}", call.xet_token(repo.id)
    until = int(time.time()) + TOKEN_SECONDS
    headers = {
        "X-Xet-Cas-Url": address,
        "X-Xet-Access-Token": secret,
        "X-Xet-Token-Expiration": str(until),
    }
    return JSONResponse({"casUrl": address, "accessToken": secret, "exp": until}, headers=headers)


def _repo(call: Call) -> Repo:
    """The repository of an upload, whose token was given for it."""
    repo = call.store.get(f"{call.params['owner']}/{call.params['name']}")
    if call.request.headers.get("authorization") != f"Bearer {call.xet_token(repo.id)}":
        raise HubError(401, "The token of this upload is not valid")
    return repo


def _path(repo: Repo, xorb: str) -> Path:
    if not re.fullmatch("[0-9a-f]{64}", xorb):
        raise HubError(400, f"Not the hash of a xorb: {xorb!r}")
    return repo.blobs.root / "xorbs" / xorb


def put_xorb(call: Call) -> Response:
    """POST a bundle of chunks."""
    repo = _repo(call)
    path = _path(repo, call.params["xorb"])
    for _ in chunks(call.body):
        pass
    new = not path.exists()
    if new:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = repo.blobs.temporary()
        temporary.write_bytes(call.body)
        temporary.replace(path)
    return JSONResponse({"was_inserted": new})


def put_shard(call: Call) -> Response:
    """POST the list of files; each is put together, and stored where its bytes are what the list says."""
    repo = _repo(call)
    for sha256, pieces in files(call.body):
        if repo.blobs.lfs_size(sha256) is None:
            _assemble(repo, sha256, pieces)
    return JSONResponse({"result": 1})


def _assemble(repo: Repo, sha256: str, pieces: list[tuple[str, int, int]]) -> None:
    temporary, digest = repo.blobs.temporary(), hashlib.sha256()
    try:
        with temporary.open("wb") as stream:
            for xorb, first, last in pieces:
                path = _path(repo, xorb)
                if not path.is_file():
                    raise HubError(400, f"The shard names a xorb that is not here: {xorb}")
                for chunk in list(chunks(path.read_bytes()))[first:last]:
                    stream.write(chunk)
                    digest.update(chunk)
        if digest.hexdigest() != sha256:
            raise HubError(400, f"The chunks have sha256 {digest.hexdigest()}, {sha256} was announced")
        repo.blobs.add_upload(temporary, sha256)
    finally:
        temporary.unlink(missing_ok=True)


def unknown(call: Call) -> Response:
    """GET where a chunk is known from: nowhere, so that the client sends it."""
    _repo(call)
    raise HubError(404, "This chunk is not known")


_MODEL = "/api/models/{owner}/{name}"
_CAS = "/xet/{owner}/{name}"
ROUTES: list[Any] = [
    Route("GET", f"{_MODEL}/xet-read-token/{{revision}}", token),
    Route("GET", f"{_MODEL}/xet-write-token/{{revision}}", token),
    Route("GET", f"{_CAS}/v1/chunks/default/{{chunk}}", unknown),
    Route("POST", f"{_CAS}/v1/xorbs/default/{{xorb}}", put_xorb),
    Route("POST", f"{_CAS}/v1/shards", put_shard),
]
