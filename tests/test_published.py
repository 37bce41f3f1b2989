"""The embedded pair as the chain published it: doctor and check_release pass, and each doctored variant fails alone."""

import json
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest

from demo import pair
from demo.hub import HubServer
from scripts import check_release, core, doctor, resolve
from scripts.core import BuildError
from scripts.doctor_source import Model, draft_file, read
from scripts.release import BILL, PROVENANCE, SUMS
from tests.chain import Chain
from tests.doctored import Doctored, close_again, replace_once, rewrite
from tests.errors_table import Said

pytestmark = pytest.mark.slow

REPO = "demo-org/TinyQwen3.5-Coder-DFlash-GGUF"
NAME = "TinyQwen3.5-Coder-DFlash"
TARGET = "TinyQwen3.5-Coder-Q4_K_M.gguf"


@pytest.fixture
def released(chain: Chain, tmp_path: Path) -> Path:
    """A copy of the chain's release, to be doctored."""
    for path in (chain.results / "release").iterdir():
        core.link_or_copy(path, tmp_path / "release" / path.name)
    return tmp_path / "release"


@pytest.fixture(scope="module")
def target(pair_repos: Path) -> Model:
    """The embedded target's header."""
    return read(str(pair_repos / "finetune-gguf" / TARGET), resolve.best_model, all_tensors=False)


def published(server: HubServer, folder: Path) -> str:
    """Put a release on the Hub; its commit."""
    commit: str = server.commit_folder(REPO, folder, "Release").id
    server.log.clear()
    return commit


