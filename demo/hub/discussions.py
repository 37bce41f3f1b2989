"""Discussions and pull requests of a repository; they live in its state, beside the refs they move."""

from __future__ import annotations

import difflib
import hashlib
import html
from typing import Any

from demo.hub.commits import Commit, merge, moment
from demo.hub.errors import HubError
from demo.hub.objects import FileEntry
from demo.hub.store import Repo

Discussion = dict[str, Any]
PULL_REQUEST = "refs/pr/"


def find(repo: Repo, number: int) -> Discussion:
    """A discussion by its number.

    Raises:
        HubError: 404, there is none.
    """
    items: list[Discussion] = repo.state["discussions"]
    if not 1 <= number <= len(items):
        raise HubError(404, f"Discussion {number} not found")
    return items[number - 1]


def public(repo: Repo, item: Discussion) -> dict[str, Any]:
    """A discussion as listings show it."""
    return {
        "num": item["num"],
        "title": item["title"],
        "status": item["status"],
        "author": {"name": item["author"]},
        "createdAt": item["createdAt"],
        "isPullRequest": item["isPullRequest"],
        "numComments": sum(event["type"] == "comment" for event in item["events"]),
        "pinned": False,
        "repo": {"name": repo.id, "type": "model"},
    }


def details(repo: Repo, item: Discussion) -> dict[str, Any]:
    """A discussion with its events and, for a pull request, its target, conflicts and diff."""
    result = {**public(repo, item), "events": item["events"]}
    if item["isPullRequest"]:
        base, head = repo.resolve("main"), repo.resolve(f"{PULL_REQUEST}{item['num']}")
        fork = repo.history.merge_base(base.id, head.id)
        result["changes"] = {"base": "refs/heads/main", "mergeCommitId": item["mergeCommitId"]}
        conflicts = merge(fork, base, head)[1] if item["status"] in ("open", "draft") else []
        result["filesWithConflicts"] = conflicts
        result["diff"] = diff(repo, repo.history.get(item["base"]), head)
    return result


def event(repo: Repo, item: Discussion, kind: str, author: str, data: dict[str, Any]) -> dict[str, Any]:
    """Append an event; ids and dates follow from the order of events, not from a clock."""
    count = len(item["events"])
    name = f"{repo.id}#{item['num']}/{count}"
    entry = {
        "id": hashlib.sha256(name.encode()).hexdigest()[:24],
        "type": kind,
        "author": {"name": author},
        "createdAt": moment(item["num"] + count),
        "data": data,
    }
    item["events"].append(entry)
    return entry


def comment(repo: Repo, item: Discussion, author: str, text: str) -> dict[str, Any]:
    """Append a comment.

    Raises:
        HubError: 400, it is empty.
    """
    if not text.strip():
        raise HubError(400, "The comment is empty")
    latest = {
        "raw": text,
        "html": f"<p>{html.escape(text)}</p>",
        "updatedAt": moment(item["num"] + len(item["events"])),
        "author": {"name": author},
    }
    return event(repo, item, "comment", author, {"edited": False, "hidden": False, "latest": latest, "history": []})


def create(repo: Repo, author: str, title: str, text: str, base: Commit | None, status: str = "open") -> Discussion:
    """Open a discussion, or a pull request from ``base`` (its ref is created); inside ``repo.change()``.

    Raises:
        HubError: 400, the title is not 3 to 200 characters.
    """
    if not 3 <= len(title) <= 200:
        raise HubError(400, "The title must have 3 to 200 characters")
    number = len(repo.state["discussions"]) + 1
    item: Discussion = {
        "num": number,
        "title": title,
        "status": status,
        "author": author,
        "createdAt": moment(number),
        "isPullRequest": base is not None,
        "base": base.id if base else None,
        "mergeCommitId": None,
        "events": [],
    }
    repo.state["discussions"].append(item)
    if text.strip():
        comment(repo, item, author, text)
    if base is not None:
        repo.state["refs"] = {**repo.refs(), f"{PULL_REQUEST}{number}": base.id}
    return item


def committed(repo: Repo, item: Discussion, author: str, commit: Commit) -> None:
    """Note a commit that was added to a pull request."""
    event(repo, item, "commit", author, {"subject": commit.title, "oid": commit.id})


def set_status(repo: Repo, item: Discussion, author: str, status: str) -> dict[str, Any]:
    """Open or close a discussion; opening a draft publishes it.

    Raises:
        HubError: 400 for another status, or for a pull request that was merged.
    """
    if status not in ("open", "closed"):
        raise HubError(400, f"Invalid status: {status!r}")
    if item["status"] == "merged":
        raise HubError(400, "The pull request was merged")
    item["status"] = status
    return event(repo, item, "status-change", author, {"status": status})


def merge_into_main(repo: Repo, item: Discussion, author: str) -> Commit:
    """Merge a pull request and move main; inside ``repo.change()``.

    Raises:
        HubError: 400, it is no pull request or not open; 409, it changes what main changed too.
    """
    if not item["isPullRequest"]:
        raise HubError(400, f"Discussion {item['num']} is no pull request")
    if item["status"] not in ("open", "draft"):
        raise HubError(400, f"The pull request is {item['status']}")
    ours, theirs = repo.resolve("main"), repo.resolve(f"{PULL_REQUEST}{item['num']}")
    files, conflicts = merge(repo.history.merge_base(ours.id, theirs.id), ours, theirs)
    if conflicts:
        raise HubError(409, f"The pull request conflicts with main in: {', '.join(conflicts)}")
    commit = repo.history.add(files, (ours.id, theirs.id), author, f"{item['title']} (#{item['num']})", "")
    repo.state["refs"] = {**repo.refs(), "refs/heads/main": commit.id}
    item["mergeCommitId"], item["status"] = commit.id, "merged"
    event(repo, item, "status-change", author, {"status": "merged"})
    return commit


def diff(repo: Repo, before: Commit, after: Commit) -> str:
    """A unified diff of two commits; LFS files show as their pointers, other binary files as a remark."""
    parts = []
    for path in sorted(set(before.files) | set(after.files)):
        old, new = before.files.get(path), after.files.get(path)
        if old == new:
            continue
        parts.append(f"diff --git a/{path} b/{path}\n")
        left, right = _lines(repo, old), _lines(repo, new)
        if left is None or right is None:
            parts.append(f"Binary files a/{path} and b/{path} differ\n")
        else:
            names = (f"a/{path}" if old else "/dev/null", f"b/{path}" if new else "/dev/null")
            for line in difflib.unified_diff(left, right, *names):
                parts.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(parts)


def _lines(repo: Repo, entry: FileEntry | None) -> list[str] | None:
    if entry is None:
        return []
    if entry.sha256:
        return ["version https://git-lfs.github.com/spec/v1\n", f"oid sha256:{entry.sha256}\n", f"size {entry.size}\n"]
    try:
        return repo.blobs.read(entry).decode().splitlines(keepends=True)
    except UnicodeDecodeError:
        return None
