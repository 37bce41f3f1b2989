"""Git LFS: the batch call, the addresses contents are put to, and their verification.

Contents go to a temporary file as they arrive and are hashed on the way; only a file with the announced sha256 and
size gets the name by which a commit can point to it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from demo.hub.call import Call, Route, quoted
from demo.hub.errors import HubError
from demo.hub.objects import SHA256
from demo.hub.store import Repo
from scripts.core import sha256_file

MEDIA_TYPE = "application/vnd.git-lfs+json"
MAX_PARTS = 10_000


@dataclass
class PartsUpload:
    """A multipart upload under way: all parts in one file at their offsets, and the sha256 of each part so far."""

    sha256: str
    size: int
    part_size: int
    path: Path
    parts: dict[int, str] = field(default_factory=dict)


def batch(call: Call) -> Response:
    """POST objects; the answer says where each is put (in one piece or in parts) or that it is here already."""
    body = call.json()
    operation, objects = body.get("operation"), body.get("objects")
    if operation not in ("upload", "download") or not isinstance(objects, list):
        raise HubError(422, "The batch must be an upload or a download with a list of objects")
    repo = call.repo("discuss" if operation == "upload" else "files")
    ref = body.get("ref")
    if operation == "upload" and isinstance(ref, dict) and not str(ref.get("name", "")).startswith("refs/pr/"):
        call.check_writer(repo.owner)
        repo.resolve(str(ref.get("name", "")).removeprefix("refs/heads/"))
    transfers = body.get("transfers") or ["basic"]
    answers = []
    for item in objects:
        oid, size = item.get("oid"), item.get("size")
        if not isinstance(oid, str) or not SHA256.fullmatch(oid) or not isinstance(size, int) or size <= 0:
            raise HubError(422, f"Not an LFS object: {item!r}"[:200])
        answer: dict[str, Any] = {"oid": oid, "size": size, "authenticated": True}
        stored = repo.blobs.lfs_size(oid)
        if stored is not None and stored != size:
            answer["error"] = {"code": 422, "message": f"The object has {stored} bytes, not {size}"}
        elif operation == "download":
            answer.update(_download(call, repo, oid, stored))
        elif stored is None:
            answer["actions"] = _upload_actions(call, repo, oid, size, "multipart" in transfers)
        answers.append(answer)
    if operation == "upload":
        _check_room(repo, answers, call.config.storage)
    transfer = "multipart" if any("chunk_size" in str(answer.get("actions")) for answer in answers) else "basic"
    return JSONResponse({"transfer": transfer, "objects": answers, "hash_algo": "sha256"}, media_type=MEDIA_TYPE)


def _check_room(repo: Repo, answers: list[dict[str, Any]], most: int) -> None:
    """Refuse new objects that the storage has no room for, in the words of the Hub."""
    new = {answer["oid"]: answer["size"] for answer in answers if "actions" in answer}
    if repo.blobs.lfs_total() + sum(new.values()) > most:
        raise HubError(
            403,
            "Private repository storage limit reached, please upgrade your plan to increase your private storage limit",
        )


def _download(call: Call, repo: Repo, oid: str, stored: int | None) -> dict[str, Any]:
    for commit_id in set(repo.refs().values()):
        commit = repo.history.get(commit_id)
        for path, entry in commit.files.items():
            if entry.sha256 == oid and stored is not None:
                return {
                    "actions": {
                        "download": {"href": call.sign(f"/cdn/{repo.id}/{commit.id}/{quoted(path)}", sha256=oid)}
                    }
                }
    return {"error": {"code": 404, "message": "Object does not exist"}}


def _upload_actions(call: Call, repo: Repo, oid: str, size: int, multipart: bool) -> dict[str, Any]:
    base = f"/lfs/{repo.id}"
    verify = {"href": f"{call.endpoint}/{repo.id}.git/info/lfs/objects/verify"}
    if not multipart or size <= call.config.multipart_over:
        return {"upload": {"href": call.sign(f"{base}/{oid}", size=size)}, "verify": verify}
    part_size = call.config.part_size
    count = -(-size // part_size)
    if count > MAX_PARTS:
        raise HubError(422, f"An upload of {size} bytes would need more than {MAX_PARTS} parts")
    upload = secrets.token_hex(16)
    call.services.uploads[upload] = PartsUpload(oid, size, part_size, repo.blobs.temporary())
    header = {f"{part:05d}": call.sign(f"{base}/parts/{upload}/{part}") for part in range(1, count + 1)}
    header["chunk_size"] = str(part_size)
    return {"upload": {"href": call.sign(f"{base}/complete/{upload}"), "header": header}, "verify": verify}


async def _receive(call: Call, path: Path, offset: int, most: int) -> tuple[str, int]:
    """Write the request's body into a file from ``offset`` on; its sha256 and size in bytes.

    Raises:
        HubError: 400, it is longer than ``most`` bytes.
    """
    digest, size = hashlib.sha256(), 0
    with path.open("r+b") as stream:
        stream.seek(offset)
        async for chunk in call.request.stream():
            size += len(chunk)
            call.entry.received += len(chunk)
            if size > most:
                raise HubError(400, f"The upload is longer than the {most} bytes announced")
            digest.update(chunk)
            stream.write(chunk)
    return digest.hexdigest(), size


def _signed_repo(call: Call) -> Repo:
    """The repository of a signed address: who may write was asked when it was signed."""
    return call.store.get(f"{call.params['owner']}/{call.params['name']}")


async def put(call: Call) -> Response:
    """PUT an object in one piece."""
    oid, size = call.params["oid"], int(call.check_signature()["size"])
    blobs = _signed_repo(call).blobs
    temporary = blobs.temporary()
    try:
        sha256, received = await _receive(call, temporary, 0, size)
        _check(oid, size, sha256, received)
        blobs.add_upload(temporary, oid)
    finally:
        temporary.unlink(missing_ok=True)
    return Response(status_code=200, headers={"ETag": f'"{sha256}"'})


def _check(oid: str, size: int, sha256: str, received: int) -> None:
    if received != size:
        raise HubError(400, f"The upload has {received} bytes, {size} were announced")
    if sha256 != oid:
        raise HubError(400, f"The upload has sha256 {sha256}, {oid} was announced")


def _parts(call: Call) -> PartsUpload:
    call.check_signature()
    upload: PartsUpload | None = call.services.uploads.get(call.params["upload"])
    if upload is None:
        raise HubError(404, "This upload is not known (it ended, or the server was started again)")
    return upload


async def put_part(call: Call) -> Response:
    """PUT a part of an object; its ETag is what the completion must name."""
    upload, part = _parts(call), int(call.params["part"])
    offset = (part - 1) * upload.part_size
    expected = min(upload.part_size, upload.size - offset)
    sha256, received = await _receive(call, upload.path, offset, expected)
    if received != expected:
        raise HubError(400, f"Part {part} has {received} bytes, {expected} were expected")
    upload.parts[part] = sha256
    return Response(status_code=200, headers={"ETag": f'"{sha256}"'})


async def complete(call: Call) -> Response:
    """POST that all parts are here; the object is hashed as a whole before it counts."""
    async for chunk in call.request.stream():
        call.body += chunk
        if len(call.body) > call.config.max_body:
            raise HubError(413, "The completion is too long")
    upload, body = _parts(call), call.json()
    named = {item.get("partNumber"): str(item.get("etag")).strip('"') for item in body.get("parts") or []}
    if body.get("oid") != upload.sha256 or named != upload.parts:
        raise HubError(400, "The completion names other parts than were received")
    received = sum(min(upload.part_size, upload.size - (part - 1) * upload.part_size) for part in upload.parts)
    sha256 = await run_in_threadpool(sha256_file, upload.path)
    _check(upload.sha256, upload.size, sha256, received)
    _signed_repo(call).blobs.add_upload(upload.path, upload.sha256)
    del call.services.uploads[call.params["upload"]]
    return JSONResponse({}, media_type=MEDIA_TYPE)


def verify(call: Call) -> Response:
    """POST an oid and a size to learn whether the object is here."""
    repo, body = call.repo("discuss"), call.json()
    size = repo.blobs.lfs_size(str(body.get("oid")))
    if size is None or size != body.get("size"):
        raise HubError(404, "The object is not here" if size is None else f"The object has {size} bytes")
    return JSONResponse({}, media_type=MEDIA_TYPE)


def discard_uploads(uploads: dict[str, Any]) -> None:
    """Remove the files of multipart uploads that never ended."""
    for upload in uploads.values():
        if os.path.lexists(upload.path):
            upload.path.unlink()
    uploads.clear()


ROUTES = [
    Route("POST", "/{owner}/{name}.git/info/lfs/objects/batch", batch),
    Route("POST", "/{owner}/{name}.git/info/lfs/objects/verify", verify),
    Route("PUT", "/lfs/{owner}/{name}/{oid}", stream=put),
    Route("PUT", "/lfs/{owner}/{name}/parts/{upload}/{part}", stream=put_part),
    Route("POST", "/lfs/{owner}/{name}/complete/{upload}", stream=complete),
]
