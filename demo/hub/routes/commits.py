"""Writing: what the server wants to know before an upload, and the commit itself."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, Response

from demo.hub import discussions, operations
from demo.hub.call import Call, Route
from demo.hub.commits import Commit
from demo.hub.errors import HubError, revision_not_found
from demo.hub.objects import check_path, is_ignored, is_lfs
from demo.hub.store import Repo


def preupload(call: Call) -> Response:
    """POST names and sizes; the answer says for each file: LFS or regular, ignored, and the oid that is there now.

    The client compares that oid (sha256 of an LFS file, blob id of another) with its own and leaves out what has not
    changed.
    """
    repo = call.repo("discuss" if call.flag("create_pr") else "write")
    commit, body = repo.resolve(call.params["revision"]), call.json()
    attributes = repo.attributes(commit)
    ignore = body.get("gitIgnore")
    if ignore is None and (entry := commit.files.get(".gitignore")) is not None and not entry.sha256:
        ignore = repo.blobs.read(entry).decode("utf-8", "replace")
    files = []
    for item in _listed(body, "files"):
        path, size = check_path(str(item.get("path"))), item.get("size")
        if not isinstance(size, int) or size < 0:
            raise HubError(400, f"The size of {path} is missing")
        answer: dict[str, Any] = {
            "path": path,
            "uploadMode": "lfs" if is_lfs(path, size, attributes, call.config.lfs_over) else "regular",
            "shouldIgnore": is_ignored(path, str(ignore or "")),
        }
        if path in commit.files:
            answer["oid"] = commit.files[path].etag
        files.append(answer)
    return JSONResponse({"files": files, "commitOid": commit.id})


def _listed(body: dict[str, Any], key: str) -> list[dict[str, Any]]:
    items = body.get(key)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise HubError(400, f"{key} must be a list of objects")
    return items


def commit(call: Call) -> Response:
    """POST a commit: onto a branch, onto an open pull request, or as a new pull request (``create_pr=1``)."""
    create_pr = call.flag("create_pr")
    revision = call.params["revision"]
    # whoever may read may open a pull request and go on with their own
    repo = call.repo("discuss" if create_pr or revision.startswith(discussions.PULL_REQUEST) else "write")
    request = operations.parse(call.body)
    with repo.change():
        base = repo.resolve(revision)
        if request.parent is not None and request.parent != base.id:
            raise HubError(412, "A commit has happened since. Please refresh and try again.")
        item = None if create_pr else _target(call, repo, revision)
        files = operations.apply(repo, base, request, call.config.lfs_over)
        answer: dict[str, Any] = {"success": True, "hookOutput": ""}
        if create_pr:
            if revision != "main":
                raise HubError(400, "A pull request can only be opened against main")
            item = discussions.create(repo, call.user, request.title[:200].ljust(3), request.message, base)
            answer["pullRequestUrl"] = f"{call.endpoint}/{repo.id}/discussions/{item['num']}"
        done = _write(call, repo, item, revision, files, request)
    answer.update(commitUrl=f"{call.endpoint}/{repo.id}/commit/{done.id}", commitOid=done.id)
    return JSONResponse(answer)


def _target(call: Call, repo: Repo, revision: str) -> discussions.Discussion | None:
    """The pull request a revision names, or None for a branch; nothing else can be committed to."""
    ref = repo.full_ref(revision)
    if ref is None:
        raise revision_not_found(revision)
    if ref.startswith("refs/tags/"):
        raise HubError(400, f"{revision} is a tag: commits go to branches and pull requests")
    if not ref.startswith(discussions.PULL_REQUEST):
        return None
    item = discussions.find(repo, int(ref.removeprefix(discussions.PULL_REQUEST)))
    if item["status"] not in ("open", "draft"):
        raise HubError(400, f"The pull request is {item['status']}")
    if item["author"] != call.user:
        call.check_writer(repo.owner)
    return item


def _write(
    call: Call,
    repo: Repo,
    item: discussions.Discussion | None,
    revision: str,
    files: dict[str, Any],
    request: operations.CommitRequest,
) -> Commit:
    ref = repo.full_ref(f"{discussions.PULL_REQUEST}{item['num']}" if item else revision)
    assert ref is not None
    done = repo.add_commit(ref, files, call.user, request.title, request.message)
    if item is not None:
        discussions.committed(repo, item, call.user, done)
    return done


_MODEL = "/api/models/{owner}/{name}"
ROUTES = [
    Route("POST", f"{_MODEL}/preupload/{{revision}}", preupload),
    Route("POST", f"{_MODEL}/commit/{{revision}}", commit),
]
