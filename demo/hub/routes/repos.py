"""Repositories: information, creation, settings, refs, and who is asking."""

from __future__ import annotations

import re
from typing import Any

import yaml
from starlette.responses import JSONResponse, Response

from demo.hub.call import Call, Route, can_see
from demo.hub.commits import FIRST_DAY, Commit, moment
from demo.hub.errors import HubError, repo_not_found
from demo.hub.objects import FileEntry
from demo.hub.routes.paging import paged
from demo.hub.store import Repo


def front_matter(text: str) -> tuple[dict[str, Any], str | None]:
    """The YAML block at the top of a card, and what is wrong with it (None for nothing, also when it is absent)."""
    lines = text.lstrip("\ufeff").splitlines()
    if not lines or lines[0].strip() != "---":
        return {}, None
    end = next((number for number, line in enumerate(lines[1:], 1) if line.strip() == "---"), None)
    if end is None:
        return {}, "The metadata block is not closed by a line ---"
    try:
        data = yaml.safe_load("\n".join(lines[1:end]))
    except yaml.YAMLError as error:
        return {}, f"The metadata block is not YAML: {' '.join(str(error).split())}"
    if data is None:
        return {}, None
    return (data, None) if isinstance(data, dict) else ({}, "The metadata block is not a mapping")


def _metadata_error(data: dict[str, Any]) -> str | None:
    """What is wrong with fields that the Hub knows: a license that is no identifier, base models that are none."""
    named = data.get("license", "other")
    if not isinstance(named, str) or not re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", named):
        return '"license" must be one of the identifiers of the Hub'
    models = data.get("base_model", [])
    for model in models if isinstance(models, list) else [models]:
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", str(model)):
            return f'"base_model" with value "{model}" is not valid. Use a model id.'
    return None


def card_data(repo: Repo, commit: Commit) -> dict[str, Any]:
    """The metadata of a commit's README.md; empty when there is none or it is not valid."""
    entry = commit.files.get("README.md")
    return front_matter(repo.blobs.read(entry).decode("utf-8", "replace"))[0] if entry and not entry.sha256 else {}


def _tags(card: dict[str, Any], commit: Commit) -> list[str]:
    listed = card.get("tags")
    tags = [str(tag) for tag in listed] if isinstance(listed, list) else []
    tags += [suffix[1:] for suffix in (".gguf", ".safetensors") if any(path.endswith(suffix) for path in commit.files)]
    bases = card.get("base_model") or []
    for base in bases if isinstance(bases, list) else [bases]:
        tags.append(f"base_model:{base}")
    if card.get("license"):
        tags.append(f"license:{card['license']}")
    return list(dict.fromkeys(tags))


def _sibling(path: str, entry: FileEntry, blobs: bool) -> dict[str, Any]:
    result: dict[str, Any] = {"rfilename": path}
    if blobs:
        result.update(size=entry.size, blobId=entry.oid)
        if entry.sha256:
            result["lfs"] = {"sha256": entry.sha256, "size": entry.size, "pointerSize": entry.pointer_size}
    return result


def model_info(repo: Repo, commit: Commit, blobs: bool = False) -> dict[str, Any]:
    """What the Hub tells about a model at a commit."""
    card = card_data(repo, commit)
    return {
        "_id": commit.id[:24],
        "id": repo.id,
        "modelId": repo.id,
        "author": repo.owner,
        "sha": commit.id,
        "lastModified": commit.date,
        "createdAt": moment(0),
        "private": repo.private,
        "gated": repo.gated,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "tags": _tags(card, commit),
        "pipeline_tag": card.get("pipeline_tag"),
        "library_name": card.get("library_name"),
        "cardData": card or None,
        "usedStorage": sum(entry.size for entry in commit.files.values()),
        "siblings": [_sibling(path, entry, blobs) for path, entry in commit.files.items()],
    }


def info(call: Call) -> Response:
    """GET a model, at main or at a revision."""
    repo = call.repo("see")
    commit = repo.resolve(call.params.get("revision", "main"))
    return JSONResponse(model_info(repo, commit, call.flag("blobs")), headers={"X-Repo-Commit": commit.id})


def list_models(call: Call) -> Response:
    """GET the models the account sees: ``author``, ``search``, ``filter`` (tags), ``limit``."""
    author, search = call.query("author"), (call.query("search") or "").lower()
    wanted = [tag for text in call.request.query_params.getlist("filter") for tag in text.split(",")]
    items = []
    for repo_id in call.store.ids():
        repo = call.store.find(repo_id)
        if repo is None or not can_see(call.account, repo) or (author and repo.owner != author):
            continue
        item = model_info(repo, repo.resolve("main"))
        if search in repo_id.lower() and all(tag in item["tags"] for tag in wanted):
            items.append(item if call.flag("full") else {k: v for k, v in item.items() if k != "siblings"})
    return paged(call, items, call.config.page_size)


def whoami(call: Call) -> Response:
    """GET the user behind a token."""
    user = call.user
    assert call.account is not None
    role = "fineGrained" if call.account.role == "none" else call.account.role
    orgs = [{"type": "org", "name": org, "roleInOrg": "admin"} for org in call.account.orgs if org != "*"]
    token: dict[str, Any] = {"displayName": "demo", "role": role}
    token["createdAt"] = FIRST_DAY.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    if role == "fineGrained":
        token["fineGrained"] = {"global": [], "scoped": []}  # no permission at all
    auth = {"type": "access_token", "accessToken": token}
    return JSONResponse({"type": "user", "id": user, "name": user, "fullname": user, "orgs": orgs, "auth": auth})


