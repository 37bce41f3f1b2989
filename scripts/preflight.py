"""Before the first job of a run: say at once what would only show after minutes of compiling.

The toolchain is built beside the downloads, and Snakemake waits for running jobs after a failure; a Hub that cannot be
reached, an input that may not be read and a repository or a folder that may not be written are therefore looked for
first.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache

from scripts import hub, lock
from scripts.core import BuildError


def needed(pairs: Mapping[str, Mapping[str, Any]], locks: Path, results: Path) -> Iterable[tuple[str, str, str]]:
    """(role, repo, revision) of every input that the Hub has to be asked for, because nothing local has it.

    An input that was fetched before, or whose config is in the Hub cache at the locked commit, needs no Hub; nor does a
    served target that was looked at before.
    """
    for key, pair in pairs.items():
        path = locks / f"{key}.yaml"
        locked = lock.read(path) if path.exists() else {}
        for role, (repo, revision) in lock.wanted(pair).items():
            entry = locked.get(role)
            step = "target" if role == "target_gguf" else f"fetch-{role}"
            if not entry:
                yield role, repo, revision
            elif not (results / key / "reports" / f"{step}.json").exists():
                # What is read of a served target is not kept in the cache.
                cached = try_to_load_from_cache(repo, "config.json", revision=entry["commit"])
                if role == "target_gguf" or not isinstance(cached, str):
                    yield role, repo, entry["commit"]


def writable(folders: Iterable[Path]) -> None:
    """Make the folders and check that files can be made in them.

    Raises:
        BuildError: they cannot.
    """
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder, prefix=".writable."):
                pass
        except OSError as error:
            raise BuildError(f"cannot write: {error.strerror}", folder, "check its permissions and its disk") from error


def check_local(pairs: Mapping[str, Mapping[str, Any]]) -> None:
    """Look for every file of this machine that the config names.

    Raises:
        BuildError: one is not there.
    """
    for key, pair in pairs.items():
        path = pair.get("target_gguf", {}).get("path")
        if path and not Path(path).is_file():
            raise BuildError(f"pairs.{key}.target_gguf.path: no such file", path, "name the target's GGUF, or its repo")


def check(
    pairs: Mapping[str, Mapping[str, Any]],
    locks: Path,
    results: Path = Path("results"),
    publishing: Iterable[str] = (),
) -> None:
    """Ask the Hub for every input that is needed, and for the right to publish the pairs that will be published.

    Raises:
        BuildError: the Hub cannot be reached, an input does not exist or may not be read, or a repository may not be
            written.
    """
    for role, repo, revision in needed(pairs, locks, results):
        hub.info(repo, revision)
        if role != "target_gguf":
            # A gate stands before the files only: whoever sees the repository may still not read them.
            with hub.explained(repo, f"file config.json at {revision}"):
                hub.persistent()(get_hf_file_metadata, hf_hub_url(repo, "config.json", revision=revision))
    for key in publishing:
        check_writable(pairs[key]["publish"])


def check_writable(target: Mapping[str, Any]) -> None:
    """Ask the Hub whether this account may publish to ``target``, {repo, create_pr}; nothing is changed there.

    Raises:
        BuildError: there is no token, or it has not the right to write to the repository or to create it.
    """
    repo = target["repo"]
    with hub.explained(repo, "publishing"):
        user = hub.persistent()(hub.api().whoami)
        token = user.get("auth", {}).get("accessToken", {})
        if token.get("role") == "read":
            raise BuildError(
                f"the token of {user['name']} may only read", hub.page(repo), "set HF_TOKEN to a token that may write"
            )
        if hub.persistent()(hub.api().repo_exists, repo):
            # Anybody who may read a repository may open a pull request there.
            hub.persistent()(hub.api().auth_check, repo, write=not target.get("create_pr"))
            return
    _check_creatable(repo, user, token)


def _check_creatable(repo: str, user: Mapping[str, Any], token: Mapping[str, Any]) -> None:
    """Refuse an account that is no writing member of the repository's owner, and a token that leaves that owner out.

    What the Hub does not say is not held against the account: creating the repository settles it.
    """
    owner, name = repo.partition("/")[0], user["name"]
    roles = {name: "admin"} | {org["name"]: org.get("roleInOrg") for org in user.get("orgs", ())}
    if roles.get(owner, "no_access") in ("read", "no_access"):
        raise BuildError(
            f"{name} may not create repositories of {owner}",
            hub.page(repo),
            f"set HF_TOKEN to a token of a member of {owner}, or correct publish.repo in the config",
        )
    scopes = token.get("fineGrained", {}).get("scoped")
    writable = {scope.get("entity", {}).get("name") for scope in scopes or () if "repo.write" in scope["permissions"]}
    if scopes is not None and owner not in writable:
        raise BuildError(
            f"the fine-grained token of {name} may not create repositories of {owner}",
            hub.page(repo),
            f"give the token write access to the repositories of {owner}",
        )
