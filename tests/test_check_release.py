"""check_release on small releases: what it says of texts that are broken, and that nothing is a traceback."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from demo.hub import FaultRule, HubServer
from scripts import check_release, core
from scripts.check_release import CHECKS, examine
from scripts.check_release_card import card_files, card_metadata
from scripts.check_release_files import checksums, names, outputs
from scripts.check_release_headers import headers
from scripts.check_release_source import HubRelease, Release, find
from scripts.release import SUMS
from scripts.verdict import Finding
from tests import release_parts
from tests.doctored import close_again, replace_once, rewrite
from tests.errors_table import Said

REPO = "demo-org/Tiny-GGUF"
TEXTS = (names, checksums, outputs, card_metadata, card_files)
"""All but what needs GGUF files that are some."""

Edit = Callable[[Path], object]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A closed release; its GGUF files are none."""
    return release_parts.closed(tmp_path / "release")


def shown(found: Iterable[Finding]) -> list[str]:
    return [f"{one.verdict}: {one.name}: {one.detail}" for one in found if one.verdict != "ok"]


def manifest(change: Callable[[Any], object]) -> Edit:
    """Change the manifest, and let SHA256SUMS fit."""

    def edit(folder: Path) -> None:
        value = core.read_json(folder / "manifest.json")
        change(value)
        rewrite(folder / "manifest.json", lambda _: json.dumps(value).encode())
        close_again(folder)

    return edit


def card(old: str, new: str) -> Edit:
    """Change the card, and let SHA256SUMS fit."""

    def edit(folder: Path) -> None:
        replace_once(folder / "README.md", old, new)
        close_again(folder)

    return edit


@pytest.mark.parametrize("full", [False, True])
def test_a_release_as_it_was_closed(full: bool, folder: Path) -> None:
    unread = "warning: 2 of 5 files have theirs; the GGUF files of a folder are not hashed without --full"
    assert shown(examine(find(str(folder), full=full), TEXTS)) == ([] if full else [f"warn: {SUMS}: {unread}"])


def test_a_release_on_the_hub(at_hub: HubServer, folder: Path) -> None:
    commit = at_hub.commit_folder(REPO, folder, "Release").id
    (folder / ".gitattributes").write_text("*.gguf filter=lfs\n")
    at_hub.commit_folder(REPO, folder, "As the Hub does")
    (folder / "README.md").unlink()
    at_hub.commit_folder(REPO, folder, "Break it")
    release = find(f"{REPO}@{commit}", full=False)
    assert isinstance(release, HubRelease)
    assert shown(examine(release, TEXTS)) == []
    assert shown(examine(find(f"{REPO}@main", full=False), (names,))) == ["fail: names: README.md is missing"]


def no_json(folder: Path) -> None:
    """Make the manifest one that cannot be read, and let SHA256SUMS fit."""
    rewrite(folder / "manifest.json", lambda _: b"{")
    close_again(folder)


