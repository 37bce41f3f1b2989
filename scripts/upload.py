"""One commit on the Hub: what it changes, what happens when the repository moved meanwhile, and the tag on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from hf_xet import XetAuthenticationError
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, Discussion, constants
from huggingface_hub.errors import HfHubHTTPError

from scripts import core, hub
from scripts.core import BuildError
from scripts.release import SIGNATURE, SUMS, parse_sums

MOVED = 412
"""What the Hub answers where the commit's parent is not the head any more."""


def remote_files(repo: str, revision: str | None = None) -> tuple[str, dict[str, Any]]:
    """The repository's commit at ``revision`` (its main branch) and its files: path -> sibling."""
    info = hub.info(repo, revision, files=True)
    return str(info.sha), {file.rfilename: file for file in info.siblings or []}


def same(local: Path, sha256: str, remote: Any | None) -> bool:
    """Whether a file of the repository has the content of the local one."""
    if remote is None or remote.size != local.stat().st_size:
        return False
    return bool(remote.lfs.sha256 == sha256 if remote.lfs else remote.blob_id == core.git_blob_id(local))


@dataclass(frozen=True)
class Release:
    """A closed release folder as it is published: file name -> sha256, SHA256SUMS itself included."""

    folder: Path
    sums: Mapping[str, str]

    def changed(self, remote: Mapping[str, Any]) -> list[str]:
        """Names of the release's files that the repository has not, or has with other content."""
        return [name for name in sorted(self.sums) if not same(self.folder / name, self.sums[name], remote.get(name))]

    def size(self, names: Sequence[str]) -> int:
        """Bytes of some of its files; what is there under two names counts once, as it is sent once."""
        sizes = {self.sums[name]: (self.folder / name).stat().st_size for name in names}
        return sum(sizes.values())


@dataclass
class Change:
    """A commit to be made: onto ``parent``, whose files are ``before``; ``send`` and ``remove`` are file names."""

    parent: str
    before: Mapping[str, Any]
    send: list[str]
    remove: list[str] = field(default_factory=list)


