"""Upload a closed release folder as one commit, then list the repository again and compare every file.

Files that are there already with the same content are not sent again, so a second run changes nothing. The commit names
the state it was made for as its parent: if the repository moved meanwhile, the Hub refuses it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, Discussion

from scripts import core, hub
from scripts.core import BuildError, Report
from scripts.release import SUMS, read_sums


def remote_files(repo: str, revision: str | None = None) -> tuple[str, dict[str, Any]]:
    """The repository's commit at ``revision`` (its main branch) and its files: path -> sibling."""
    info = hub.info(repo, revision, files=True)
    return str(info.sha), {file.rfilename: file for file in info.siblings or []}


def same(local: Path, sha256: str, remote: Any | None) -> bool:
    """Whether a file of the repository has the content of the local one."""
    if remote is None or remote.size != local.stat().st_size:
        return False
    return bool(remote.lfs.sha256 == sha256 if remote.lfs else remote.blob_id == core.git_blob_id(local))


def changed(folder: Path, sums: Mapping[str, str], remote: Mapping[str, Any]) -> list[str]:
    """Names of the release's files that the repository has not, or has with other content."""
    return [name for name in sorted(sums) if not same(folder / name, sums[name], remote.get(name))]


def intact(folder: Path) -> dict[str, str]:
    """File name -> sha256 of a closed release folder, every file read again.

    Raises:
        BuildError: the folder is not closed, or a file is not the one that it was closed with.
    """
    sums = read_sums(folder)
    for name, sha256 in sums.items():
        if core.sha256_file(folder / name, f"checking {name}") != sha256:
            raise BuildError(
                f"{name} changed after the release was closed",
                (folder / name).resolve(),
                f"delete this file and {SUMS}, and run again",
            )
    return sums


def publish(
    folder: Path, repo: str, message: str, *, private: bool = False, create_pr: bool = False, dry_run: bool = False
) -> Report:
    """Publish the release in ``folder`` to ``repo``; ``dry_run`` says what would be sent and sends nothing.

    Raises:
        BuildError: the folder is not a closed release, a file changed since it was closed, the Hub said no, or the
            repository does not hold afterwards what the folder holds.
    """
    sums = intact(folder)
    sums[SUMS] = core.sha256_file(folder / SUMS)
    report = Report(figures={"repo": repo, "url": hub.page(repo)})
    head, remote = _open(repo, private=private, dry_run=dry_run)
    revision = _open_pr(repo, message, folder, sums) if create_pr else None
    send = [] if revision else changed(folder, sums, remote)
    sent = sum((folder / name).stat().st_size for name in send)
    for name in sorted(sums):
        core.say(f"{'send' if name in send else 'keep'} {name} ({core.human((folder / name).stat().st_size)})")
    report.figures.update(changed=send, bytes=sent, commit=head, dry_run=dry_run)
    if dry_run:
        core.say(f"dry run: {len(send)} of {len(sums)} files, {core.human(sent)}, would go to {hub.page(repo)}")
        return report
    if send:
        revision = _upload(repo, folder, sums, send, message, parent=head, create_pr=create_pr)
    commit, listed = remote_files(repo, revision)
    wrong = changed(folder, sums, listed)
    report.require(
        "published files match",
        not wrong,
        f"{len(sums) - len(wrong)} of {len(sums)} files of {repo} have the size and sha256 of the release",
        hub.page(repo),
        f"publish again; {wrong[0] if wrong else 'nothing'} differs",
    )
    report.figures.update(commit=commit, revision=revision or "main")
    core.say(f"{len(send)} of {len(sums)} files sent to {hub.page(repo)} as {revision or 'main'} at {commit[:12]}")
    return report


def _open(repo: str, *, private: bool, dry_run: bool) -> tuple[str, dict[str, Any]]:
    """Head and files of the repository, created first where it does not exist; a dry run creates nothing."""
    with hub.explained(repo, "its files"):
        exists = hub.persistent()(hub.api().repo_exists, repo)
    if not exists and dry_run:
        return "", {}
    if not exists:
        with hub.explained(repo, "creating it"):
            hub.persistent()(hub.api().whoami)
            # an answer that was lost may have been a success
            hub.persistent()(hub.api().create_repo, repo, private=private, exist_ok=True)
    return remote_files(repo)


def _open_pr(repo: str, title: str, folder: Path, sums: Mapping[str, str]) -> str | None:
    """The revision of an open pull request that already holds this release, if there is one."""
    with hub.explained(repo, "its pull requests"):
        found = hub.persistent()(_open_pull_requests, repo)
    for discussion in found:
        revision = discussion.git_reference
        if discussion.title == title and revision and not changed(folder, sums, remote_files(repo, revision)[1]):
            return str(revision)
    return None


def _open_pull_requests(repo: str) -> list[Discussion]:
    return list(hub.api().get_repo_discussions(repo, discussion_type="pull_request", discussion_status="open"))


def _upload(
    repo: str,
    folder: Path,
    sums: Mapping[str, str],
    send: Sequence[str],
    message: str,
    *,
    parent: str,
    create_pr: bool,
) -> str | None:
    """Send the files as one commit; the revision of the pull request, where one was asked for.

    A commit whose answer was lost may have been made. The client leaves out what the repository holds already; whether
    a pull request was opened has to be looked for.
    """
    attempts = 0

    def attempt() -> str | None:
        nonlocal attempts
        attempts += 1
        if attempts > 1 and create_pr and (made := _open_pr(repo, message, folder, sums)):
            return made
        # made anew each time: the client keeps in them how far it came
        operations = [CommitOperationAdd(path_in_repo=name, path_or_fileobj=folder / name) for name in send]
        done = hub.api().create_commit(
            repo, operations, commit_message=message, create_pr=create_pr, parent_commit=parent or None
        )
        return str(done.pr_revision) if create_pr else None

    with hub.explained(repo, "the upload"):
        return hub.persistent()(attempt)


def main() -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--folder", required=True, type=Path, help="closed release folder")
    arguments.add_argument("--options", required=True, type=json.loads, help='JSON: {"repo", "private", "create_pr"}')
    arguments.add_argument("--name", required=True, help="named in the commit message")
    arguments.add_argument("--dry-run", action="store_true", help="say what would be sent, send nothing")
    arguments.add_argument("--report", type=Path)
    return core.run(arguments, _step)


def _step(options: argparse.Namespace) -> None:
    target = options.options
    if not target.get("repo"):
        raise BuildError(f"no place to publish {options.name}", "config", "set publish.repo of the pair")
    report = publish(
        options.folder,
        target["repo"],
        f"Release {options.name}",
        private=target.get("private", False),
        create_pr=target.get("create_pr", False),
        dry_run=options.dry_run,
    )
    if options.report:
        report.write(options.report)


if __name__ == "__main__":
    sys.exit(main())
