"""File contents: regular files here, LFS files by redirect to the other host."""

from __future__ import annotations

from urllib.parse import quote

from starlette.responses import Response

from demo.hub.call import Call, Route, quoted
from demo.hub.errors import HubError
from demo.hub.files import FileAnswer, byte_range
from demo.hub.objects import FileEntry

EXPOSED = "X-Repo-Commit,X-Linked-Etag,X-Linked-Size,ETag,Content-Range,Accept-Ranges"


def _headers(path: str, entry: FileEntry) -> dict[str, str]:
    name = path.rsplit("/", 1)[-1]
    ascii_name = name.encode("ascii", "replace").decode().replace('"', "'").replace("?", "_")
    return {
        "ETag": f'"{entry.etag}"',
        "Content-Disposition": f"inline; filename*=UTF-8''{quote(name)}; filename=\"{ascii_name}\";",
        "Access-Control-Expose-Headers": EXPOSED,
    }


def resolve(call: Call) -> Response:
    """GET or HEAD a file at a revision."""
    repo, path = call.repo("files"), call.params["path"]
    commit, entry = repo.entry(call.params["revision"], path)
    headers = {**_headers(path, entry), "X-Repo-Commit": commit.id}
    range_header = call.request.headers.get("range")
    if entry.sha256 is None:
        if call.request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return FileAnswer(repo.blobs.path(entry), entry.size, range_header, headers)
    address = f"/cdn/{quoted(repo.id)}/{commit.id}/{quoted(path)}"
    headers.update(
        {
            "Location": call.sign(address, sha256=entry.sha256),
            "X-Linked-Etag": f'"{entry.sha256}"',
            "X-Linked-Size": str(entry.size),
            "Accept-Ranges": "bytes",
        }
    )
    byte_range(range_header, entry.size)
    return Response(status_code=302, headers=headers)


def content(call: Call) -> Response:
    """GET or HEAD the content of an LFS file; the signature says that the Hub allowed it."""
    call.check_signature()
    repo = call.store.get(f"{call.params['owner']}/{call.params['name']}")
    path = call.params["path"]
    _, entry = repo.entry(call.params["revision"], path)
    if entry.sha256 is None:
        raise HubError(404, f"{path} is not an LFS file")
    return FileAnswer(repo.blobs.path(entry), entry.size, call.request.headers.get("range"), _headers(path, entry))


ROUTES = [
    Route("GET", "/cdn/{owner}/{name}/{revision}/{path*}", content),
    Route("GET", "/{owner}/{name}/resolve/{revision}/{path*}", resolve),
]
