"""What a revision holds: trees, paths and the list of commits."""

from __future__ import annotations

import html
from typing import Any
from urllib.parse import parse_qs

from starlette.responses import JSONResponse, Response

from demo.hub.call import Call, Route
from demo.hub.commits import Commit
from demo.hub.errors import HubError, entry_not_found
from demo.hub.objects import FileEntry, tree_ids
from demo.hub.routes.paging import paged
from demo.hub.store import Repo

MAX_PATHS = 1000


def _last_commit(commit: Commit) -> dict[str, str]:
    return {"id": commit.id, "title": commit.title, "date": commit.date}


def _file(path: str, entry: FileEntry, changes: dict[str, Commit] | None) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "file", "oid": entry.oid, "size": entry.size, "path": path}
    if entry.sha256:
        result["lfs"] = {"oid": entry.sha256, "size": entry.size, "pointerSize": entry.pointer_size}
    if changes is not None:
        result["lastCommit"] = _last_commit(changes[path])
        result["securityFileStatus"] = {"status": "unscanned", "avScan": None, "pickleImportScan": None}
    return result


def _folder(path: str, oid: str, changes: dict[str, Commit] | None) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "directory", "oid": oid, "size": 0, "path": path}
    if changes is not None:
        result["lastCommit"] = _last_commit(changes[path])
    return result


def listing(repo: Repo, commit: Commit, folder: str, recursive: bool, expand: bool) -> list[dict[str, Any]]:
    """The entries below a folder ("" for the root): folders first, then files, as the Hub lists them.

    Raises:
        HubError: 404 EntryNotFound, there is no such folder.
    """
    trees = tree_ids(commit.files)
    if folder not in trees:
        raise entry_not_found(folder, commit.id)
    prefix = f"{folder}/" if folder else ""
    changes = repo.history.last_changes(commit.id) if expand else None

    def inside(path: str) -> bool:
        return path.startswith(prefix) and path != folder and (recursive or "/" not in path[len(prefix) :])

    folders = [_folder(path, oid, changes) for path, oid in sorted(trees.items()) if path and inside(path)]
    return folders + [_file(path, entry, changes) for path, entry in commit.files.items() if inside(path)]


def tree(call: Call) -> Response:
    """GET the tree of a revision or of a folder in it, in pages that stay on one commit."""
    repo = call.repo("see")
    commit = repo.resolve(call.query("pin") or call.params["revision"])
    expand = call.flag("expand")
    items = listing(repo, commit, call.params.get("path", "").strip("/"), call.flag("recursive"), expand)
    size = call.config.expanded_page_size if expand else call.config.page_size
    return paged(call, items, size, commit.id, {"X-Repo-Commit": commit.id})


def paths_info(call: Call) -> Response:
    """POST paths (a form) to learn about those that exist."""
    repo = call.repo("see")
    commit = repo.resolve(call.params["revision"])
    form = parse_qs(call.body.decode("utf-8", "replace"), keep_blank_values=True)
    paths = [path.strip("/") for path in form.get("paths", [])]
    if len(paths) > MAX_PATHS:
        raise HubError(413, f"At most {MAX_PATHS} paths a request")
    trees = tree_ids(commit.files)
    changes = repo.history.last_changes(commit.id) if form.get("expand", [""])[0].lower() == "true" else None
    result = []
    for path in dict.fromkeys(paths):
        if path in commit.files:
            result.append(_file(path, commit.files[path], changes))
        elif path and path in trees:
            result.append(_folder(path, trees[path], changes))
    return JSONResponse(result, headers={"X-Repo-Commit": commit.id})


def commits(call: Call) -> Response:
    """GET the commits of a revision, newest first."""
    repo = call.repo("see")
    head = repo.resolve(call.query("pin") or call.params["revision"])
    formatted = "formatted" in call.request.query_params.getlist("expand[]")
    items = []
    for commit in repo.history.log(head.id):
        item: dict[str, Any] = {
            "id": commit.id,
            "title": commit.title,
            "message": commit.message,
            "date": commit.date,
            "authors": [{"user": commit.author, "avatar": ""}],
            "parents": list(commit.parents),
        }
        if formatted:
            item["formatted"] = {"title": html.escape(commit.title), "message": html.escape(commit.message)}
        items.append(item)
    return paged(call, items, call.config.page_size, head.id)


_MODEL = "/api/models/{owner}/{name}"
ROUTES = [
    Route("GET", f"{_MODEL}/tree/{{revision}}", tree),
    Route("GET", f"{_MODEL}/tree/{{revision}}/{{path*}}", tree),
    Route("POST", f"{_MODEL}/paths-info/{{revision}}", paths_info),
    Route("GET", f"{_MODEL}/commits/{{revision}}", commits),
]
