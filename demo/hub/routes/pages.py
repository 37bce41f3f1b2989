"""Pages for people: what repositories there are, and what one of them holds."""

from __future__ import annotations

import html
from collections.abc import Sequence

from starlette.responses import HTMLResponse, Response

from demo.hub.call import Call, Route, can_see, quoted
from demo.hub.commits import Commit
from demo.hub.objects import FileEntry
from demo.hub.store import Repo
from scripts.core import human, sha256_file

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
table { border-collapse: collapse; } td, th { padding: .2rem .9rem .2rem 0; text-align: left; }
code, pre { font: 13px/1.5 ui-monospace, monospace; }
pre { white-space: pre-wrap; border: 1px solid #ccc; padding: 1rem; }
"""


def _page(title: str, body: str) -> Response:
    head = f"<meta charset=utf-8><title>{html.escape(title)}</title><style>{_STYLE}</style>"
    text = f"<!doctype html><html lang=en><head>{head}</head><body>{body}</body></html>"
    # a card is somebody's text: whatever it contains, nothing of it may run
    return HTMLResponse(text, headers={"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"})


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    cells = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th>{name}</th>' for name in head)}</tr>{cells}</table>"


def _link(address: str, text: str) -> str:
    return f'<a href="{html.escape(address)}">{html.escape(text)}</a>'


def index(call: Call) -> Response:
    """GET the list of repositories."""
    rows = []
    for repo_id in call.store.ids():
        repo = call.store.find(repo_id)
        if repo is not None and can_see(call.account, repo):
            commit = repo.resolve("main")
            size = human(sum(entry.size for entry in commit.files.values()))
            rows.append((_link(f"/{repo_id}", repo_id), str(len(commit.files)), size, f"<code>{commit.id[:12]}</code>"))
    return _page("Local Hub", f"<h1>Local Hub</h1>{_table(('repository', 'files', 'size', 'main'), rows)}")


def _sha256(repo: Repo, entry: FileEntry) -> str:
    return entry.sha256 or sha256_file(repo.blobs.path(entry))


def _readme(repo: Repo, commit: Commit) -> str:
    entry = commit.files.get("README.md")
    if entry is None or entry.sha256:
        return ""
    return f"<h2>README.md</h2><pre>{html.escape(repo.blobs.read(entry).decode('utf-8', 'replace'))}</pre>"


def repository(call: Call) -> Response:
    """GET a repository at a revision: files with sizes and sha256, refs, discussions and the card."""
    repo, revision = call.repo("see"), call.params.get("revision", "main")
    commit = repo.resolve(revision)
    files = [
        (
            _link(f"/{repo.id}/resolve/{commit.id}/{quoted(path)}", path),
            human(entry.size),
            f"<code>{_sha256(repo, entry)}</code>",
        )
        for path, entry in commit.files.items()
    ]
    refs = [
        (
            _link(
                f"/{repo.id}/tree/{ref.removeprefix('refs/heads/').removeprefix('refs/tags/').replace('/', '%2F')}", ref
            ),
            f"<code>{oid}</code>",
        )
        for ref, oid in repo.refs().items()
    ]
    talks = [
        (f"#{item['num']}", html.escape(item["title"]), html.escape(item["status"]), html.escape(item["author"]))
        for item in repo.state["discussions"]
    ]
    body = [
        f"<p>{_link('/', 'all repositories')}</p><h1>{html.escape(repo.id)}</h1>",
        f"<p>{html.escape(revision)} at <code>{commit.id}</code>: {html.escape(commit.title)}</p>",
        _table(("file", "size", "sha256"), files),
        "<h2>Refs</h2>" + _table(("ref", "commit"), refs),
        "<h2>Discussions</h2>" + _table(("number", "title", "status", "author"), talks) if talks else "",
        _readme(repo, commit),
    ]
    return _page(repo.id, "".join(body))


# a commit and a pull request are announced with addresses: both lead to the repository
ROUTES = [
    Route("GET", "/", index),
    Route("GET", "/{owner}/{name}", repository),
    Route("GET", "/{owner}/{name}/tree/{revision}", repository),
    Route("GET", "/{owner}/{name}/commit/{revision}", repository),
    Route("GET", "/{owner}/{name}/discussions/{number}", repository),
]