def left_over(repo: str, head: str, remote: Mapping[str, Any], sums: Mapping[str, str]) -> list[str]:
    """Files of the release before that are not in this one: named by the repository's SHA256SUMS, and still as it says.

    Nothing else of the repository is ours to remove, but for a signature: it fits no other release.

    Raises:
        BuildError: the repository's SHA256SUMS cannot be read.
    """
    if SUMS not in remote:
        return []
    with hub.explained(repo, f"file {SUMS} at {head}"):
        path = Path(hub.persistent()(hub.api().hf_hub_download, repo, SUMS, revision=head))
    try:
        before = parse_sums(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BuildError(
            f"cannot read {SUMS} of {repo}: {error}", hub.page(repo), "remove old files by hand, unset publish.remove"
        ) from error
    signature = [name for name in (SIGNATURE,) if name in remote and name not in sums]
    gone = [name for name in sorted(before) if name not in sums and name in remote]
    return [name for name in gone if not remote[name].lfs or remote[name].lfs.sha256 == before[name]] + signature


def open_pr(repo: str, title: str, release: Release) -> str | None:
    """The revision of an open pull request that already holds this release, if there is one."""
    with hub.explained(repo, "its pull requests"):
        found = hub.persistent()(_open_pull_requests, repo)
    for discussion in found:
        revision = discussion.git_reference
        if discussion.title == title and revision and not release.changed(remote_files(repo, revision)[1]):
            return str(revision)
    return None


def _open_pull_requests(repo: str) -> list[Discussion]:
    return list(hub.api().get_repo_discussions(repo, discussion_type="pull_request", discussion_status="open"))


def commit(repo: str, release: Release, change: Change, message: str, *, create_pr: bool) -> str | None:
    """Make one commit; the revision of the pull request, where one was asked for.

    Where the repository moved meanwhile, but in no file of this release, the commit is made once more, onto what is
    there then.

    Raises:
        BuildError: the Hub said no, or somebody changed a file of the release meanwhile.
    """
    with hub.explained(repo, "the upload"):
        try:
            return _attempts(repo, release, change, message, create_pr)
        except HfHubHTTPError as error:
            if error.response is None or error.response.status_code != MOVED:
                raise
    head, now = remote_files(repo)
    if not release.changed(now) and not any(name in now for name in change.remove):
        return None  # this very commit, whose answer was lost
    ours = sorted({*release.sums, *change.remove})
    if theirs := [name for name in ours if _identity(now.get(name)) != _identity(change.before.get(name))]:
        more = f" (and {len(theirs) - 1} more)" if len(theirs) > 1 else ""
        raise BuildError(
            f"{theirs[0]}{more} was changed in {repo} meanwhile",
            hub.page(repo),
            "look at what was changed there; to replace it, publish again",
        )
    core.say(f"{repo} moved meanwhile to {head[:12]}, in files that are not ours: trying once more")
    with hub.explained(repo, "the upload"):
        return _attempts(repo, release, Change(head, now, change.send, change.remove), message, create_pr)


def _identity(file: Any | None) -> str | None:
    return None if file is None else str(file.blob_id)


def _attempts(repo: str, release: Release, change: Change, message: str, create_pr: bool) -> str | None:
    """Attempts at one commit onto one parent.

    A commit whose answer was lost may have been made. The client leaves out what the repository holds already; whether
    a pull request was opened has to be looked for.
    """
    attempts = 0

    def attempt() -> str | None:
        nonlocal attempts
        attempts += 1
        if attempts > 1 and create_pr and (made := open_pr(repo, message, release)):
            return made
        # made anew each time: the client keeps in them how far it came
        files = [CommitOperationAdd(path_in_repo=name, path_or_fileobj=release.folder / name) for name in change.send]
        once = {release.sums[file.path_in_repo]: file for file in files}
        try:
            if len(once) < len(files):  # what has two names would be sent twice, side by side
                hub.api().preupload_lfs_files(repo, once.values(), create_pr=create_pr, free_memory=False)
            done = hub.api().create_commit(
                repo,
                [*files, *(CommitOperationDelete(path_in_repo=name, is_folder=False) for name in change.remove)],
                commit_message=message,
                create_pr=create_pr,
                parent_commit=change.parent or None,
            )
        except (RuntimeError, OSError, XetAuthenticationError) as error:
            if isinstance(error.__cause__, HfHubHTTPError):  # the client's wrapping of what happened to one file
                raise error.__cause__ from error
            if not _of_xet(error):
                raise
            core.say(f"the upload by Xet failed ({hub.brief(error)}); once more without Xet")
            constants.HF_HUB_DISABLE_XET = True
            return attempt()
        return str(done.pr_revision) if create_pr else None

    return hub.persistent()(attempt)


def _of_xet(error: BaseException) -> bool:
    """Whether an error came from the Xet client: it has no class for most of them, nor a file that it is about."""
    plain = not isinstance(error, (HfHubHTTPError, httpx2.HTTPError)) and getattr(error, "errno", None) is None
    return plain and not constants.HF_HUB_DISABLE_XET


def tag_name(template: str, release: Release) -> str:
    """The tag of a release; ``{id}`` in the template is the first 12 digits of the sha256 of its SHA256SUMS."""
    return template.replace("{id}", release.sums[SUMS][:12])


def check_tag(repo: str, tag: str, release: Release) -> bool:
    """Whether the tag is there already, on this very release.

    Raises:
        BuildError: it is on another one. A tag is never moved: people have pinned it.
    """
    with hub.explained(repo, "its tags"):
        refs = hub.persistent()(hub.api().list_repo_refs, repo)
    target = next((ref.target_commit for ref in refs.tags if ref.name == tag), None)
    if target is None:
        return False
    # signed again it is still the same release
    if set(release.changed(remote_files(repo, target)[1])) - {SIGNATURE}:
        raise BuildError(
            f"tag {tag} of {repo} is another release, at {target[:12]}",
            hub.page(repo),
            "name another tag in publish.tag; one with {id} in it is new for every release",
        )
    return True


def set_tag(repo: str, tag: str, commit: str, message: str, release: Release) -> None:
    """Put a tag on a published release, if it is not there.

    Raises:
        BuildError: the tag is on another release, or the Hub said no.
    """
    if not check_tag(repo, tag, release):
        with hub.explained(repo, f"tag {tag}"):
            # an answer that was lost may have been a success, and somebody may have been quicker
            hub.persistent()(hub.api().create_tag, repo, tag=tag, revision=commit, tag_message=message, exist_ok=True)
        check_tag(repo, tag, release)
