"""Discussions and pull requests."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response

from demo.hub import discussions
from demo.hub.call import Call, Route
from demo.hub.errors import HubError
from demo.hub.store import Repo


def _item(call: Call, repo: Repo) -> discussions.Discussion:
    number = call.params["number"]
    return discussions.find(repo, int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 0)


def listing(call: Call) -> Response:
    """GET discussions, newest first: ``type``, ``status``, ``author``, page ``p``."""
    repo = call.repo("see")
    kind, status, author = call.query("type"), call.query("status"), call.query("author")
    items = [
        discussions.public(repo, item)
        for item in reversed(repo.state["discussions"])
        if (kind in (None, "all") or item["isPullRequest"] == (kind == "pull_request"))
        and (status in (None, "all") or (item["status"] in ("open", "draft")) == (status == "open"))
        and (author is None or item["author"] == author)
    ]
    size = call.config.expanded_page_size
    start = call.number("p", 0, 1 << 20) * size
    return JSONResponse({"discussions": items[start : start + size], "count": len(items), "start": start})


def create(call: Call) -> Response:
    """POST a discussion, or a pull request without changes (a draft from main)."""
    repo, body = call.repo("discuss"), call.json()
    with repo.change():
        base = repo.resolve("main") if body.get("pullRequest") else None
        title, text = str(body.get("title") or "").strip(), str(body.get("description") or "")
        item = discussions.create(repo, call.user, title, text, base, "draft" if base else "open")
    url = f"{call.endpoint}/{repo.id}/discussions/{item['num']}"
    return JSONResponse({"num": item["num"], "url": url, "pullRequest": base is not None})


def details(call: Call) -> Response:
    """GET a discussion with events and, for a pull request, its diff."""
    repo = call.repo("see")
    return JSONResponse(discussions.details(repo, _item(call, repo)))


def comment(call: Call) -> Response:
    """POST a comment."""
    repo, body = call.repo("discuss"), call.json()
    with repo.change():
        event = discussions.comment(repo, _item(call, repo), call.user, str(body.get("comment") or ""))
    return JSONResponse({"newMessage": event})


def status(call: Call) -> Response:
    """POST a new status: "open" or "closed"; for the author and for writers."""
    repo, body = call.repo("discuss"), call.json()
    with repo.change():
        item = _item(call, repo)
        if item["author"] != call.user:
            call.check_writer(repo.owner)
        event = discussions.set_status(repo, item, call.user, str(body.get("status")))
        if str(body.get("comment") or "").strip():
            discussions.comment(repo, item, call.user, str(body["comment"]))
    return JSONResponse({"newStatus": event})


def title(call: Call) -> Response:
    """POST a new title; for the author and for writers."""
    repo, body = call.repo("discuss"), call.json()
    new = str(body.get("title") or "").strip()
    if not 3 <= len(new) <= 200:
        raise HubError(400, "The title must have 3 to 200 characters")
    with repo.change():
        item = _item(call, repo)
        if item["author"] != call.user:
            call.check_writer(repo.owner)
        event = discussions.event(repo, item, "title-change", call.user, {"from": item["title"], "to": new})
        item["title"] = new
    return JSONResponse({"newTitle": event})


def merge(call: Call) -> Response:
    """POST the merge of a pull request into main."""
    repo, body = call.repo("write"), call.json()
    with repo.change():
        item = _item(call, repo)
        done = discussions.merge_into_main(repo, item, call.user)
        if str(body.get("comment") or "").strip():
            discussions.comment(repo, item, call.user, str(body["comment"]))
    return JSONResponse({"mergeCommitId": done.id, "commitOid": done.id})


_ALL = "/api/models/{owner}/{name}/discussions"
_ONE = f"{_ALL}/{{number}}"
ROUTES = [
    Route("GET", _ALL, listing),
    Route("POST", _ALL, create),
    Route("GET", _ONE, details),
    Route("POST", f"{_ONE}/comment", comment),
    Route("POST", f"{_ONE}/status", status),
    Route("POST", f"{_ONE}/title", title),
    Route("POST", f"{_ONE}/merge", merge),
]