def test_the_embedded_pair_works(
    at_hub: HubServer, released: Path, pair_repos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = at_hub
    server.commit_folder(pair.GGUF_REPO, pair_repos / "finetune-gguf", "Add the target")
    commit = published(server, released)
    arguments = ["--target", f"{pair.GGUF_REPO}:Q8_0", "--json", str(tmp_path / "found.json")]
    assert doctor.main(["--draft", f"{REPO}@{commit}:Q4_K_M", *arguments]) == 0
    said = capsys.readouterr().out
    print(said)
    assert said.splitlines()[-1].startswith("works: 26 ok, 0 warn, 0 fail; ")
    found = core.read_json(tmp_path / "found.json")
    assert (found["ok"], found["verdict"], found["draft"]["commit"]) == (True, "works", commit)
    assert found["draft"]["files"] == [f"{NAME}-Q4_K_M.gguf"]
    for role, repo in (("draft", REPO), ("target", pair.GGUF_REPO)):
        assert server.log.bytes_for(repo, ".gguf") == found[role]["bytes_read"] < 12_000_000


def test_a_pair_of_local_files_works(released: Path, pair_repos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draft, served = f"{released}:Q8_0", str(pair_repos / "finetune-gguf" / TARGET)
    assert doctor.main(["--draft", draft, "--target", served]) == 0
    assert f"-hfd <repository>:Q8_0 --spec-type draft-dflash takes {NAME}-Q8_0.gguf" in capsys.readouterr().out


Edit = Callable[[Doctored], None]
DRAFTS: dict[str, Edit] = {
    "another token text": lambda file: file.replace(b"<|audio_start|>", b"<|audio_begin|>"),
    "mask id beyond the embedding": lambda file: file.set("tokenizer.ggml.mask_token_id", 248320),
    "mask id of a live token": lambda file: file.set("tokenizer.ggml.mask_token_id", 248046),
    "taps beyond the target's blocks": lambda file: file.set("dflash.target_layers", 2, 4, 9),
    "a fork's architecture": lambda file: file.set_text("general.architecture", "dflash-draft"),
    "no block size": lambda file: file.drop("dflash.block_size"),
    "a window pattern of numbers": lambda file: file.set_kind(
        "dflash.attention.sliding_window_pattern", gguf.GGUFValueType.UINT8
    ),
    "another pre-tokenizer": lambda file: file.set_text("tokenizer.ggml.pre", "llama3"),
}


def doctored(chain: Chain, edit: Edit, folder: Path) -> Path:
    """A repository's folder with one doctored draft in it."""
    file = Doctored(chain.results / "release" / f"{NAME}-Q4_K_M.gguf")
    edit(file)
    folder.mkdir()
    return file.write(folder / f"{NAME}-Q4_K_M.gguf")


@pytest.mark.parametrize("edit", DRAFTS.values(), ids=DRAFTS.keys())
def test_a_draft_that_does_not_work(
    edit: Edit, at_hub: HubServer, chain: Chain, target: Model, tmp_path: Path, said: Said
) -> None:
    published(at_hub, doctored(chain, edit, tmp_path / "repo").parent)
    with pytest.raises(BuildError) as caught:
        doctor.diagnose(read(f"{REPO}:Q4_K_M", draft_file, all_tensors=True), target)
    said("Doctor: {id}", caught.value)


def test_a_target_of_another_width(released: Path, pair_repos: Path, tmp_path: Path, said: Said) -> None:
    file = Doctored(pair_repos / "finetune-gguf" / TARGET)
    file.set("qwen35.embedding_length", 512)
    draft = read(str(released / f"{NAME}-Q4_K_M.gguf"), draft_file, all_tensors=True)
    wide = read(str(file.write(tmp_path / TARGET)), resolve.best_model, all_tensors=False)
    with pytest.raises(BuildError) as caught:
        doctor.diagnose(draft, wide)
    said("Doctor: hidden size of another target", caught.value)


def test_a_name_that_llama_cpp_does_not_find(
    at_hub: HubServer, released: Path, target: Model, tmp_path: Path, said: Said
) -> None:
    (tmp_path / "repo").mkdir()
    core.link_or_copy(released / f"{NAME}-Q4_K_M.gguf", tmp_path / "repo" / f"{NAME}-Q4_K_M_final.gguf")
    published(at_hub, tmp_path / "repo")
    with pytest.raises(BuildError) as caught:
        doctor.diagnose(read(f"{REPO}:Q4_K_M", draft_file, all_tensors=True), target)
    said("Doctor: a name that -hfd does not find", caught.value)


def test_an_embedding_of_its_own_is_a_warning(
    chain: Chain, target: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = doctored(chain, lambda file: file.add_tensor("token_embd.weight", 256), tmp_path / "repo")
    doctor.diagnose(read(str(path), draft_file, all_tensors=True), target)
    said = capsys.readouterr().out
    assert "| own embedding                | warn      | token_embd.weight of 1024 bytes are in the draft" in said
    assert "works: 25 ok, 1 warn, 0 fail" in said


@pytest.mark.parametrize("full", [[], ["--full"]], ids=["headers", "full"])
def test_the_release_is_verified(
    full: list[str], at_hub: HubServer, released: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commit = published(at_hub, released)
    arguments = [f"{REPO}@{commit}", *full, "--json", str(tmp_path / "found.json")]
    assert check_release.main(arguments) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    print(said)
    found = core.read_json(tmp_path / "found.json")
    assert said.splitlines()[-1].startswith(f"verified: {14 if full else 11} ok, 0 warn, 0 fail; ")
    assert (found["ok"], found["commit"], found["full"], found["files"]) == (True, commit, bool(full), 8)
    asked = at_hub.log.bytes_for(REPO, (".gguf", ".md", ".json", SUMS))
    assert asked == found["bytes_read"]
    assert asked == found["bytes"] if full else asked < found["bytes"]


def edited_sums(folder: Path) -> None:
    sums = (folder / SUMS).read_text()
    rewrite(folder / SUMS, lambda _: (sums[:5] + ("0" if sums[5] != "0" else "1") + sums[6:]).encode())


def edited_manifest(folder: Path) -> None:
    manifest = core.read_json(folder / "manifest.json")
    manifest["outputs"][-1]["bpw"] += 1
    rewrite(folder / "manifest.json", lambda _: json.dumps(manifest).encode())
    close_again(folder)


def flipped_byte(folder: Path) -> None:
    rewrite(
        folder / f"{NAME}-Q4_K_M.gguf", lambda content: content[:-1000] + bytes([content[-1000] ^ 1]) + content[-999:]
    )


def another_sha256(folder: Path) -> None:
    sha256 = core.read_json(folder / "manifest.json")["outputs"][0]["sha256"]
    replace_once(folder / "README.md", sha256, sha256[::-1])
    close_again(folder)


def another_header(folder: Path) -> None:
    """A file that was changed after it was verified, with manifest and sums made to fit."""
    path = folder / f"{NAME}-Q8_0.gguf"
    file = Doctored(path)
    file.set_text("general.license", "mit")
    path.unlink()
    file.write(path)
    manifest = core.read_json(folder / "manifest.json")
    (output,) = (output for output in manifest["outputs"] if output["file"] == path.name)
    old = output["sha256"], output["bytes"]
    output |= {"sha256": core.sha256_file(path), "bytes": path.stat().st_size}
    rewrite(folder / "manifest.json", lambda _: json.dumps(manifest).encode())
    replace_once(folder / "README.md", old[0], output["sha256"])
    assert core.human(old[1]) == core.human(output["bytes"])
    close_again(folder)


def another_subject(folder: Path) -> None:
    """A statement about another file, with sums made to fit."""
    statement = core.read_json(folder / PROVENANCE)
    statement["subject"][-1]["digest"]["sha256"] = "0" * 64
    rewrite(folder / PROVENANCE, lambda _: json.dumps(statement).encode())
    close_again(folder)


def another_input(folder: Path) -> None:
    """A statement that names another commit of the target, with sums made to fit."""
    commit = core.read_json(folder / "manifest.json")["inputs"]["target"]["commit"]
    rewrite(folder / PROVENANCE, lambda content: content.replace(commit.encode(), commit[::-1].encode()))
    close_again(folder)


def another_bill(folder: Path) -> None:
    """A bill of materials for another file, with provenance and sums made to fit."""
    sha256 = core.read_json(folder / "manifest.json")["outputs"][0]["sha256"]
    replace_once(folder / BILL, sha256, sha256[::-1])
    statement = core.read_json(folder / PROVENANCE)
    (subject,) = (one for one in statement["subject"] if one["name"] == BILL)
    subject["digest"]["sha256"] = core.sha256_file(folder / BILL)
    rewrite(folder / PROVENANCE, lambda _: json.dumps(statement).encode())
    close_again(folder)


RELEASES: dict[str, Callable[[Path], object]] = {
    "a sum edited": edited_sums,
    "a figure of the manifest edited": edited_manifest,
    "a file added": lambda folder: (folder / "notes.txt").write_text("more"),
    "a file missing": lambda folder: (folder / f"{NAME}-Q8_0.gguf").unlink(),
    "a sha256 in the card edited": another_sha256,
    "a header edited": another_header,
    "a subject of the provenance edited": another_subject,
    "an input of the provenance edited": another_input,
    "a sha256 in the bill of materials edited": another_bill,
}


@pytest.mark.parametrize("edit", RELEASES.values(), ids=RELEASES.keys())
def test_a_release_that_is_not_what_it_says(
    edit: Callable[[Path], object], at_hub: HubServer, released: Path, capsys: pytest.CaptureFixture[str], said: Said
) -> None:
    edit(released)
    published(at_hub, released)
    assert check_release.main([REPO]) == 1
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1].startswith("not verified: ")
    said("Published release: {id}", shown.err.splitlines()[-1])


def test_a_flipped_byte_is_found_by_reading_all(released: Path, capsys: pytest.CaptureFixture[str], said: Said) -> None:
    flipped_byte(released)
    assert check_release.main([str(released)]) == 0
    assert check_release.main([str(released), "--full"]) == 1
    said("Published release: a byte of a GGUF flipped, with --full", capsys.readouterr().err.splitlines()[-1])
