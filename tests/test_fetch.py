"""What is downloaded, what is checked, and what a damaged download leaves behind: nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from demo.hub import FaultRule, HubServer
from scripts import core, fetch, lock
from scripts.core import BuildError
from tests.errors_table import Said

WEIGHTS = "model.safetensors"
pytestmark = pytest.mark.usefixtures("short_pauses")


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    """A folder like a draft's repository, with more in it than the build needs."""
    folder = tmp_path / "draft"
    folder.mkdir()
    save_file({"fc.weight": torch.ones(64, 64, dtype=torch.bfloat16)}, folder / WEIGHTS)
    for name, text in {"config.json": "{}", "README.md": "# Draft", "LICENSE": "Apache", "modeling.py": "1"}.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A folder like a target's repository, weights included."""
    folder = tmp_path / "target"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.json", "modeling.py"):
        (folder / name).write_text("{}")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / WEIGHTS).write_bytes(b"w" * 100_000)
    return folder


def _locked(server: HubServer, folder: Path, role: str = "draft") -> dict[str, Any]:
    server.commit_folder(f"demo-org/{role}", folder, "Add files")
    entry: dict[str, Any] = lock.resolve(f"demo-org/{role}", "main")
    server.log.clear()
    return entry


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_draft_comes_with_weights_config_readme_and_license(at_hub: HubServer, draft: Path, tmp_path: Path) -> None:
    report = fetch.fetch(_locked(at_hub, draft), "draft", tmp_path / "out")
    assert _names(tmp_path / "out") == {WEIGHTS, "config.json", "README.md", "LICENSE"}
    assert report.ok
    sums = {file["path"]: file.get("sha256") for file in report.figures["files"]}
    assert sums[WEIGHTS] == core.sha256_file(draft / WEIGHTS)


def test_not_one_byte_of_a_targets_weights_is_asked_for(at_hub: HubServer, target: Path, tmp_path: Path) -> None:
    fetch.fetch(_locked(at_hub, target, "target"), "target", tmp_path / "out")
    assert "tokenizer.json" in _names(tmp_path / "out")
    assert WEIGHTS not in _names(tmp_path / "out")
    assert at_hub.log.requests_for("demo-org/target", ".safetensors") == []
    assert at_hub.log.requests_for("demo-org/target", "tokenizer.json") != []


def test_a_second_pair_with_the_same_draft_downloads_nothing(at_hub: HubServer, draft: Path, tmp_path: Path) -> None:
    entry = _locked(at_hub, draft)
    fetch.fetch(entry, "draft", tmp_path / "one")
    at_hub.log.clear()
    fetch.fetch(entry, "draft", tmp_path / "two")
    assert at_hub.log.bytes_for("demo-org/draft") == 0
    assert _names(tmp_path / "one") == _names(tmp_path / "two")


def test_shards_are_found_through_the_index(at_hub: HubServer, draft: Path, tmp_path: Path) -> None:
    (draft / WEIGHTS).unlink()
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    for name, shard in shards.items():
        save_file({name: torch.ones(4, 4, dtype=torch.bfloat16)}, draft / shard)
    (draft / fetch.INDEX).write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    fetch.fetch(_locked(at_hub, draft), "draft", tmp_path / "out")
    assert {*shards.values(), fetch.INDEX} <= _names(tmp_path / "out")


def test_a_shard_that_is_not_there(at_hub: HubServer, draft: Path, tmp_path: Path, said: Said) -> None:
    (draft / fetch.INDEX).write_text(json.dumps({"weight_map": {"a": "model-00001-of-00001.safetensors"}}))
    with pytest.raises(
        BuildError, match=r"shard model-00001-of-00001\.safetensors is in the index but not in"
    ) as caught:
        fetch.fetch(_locked(at_hub, draft), "draft", tmp_path / "out")
    said("Download: a shard of the index that is not in the repository", caught.value)


