"""Upload a closed release folder as one commit, then list the repository again and compare every file.

Files that are there already with the same content are not sent again, so a second run changes nothing. The commit names
the state it was made for as its parent: if somebody changed a file of the release meanwhile, nothing is sent over it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import ModelCard
from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

from scripts import core, hub, upload
from scripts.core import BuildError, Report
from scripts.release import CARD, SIGNATURE, SUMS, read_sums
from scripts.upload import Change, Release, remote_files


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


def check_card(path: Path, repo: str) -> None:
    """Have the Hub check the card's metadata, as it would when the card is committed.

    Raises:
        BuildError: the Hub refuses it, or cannot be asked.
    """
    do = "mend `license` of the pair, or workflow/templates/card.md.j2"
    try:
        card = ModelCard(path.read_text(encoding="utf-8"))
        with hub.explained(repo, "checking its card"):
            hub.persistent()(card.validate, "model")
    except (ValueError, yaml.YAMLError) as error:
        raise BuildError(f"the card's metadata is refused: {str(error)[:300]}", path, do) from error


def publish(
    folder: Path,
    repo: str,
    message: str,
    *,
    private: bool = False,
    create_pr: bool = False,
    tag: str | None = None,
    remove: bool = False,
    dry_run: bool = False,
) -> Report:
    """Publish the release in ``folder`` to ``repo``; ``dry_run`` says what would be sent and sends nothing.

    ``tag`` is a tag for the release, with ``{id}`` for what names its content; it waits until the main branch holds the
    release. ``remove`` takes away the files of the release before that are not in this one.

    Raises:
        BuildError: the folder is not a closed release, a file changed since it was closed, the tag is taken, the Hub
            said no or refuses the card, or the repository does not hold afterwards what the folder holds.
    """
    sums = intact(folder)
    unnamed = [name for name in (SUMS, SIGNATURE) if (folder / name).exists()]
    release = Release(folder, sums | {name: core.sha256_file(folder / name) for name in unnamed})
    named = upload.tag_name(tag, release) if tag else None
    report = Report(figures={"repo": repo, "url": hub.page(repo)})
    check_card(folder / CARD, repo)
    head, remote = _open(repo, private=private, dry_run=dry_run)
    if named and head:
        upload.check_tag(repo, named, release)
    revision = upload.open_pr(repo, message, release) if create_pr else None
    change = Change(head, remote, [] if revision else release.changed(remote))
    if remove and not revision:
        change.remove = upload.left_over(repo, head, remote, release.sums)
    for name in sorted({*release.sums, *change.remove}):
        verb = "remove" if name in change.remove else "send" if name in change.send else "keep"
        size = remote[name].size if name in change.remove else (folder / name).stat().st_size
        core.say(f"{verb} {name} ({core.human(size)})")
    sent = release.size(change.send)
    report.figures.update(changed=change.send, removed=change.remove, bytes=sent, commit=head, dry_run=dry_run)
    counted = f"{len(change.send)} of {len(release.sums)} files"
    if dry_run:
        core.say(f"dry run: {counted}, {core.human(sent)}, would go to {hub.page(repo)}")
        return report
    if change.send or change.remove:
        revision = upload.commit(repo, release, change, message, create_pr=create_pr)
    _read_back(report, release, change.remove, revision)
    if named and not revision:
        upload.set_tag(repo, named, report.figures["commit"], message, release)
        report.check("tag", True, f"{named} is this release")
    elif named:
        core.say(f"tag {named} waits for the pull request: publish again when it has been merged")
    report.figures["tag"] = named if named and not revision else None
    core.say(f"{counted} sent to {hub.page(repo)} as {revision or 'main'} at {report.figures['commit'][:12]}")
    return report


def _read_back(report: Report, release: Release, removed: Sequence[str], revision: str | None) -> None:
    """List the repository again and compare every file with the release."""
    repo = report.figures["repo"]
    commit, listed = remote_files(repo, revision)
    wrong, there = release.changed(listed), [name for name in removed if name in listed]
    count = len(release.sums)
    report.require(
        "published files match",
        not wrong,
        f"{count - len(wrong)} of {count} files of {repo} have the size and sha256 of the release",
        hub.page(repo),
        f"publish again; {wrong[0] if wrong else 'nothing'} differs",
    )
    if removed:
        detail = f"{len(removed) - len(there)} of {len(removed)} files of the release before are not in {repo} any more"
        report.require("old files are gone", not there, detail, hub.page(repo), "publish again")
    report.figures.update(commit=commit, revision=revision or "main")


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


def main() -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--folder", required=True, type=Path, help="closed release folder")
    arguments.add_argument("--options", required=True, type=json.loads, help="JSON: `publish` of the pair's config")
    arguments.add_argument("--name", required=True, help="named in the commit message")
    arguments.add_argument("--dry-run", action="store_true", help="say what would be sent, send nothing")
    arguments.add_argument("--report", type=Path)
    return core.run(arguments, _step)


def _step(options: argparse.Namespace) -> None:
    target = options.options
    if not sys.stderr.isatty():
        disable_progress_bars()  # bars redraw themselves: no text for a log
    if not target.get("repo"):
        raise BuildError(f"no place to publish {options.name}", "config", "set publish.repo of the pair")
    report = publish(
        options.folder,
        target["repo"],
        f"Release {options.name}",
        private=target.get("private", False),
        create_pr=target.get("create_pr", False),
        tag=target.get("tag"),
        remove=target.get("remove", False),
        dry_run=options.dry_run,
    )
    if options.report:
        report.write(options.report)


if __name__ == "__main__":
    sys.exit(main())