GGUF = f"{release_parts.NAME}-Q8_0.gguf"
EDITS: list[tuple[str, Edit, list[str]]] = [
    (
        "a name twice",
        lambda folder: rewrite(folder / SUMS, lambda sums: sums + sums),
        [f"fail: names: cannot be checked: cannot read {SUMS}: a line is no sha256 and a new name"],
    ),
    (
        "no sums",
        lambda folder: (folder / SUMS).unlink(),
        [f"fail: names: cannot be checked: there is no {SUMS}"],
    ),
    (
        "no manifest",
        lambda folder: (folder / "manifest.json").unlink(),
        ["fail: names: manifest.json is missing", "fail: outputs: cannot be checked: there is no manifest.json"],
    ),
    (
        "a manifest that is none",
        no_json,
        ["fail: outputs: cannot be checked: manifest.json is not valid JSON"],
    ),
    (
        "a manifest without outputs",
        manifest(lambda value: value.pop("outputs")),
        ["fail: outputs: cannot be checked: manifest.json: manifest.json: 'outputs' is a required property"],
    ),
    (
        "a figure that is none",
        manifest(lambda value: value["outputs"][1].update(bytes="many")),
        ["fail: outputs: cannot be checked: manifest.json: outputs.1.bytes: 'many' is not of type 'integer'"],
    ),
    (
        "another size",
        manifest(lambda value: value["outputs"][1].update(bytes=7)),
        [f"fail: manifest: {GGUF} has 450 bytes, the manifest says 7", f"fail: card files: {GGUF}: size 450 B, the"],
    ),
    (
        "a GGUF that the manifest has not",
        manifest(lambda value: value["outputs"].pop(1)),
        [f"fail: manifest: {GGUF} is not in the manifest"],
    ),
    (
        "another base model",
        card("- owner/target\n", "- owner/other\n"),
        ["fail: card metadata: base_model is ['owner/draft', 'owner/other'], the manifest gives ['owner/draft', 'ow"],
    ),
    (
        "another license",
        card("license: apache-2.0\n", "license: mit\n"),
        ["fail: card metadata: license is 'mit', the manifest gives 'apache-2.0'"],
    ),
    (
        "a file that the card does not name",
        card(f"| {GGUF} |", "| other.gguf |"),
        [f"fail: card files: no row of a table has figures of {GGUF}"],
    ),
    (
        "a card without metadata that can be read",
        card("license: apache-2.0", "license: [apache-2.0"),
        ["fail: card metadata: cannot be checked: README.md is no model card"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "expected"), [case[1:] for case in EDITS], ids=[case[0] for case in EDITS])
def test_one_thing_that_does_not_fit(edit: Edit, expected: list[str], folder: Path) -> None:
    edit(folder)
    found = shown(examine(find(str(folder), full=True), TEXTS))
    assert len(found) == len(expected), found
    for line, start in zip(found, expected, strict=True):
        assert line.startswith(start)


def test_another_name_of_the_same_bytes_is_no_fault(folder: Path) -> None:
    alias = "dflash-Tiny-Q8_0.gguf"
    (folder / alias).write_bytes((folder / GGUF).read_bytes())
    line = f"{core.sha256_file(folder / alias)}  {alias}\n".encode()
    rewrite(folder / SUMS, lambda sums: sums + line)
    (found,) = outputs(find(str(folder), full=True))
    assert (found.ok, found.detail) == (True, "3 GGUF files with the manifest's sizes and sha256, 1 more names of them")


def test_a_gguf_that_is_none_is_a_finding(folder: Path) -> None:
    found = list(headers(find(str(folder), full=False)))
    assert [one.ok for one in found] == [False] * 3
    assert found[0].detail.startswith("GGUF version ")


def test_a_check_can_be_added(folder: Path) -> None:
    def signatures(release: Release) -> Iterable[Finding]:
        yield Finding("signatures", True, f"{len(release.files)} files")

    assert [one.name for one in examine(find(str(folder), full=False), [*CHECKS, signatures])][-1] == "signatures"


@pytest.mark.usefixtures("short_pauses")
def test_what_arrives_is_not_what_the_hub_vouches_for(
    at_hub: HubServer, folder: Path, capsys: pytest.CaptureFixture[str], said: Said
) -> None:
    at_hub.commit_folder(REPO, folder, "Release")
    at_hub.break_with(FaultRule("/cdn/", "flip", times=9, after=100))
    assert [one.ok for one in examine(find(REPO, full=False), TEXTS)] == [True] * 5
    assert check_release.main([REPO, "--full"]) == 1
    said("Published release: a damaged download", capsys.readouterr().err.splitlines()[-1])


@pytest.mark.parametrize(
    ("name", "title"),
    [("Tiny", "a name that is none"), ("owner/none", "a repository that is not there")],
)
def test_what_is_no_release(
    name: str, title: str, at_hub: HubServer, capsys: pytest.CaptureFixture[str], said: Said
) -> None:
    assert check_release.main([name]) == 1
    said(f"Published release: {title}", capsys.readouterr().err.splitlines()[-1])


def test_a_folder_of_something_else(tmp_path: Path, capsys: pytest.CaptureFixture[str], said: Said) -> None:
    (tmp_path / "README.md").write_text("# Something else")
    assert check_release.main([str(tmp_path)]) == 1
    said("Published release: a folder of something else", capsys.readouterr().err.splitlines()[-1])
