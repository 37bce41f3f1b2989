"""What llama.cpp takes from a listing, replayed, and compared with what the pinned llama-server asks a Hub for."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import HfApi

from demo.hub import HubServer
from scripts import config, publish, resolve
from scripts.core import BuildError
from tests import release_parts as parts
from tests.errors_table import Said

REPO, TARGET = "demo-org/Tiny-GGUF", "demo-org/Target-GGUF"
ORDINARY = ["README.md", *(f"Tiny-DFlash-{quant}.gguf" for quant in ("Q4_K_M", "Q8_0", "bf16"))]
ALIASED = [*ORDINARY, *(resolve.sidecar_name("owner/target", quant) for quant in ("Q4_K_M", "Q8_0", "bf16"))]
SIDECARS_ONLY = [name for name in ALIASED if name.startswith("dflash-")]
MIXED = [
    "Q8_0/model-Q8_0-00001-of-00002.gguf",
    "Q8_0/model-Q8_0-00002-of-00002.gguf",
    "dflash-model-BF16.gguf",
    "dflash-model-IQ4_XS.gguf",
    "eagle3-model-Q4_0.gguf",
    "model-IQ4_XS.gguf",
    "sub/dflash-model-Q4_0.gguf",
]
DSPARK = ["dflash-a-Q4_0.gguf", "dspark-a-Q4_0.gguf", "model.gguf"]
LOWER = ["tiny-dflash-Q4_K_M.gguf", "tiny-dflash-Q8_0.gguf"]
"""A pair named in small letters: every file of it is a sidecar, and no model."""

DFLASH = "draft-dflash"
CASES: list[tuple[list[str], str, str | None, list[str], str | None]] = [
    (ORDINARY, "Q4_K_M", None, ["Tiny-DFlash-Q4_K_M.gguf"], None),
    (ORDINARY, "q8_0", None, ["Tiny-DFlash-Q8_0.gguf"], None),
    (ORDINARY, "", None, ["Tiny-DFlash-Q4_K_M.gguf"], None),
    (ORDINARY, "Q8_0", DFLASH, ["Tiny-DFlash-Q8_0.gguf"], DFLASH),
    (ORDINARY, "Q5_K_M", None, [], None),
    (ALIASED, "Q4_K_M", None, ["dflash-target-Q4_K_M.gguf"], DFLASH),
    (ALIASED, "q8_0", None, ["dflash-target-Q8_0.gguf"], DFLASH),
    (ALIASED, "BF16", None, ["dflash-target-bf16.gguf"], DFLASH),
    (ALIASED, "", None, ["dflash-target-Q4_K_M.gguf"], DFLASH),
    (ALIASED, "Q8_0", DFLASH, ["dflash-target-Q8_0.gguf"], DFLASH),
    (ALIASED, "Q5_K_M", None, ["dflash-target-Q4_K_M.gguf"], DFLASH),
    (SIDECARS_ONLY, "Q8_0", None, ["dflash-target-Q8_0.gguf"], DFLASH),
    (SIDECARS_ONLY, "", None, ["dflash-target-Q4_K_M.gguf"], DFLASH),
    (MIXED, "Q8_0", DFLASH, ["dflash-model-IQ4_XS.gguf"], DFLASH),
    (MIXED, "Q8_0", None, ["dflash-model-IQ4_XS.gguf"], DFLASH),
    (
        MIXED,
        "Q8_0",
        "draft-mtp",
        ["Q8_0/model-Q8_0-00001-of-00002.gguf", "Q8_0/model-Q8_0-00002-of-00002.gguf"],
        "draft-mtp",
    ),
    (DSPARK, "", None, ["dspark-a-Q4_0.gguf"], "draft-dspark"),
    (LOWER, "Q8_0", None, ["tiny-dflash-Q8_0.gguf"], DFLASH),
    ([*ALIASED, "preset.ini"], "Q8_0", DFLASH, [], DFLASH),
]


@pytest.mark.parametrize(("paths", "tag", "spec_type", "files", "kind"), CASES)
def test_what_hfd_takes(paths: list[str], tag: str, spec_type: str | None, files: list[str], kind: str | None) -> None:
    assert resolve.draft(paths, tag, spec_type) == resolve.Draft(files, kind)


@pytest.mark.parametrize("paths", [ORDINARY, ALIASED])
def test_hf_on_a_drafts_repository_takes_the_ordinary_name_with_and_without_the_alias(paths: list[str]) -> None:
    assert resolve.serve(paths, "Q8_0") == ["Tiny-DFlash-Q8_0.gguf"]
    assert resolve.serve(paths) == ["Tiny-DFlash-Q4_K_M.gguf"]
    assert resolve.serve(SIDECARS_ONLY, "Q8_0") == []


@pytest.mark.parametrize("text", ["name", "a/b/c:Q8_0", "/b", "a/"])
def test_what_is_no_repository(text: str, said: Said) -> None:
    with pytest.raises(BuildError, match="no repository: ") as caught:
        resolve.split_repo_tag(text)
    if text == "name":
        said("Resolve: what is no repository", caught.value)


def test_repository_and_tag() -> None:
    assert resolve.split_repo_tag("a/b") == ("a/b", "")
    assert resolve.split_repo_tag("a/b:Q8_0") == ("a/b", "Q8_0")


def test_the_front_says_what_is_taken(at_hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = parts.closed(tmp_path / "release", sidecar=True)
    publish.publish(folder, REPO, "Release Tiny")
    assert resolve.main([f"{REPO}:Q8_0"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "-hf:  Tiny-DFlash-Q8_0.gguf",
        "-hfd: dflash-target-Q8_0.gguf (draft-dflash)",
    ]
    assert resolve.main([f"{REPO}:Q8_0", "--spec-type", "draft-mtp"]) == 0
    assert "-hfd: Tiny-DFlash-Q8_0.gguf (draft-mtp)" in capsys.readouterr().out


def test_nothing_fits(at_hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], said: Said) -> None:
    publish.publish(parts.closed(tmp_path / "release"), REPO, "Release Tiny")
    assert resolve.main([f"{REPO}:Q5_K_M"]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: no GGUF of demo-org/Tiny-GGUF fits Q5_K_M ")
    said("Resolve: a tag that no file has", line)


def test_a_sidecar_has_a_second_name_and_is_sent_once(at_hub: HubServer, tmp_path: Path) -> None:
    folder = parts.closed(tmp_path / "release", sidecar=True)
    figures = publish.publish(folder, REPO, "Release Tiny").figures
    files = {file.rfilename: file for file in HfApi().model_info(REPO, files_metadata=True).siblings or []}
    for quant in parts.QUANTS:
        assert files[f"dflash-target-{quant}.gguf"].lfs == files[f"Tiny-DFlash-{quant}.gguf"].lfs is not None
    sent = at_hub.log.entries(REPO, method="PUT")
    bytes_of_ggufs = sum((folder / f"Tiny-DFlash-{quant}.gguf").stat().st_size for quant in parts.QUANTS)
    assert (len(sent), sum(entry.received for entry in sent)) == (3, bytes_of_ggufs)
    assert figures["bytes"] == bytes_of_ggufs + sum(
        (folder / name).stat().st_size for name in ("README.md", "manifest.json", "SHA256SUMS")
    )


def test_an_alias_added_later_sends_no_byte_of_a_model(at_hub: HubServer, tmp_path: Path) -> None:
    publish.publish(parts.closed(tmp_path / "first"), REPO, "Release Tiny")
    at_hub.log.clear()
    figures = publish.publish(parts.closed(tmp_path / "second", sidecar=True), REPO, "More").figures
    assert [name for name in figures["changed"] if name.endswith(".gguf")] == SIDECARS_ONLY
    assert at_hub.log.entries(REPO, method="PUT") == []


def test_a_sidecars_name_must_be_free(said: Said) -> None:
    settings = config.load(config.ROOT / "demo" / "config.yaml")
    (pair,) = settings["pairs"].values()
    pair["name"] = "dflash-TinyQwen3.5-Coder"
    assert config.validated(settings) == settings
    pair["publish"]["sidecar"] = True
    with pytest.raises(BuildError, match="is the name of a pair") as caught:
        config.validated(settings)
    said("Config: a second name of files that is the name of a pair", caught.value)


@pytest.fixture(scope="module")
def listings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    """A Hub with a repository of small files for every listing of the cases, by its place among them, and a target."""
    tmp = tmp_path_factory.mktemp("listings")
    with HubServer(tmp / "hub") as hub:
        for number, paths in enumerate([*(case[0] for case in CASES), ["Target-Q4_K_M.gguf"]]):
            folder = tmp / str(number)
            for path in paths:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_text(f"no GGUF: {path}")
            hub.commit_folder(f"demo-org/{number}" if number < len(CASES) else TARGET, folder, "Add files")
        yield hub


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(CASES)))
def test_the_pinned_llama_server_asks_for_the_same_files(
    number: int, listings: HubServer, toolchain: Path, tmp_path: Path
) -> None:
    _, tag, spec_type, files, _ = CASES[number]
    repo = f"demo-org/{number}"
    listings.log.clear()
    command = [toolchain / "bin" / "llama-server", "-hf", TARGET, "-hfd", f"{repo}:{tag}" if tag else repo]
    command += ["--spec-type", spec_type] if spec_type else []
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HF_ENDPOINT": listings.endpoint}
    # it ends when it finds that what it downloaded is no GGUF
    done = subprocess.run([*map(str, command), "--port", "0"], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    asked = {entry.file for entry in listings.log.entries(repo, method="GET", cdn=False) if entry.file}
    assert {path for path in asked if path.endswith(".gguf")} == set(files), done.stderr[-2000:]