def _named(call: Call) -> tuple[str, str]:
    body = call.json()
    if body.get("type") not in (None, "model"):
        raise HubError(400, f"This Hub has models only, no {body['type']}")
    owner = str(body.get("organization") or call.user)
    return owner, f"{owner}/{body.get('name')}"


def _private(body: dict[str, Any]) -> bool | None:
    visibility, private = body.get("visibility"), body.get("private")
    if visibility not in (None, "public", "private"):
        raise HubError(400, f"Invalid visibility: {visibility!r}")
    return visibility == "private" if visibility else None if private is None else bool(private)


def create_repo(call: Call) -> Response:
    """POST a new repository; one that exists is 409 and carries its address, which the client needs."""
    owner, repo_id = _named(call)
    call.check_writer(owner)
    url = f"{call.endpoint}/{repo_id}"
    call.entry.repo = repo_id
    try:
        call.store.create(repo_id, private=bool(_private(call.json())))
    except HubError as error:
        if error.status == 409:
            error.extra = {"url": url}
        raise
    return JSONResponse({"url": url, "name": repo_id, "id": repo_id})


def delete_repo(call: Call) -> Response:
    """DELETE a repository."""
    owner, repo_id = _named(call)
    call.entry.repo = repo_id
    repo = call.store.find(repo_id)
    if repo is None or not can_see(call.account, repo):
        raise repo_not_found(call.account is None)
    call.check_writer(owner)
    call.store.delete(repo_id)
    return JSONResponse({})


def settings(call: Call) -> Response:
    """PUT visibility and gate."""
    repo, body = call.repo("write"), call.json()
    private, gated = _private(body), body.get("gated", repo.gated)
    if gated not in ("auto", "manual", False):
        raise HubError(400, f"Invalid gate: {gated!r}")
    with repo.change():
        repo.state.update(private=repo.private if private is None else private, gated=gated)
    return JSONResponse({"private": repo.private, "gated": repo.gated})


def refs(call: Call) -> Response:
    """GET branches and tags, and pull requests if asked for."""
    repo = call.repo("see")
    names = {"branches": "refs/heads/", "tags": "refs/tags/", "pullRequests": "refs/pr/"}
    if not call.flag("include_prs"):
        del names["pullRequests"]
    result: dict[str, list[dict[str, str]]] = {"converts": []}
    for key, prefix in names.items():
        result[key] = [
            {"name": ref if key == "pullRequests" else ref.removeprefix(prefix), "ref": ref, "targetCommit": oid}
            for ref, oid in repo.refs().items()
            if ref.startswith(prefix)
        ]
    return JSONResponse(result)


def create_branch(call: Call) -> Response:
    """POST a branch, from ``startingPoint`` or main."""
    repo = call.repo("write")
    with repo.change():
        start = repo.resolve(str(call.json().get("startingPoint") or "main"))
        repo.new_ref("heads", call.params["branch"], start.id)
    return JSONResponse({})


def create_tag(call: Call) -> Response:
    """POST a tag on a revision."""
    repo, body = call.repo("write"), call.json()
    tag = str(body.get("tag") or "")
    with repo.change():
        repo.new_ref("tags", tag, repo.resolve(call.params["revision"]).id)
        repo.state["tag_messages"][tag] = str(body.get("message") or "")
    return JSONResponse({})


def delete_branch(call: Call) -> Response:
    """DELETE a branch other than main."""
    if call.params["branch"] == "main":
        raise HubError(403, "The branch main cannot be deleted")
    return _delete_ref(call, f"refs/heads/{call.params['branch']}")


def delete_tag(call: Call) -> Response:
    """DELETE a tag."""
    return _delete_ref(call, f"refs/tags/{call.params['revision']}")


def _delete_ref(call: Call, ref: str) -> Response:
    repo = call.repo("write")
    with repo.change():
        if ref not in repo.refs():
            raise HubError(404, f"Invalid rev id: {ref}", "RevisionNotFound")
        repo.set_ref(ref, None)
    return JSONResponse({})


def auth_check(call: Call) -> Response:
    """GET whether the account may read the files."""
    call.repo("files")
    return JSONResponse({})


def auth_check_write(call: Call) -> Response:
    """GET whether the account may write."""
    call.repo("write")
    return JSONResponse({})


def validate_yaml(call: Call) -> Response:
    """POST a card to have its metadata checked: errors are 400, an empty block is a warning."""
    data, error = front_matter(str(call.json().get("content") or ""))
    error = error or _metadata_error(data)
    if error:
        return JSONResponse({"errors": [{"message": error}], "warnings": []}, 400)
    warnings = [] if data else [{"message": "empty or missing yaml metadata in repo card"}]
    return JSONResponse({"errors": [], "warnings": warnings})


_MODEL = "/api/models/{owner}/{name}"
ROUTES = [
    Route("GET", "/api/models", list_models),
    Route("GET", "/api/whoami-v2", whoami),
    Route("POST", "/api/repos/create", create_repo),
    Route("DELETE", "/api/repos/delete", delete_repo),
    Route("POST", "/api/validate-yaml", validate_yaml),
    Route("GET", _MODEL, info),
    Route("GET", f"{_MODEL}/revision/{{revision}}", info),
    Route("PUT", f"{_MODEL}/settings", settings),
    Route("GET", f"{_MODEL}/refs", refs),
    Route("POST", f"{_MODEL}/branch/{{branch}}", create_branch),
    Route("DELETE", f"{_MODEL}/branch/{{branch}}", delete_branch),
    Route("POST", f"{_MODEL}/tag/{{revision}}", create_tag),
    Route("DELETE", f"{_MODEL}/tag/{{revision}}", delete_tag),
    Route("GET", f"{_MODEL}/auth-check", auth_check),
    Route("GET", f"{_MODEL}/auth-check/write", auth_check_write),
]