def test_what_is_not_selected_any_more_goes(at_hub: HubServer, draft: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old.safetensors").write_text("left over")
    fetch.fetch(_locked(at_hub, draft), "draft", tmp_path / "out")
    assert "old.safetensors" not in _names(tmp_path / "out")


@pytest.mark.parametrize(
    "rule",
    [
        FaultRule("/cdn/", "flip", after=500),
        FaultRule("/cdn/", "reset", after=500),
        FaultRule("/cdn/", "cut", after=500),
        FaultRule("/cdn/", "status", status=503),
        FaultRule("/cdn/", "status", status=429, retry_after=1),
    ],
    ids=lambda rule: f"{rule.kind}-{rule.status}",
)
def test_a_passing_fault_is_overcome(rule: FaultRule, at_hub: HubServer, draft: Path, tmp_path: Path) -> None:
    entry = _locked(at_hub, draft)
    at_hub.break_with(rule)
    fetch.fetch(entry, "draft", tmp_path / "out")
    assert (tmp_path / "out" / WEIGHTS).read_bytes() == (draft / WEIGHTS).read_bytes()


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (FaultRule("/cdn/", "flip", times=9, after=500), "is not what the Hub vouches for: sha256"),
        (FaultRule("/cdn/", "short", times=9, after=500), r"arrives short \(500 of \d+ bytes\)"),
        (FaultRule("/cdn/", "body", times=9), r"arrives short \(37 of \d+ bytes\)"),
        (FaultRule("config.json", "body", times=9, body="{}}", content_type="application/json"), "config.json"),
    ],
    ids=["bit flip", "short body", "sign-in page", "changed text"],
)
def test_a_lasting_fault_is_one_line_and_leaves_nothing(
    rule: FaultRule, message: str, at_hub: HubServer, draft: Path, tmp_path: Path, said: Said
) -> None:
    entry = _locked(at_hub, draft)
    at_hub.break_with(rule)
    with pytest.raises(BuildError, match=message) as caught:
        fetch.fetch(entry, "draft", tmp_path / "out")
    assert "\n" not in str(caught.value)
    damaged = "config.json" if "config" in rule.path else WEIGHTS
    assert damaged not in _names(tmp_path / "out")
    at_hub.faults.clear()
    fetch.fetch(entry, "draft", tmp_path / "out")
    assert (tmp_path / "out" / damaged).read_bytes() == (draft / damaged).read_bytes()
    said("Download: {id}", caught.value)


def test_a_cached_file_that_was_damaged_is_fetched_again(at_hub: HubServer, draft: Path, tmp_path: Path) -> None:
    entry = _locked(at_hub, draft)
    fetch.fetch(entry, "draft", tmp_path / "one")
    (cached,) = (tmp_path / "cache").rglob(f"snapshots/*/{WEIGHTS}")
    broken = bytearray((draft / WEIGHTS).read_bytes())
    broken[700] ^= 1
    blob = cached.resolve()
    blob.unlink()  # the first pair's files are links to the same bytes
    blob.write_bytes(broken)
    fetch.fetch(entry, "draft", tmp_path / "two")
    assert (tmp_path / "two" / WEIGHTS).read_bytes() == (draft / WEIGHTS).read_bytes()


@pytest.mark.parametrize(
    ("role", "missing", "message"),
    [
        ("draft", "config.json", "the draft has no config.json"),
        ("draft", WEIGHTS, "the draft has no model.safetensors"),
        ("target", "config.json", "the target has no config.json"),
        ("target", "tokenizer.json", "the target has no tokenizer.json"),
        ("target", "tokenizer_config.json", "the target has no tokenizer_config.json"),
    ],
)
def test_a_repository_without_what_is_needed(
    role: str, missing: str, message: str, at_hub: HubServer, draft: Path, target: Path, tmp_path: Path, said: Said
) -> None:
    folder = draft if role == "draft" else target
    (folder / missing).unlink()
    with pytest.raises(BuildError, match=message) as caught:
        fetch.fetch(_locked(at_hub, folder, role), role, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    said(f"Download: a {role} without {missing}", caught.value)


def test_a_draft_that_needs_a_pickle(at_hub: HubServer, draft: Path, tmp_path: Path, said: Said) -> None:
    (draft / "mask_embedding.pt").write_bytes(b"\x80\x04.")
    with pytest.raises(BuildError, match=r"needs mask_embedding\.pt, a pickle") as caught:
        fetch.fetch(_locked(at_hub, draft), "draft", tmp_path / "out")
    said("Download: a draft that needs a pickle", caught.value)


@pytest.mark.parametrize(
    ("dtype", "message"),
    [(torch.float16, "F16"), (torch.float32, "F32"), (torch.float8_e4m3fn, "F8_E4M3")],
)
def test_weights_that_are_not_bf16(
    dtype: torch.dtype, message: str, at_hub: HubServer, draft: Path, tmp_path: Path, said: Said
) -> None:
    save_file({"fc.weight": torch.ones(64, 64).to(dtype)}, draft / WEIGHTS)
    with pytest.raises(BuildError, match=message) as caught:
        fetch.fetch(_locked(at_hub, draft), "draft", tmp_path / "out")
    said(f"Download: a draft with {message} weights", caught.value)


def test_a_private_draft_needs_a_token(
    at_hub: HubServer, draft: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    entry = _locked(at_hub, draft)
    at_hub.create_repo("demo-org/draft", private=True)
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(
        BuildError, match=r"does not exist, or it is private .*: check the name; for a private"
    ) as caught:
        fetch.fetch(entry, "draft", tmp_path / "out")
    monkeypatch.setenv("HF_TOKEN", at_hub.token("read"))
    fetch.fetch(entry, "draft", tmp_path / "out")
    said("Hub: a private repository without a token (401)", caught.value)


def test_the_token_does_not_go_to_the_host_of_the_bodies(at_hub: HubServer, draft: Path, tmp_path: Path) -> None:
    fetch.fetch(_locked(at_hub, draft), "draft", tmp_path / "out")
    bodies = [entry for entry in at_hub.log.entries() if entry.path.startswith("/cdn/")]
    assert bodies
    assert not any(entry.authorization for entry in bodies)
