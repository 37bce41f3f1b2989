"""What llama.cpp takes for ``-hfd REPO:QUANT``: its rules on listings as they are published."""

from pathlib import Path

import pytest

from demo.hub import HubServer
from scripts import process
from scripts.gguf_remote import parts
from scripts.gguf_resolve import Found, draft, rivals

ORDINARY = ["README.md", "X-DFlash-Q4_K_M.gguf", "X-DFlash-Q8_0.gguf", "X-DFlash-bf16.gguf"]
SIDECARS = ["dflash-X-Q4_K_M.gguf", "dflash-X-Q8_0.gguf", "dflash-X-bf16.gguf"]
NESTED = ["Q8_0/dflash-X-Q8_0.gguf", "Q8_0/X-Q8_0.gguf", "dflash-X-Q4_K_M.gguf", "X-Q4_K_M.gguf"]


CASES: list[tuple[list[str], str | None, Found | None]] = [
    (ORDINARY, "Q8_0", Found("X-DFlash-Q8_0.gguf", False, True)),
    (ORDINARY, "q8_0", Found("X-DFlash-Q8_0.gguf", False, True)),
    (ORDINARY, "F16", Found("X-DFlash-bf16.gguf", False, True)),
    (ORDINARY, None, Found("X-DFlash-Q4_K_M.gguf", False, True)),
    (ORDINARY[2:], None, Found("X-DFlash-Q8_0.gguf", False, True)),
    (ORDINARY[3:], None, Found("X-DFlash-bf16.gguf", False, True)),
    (ORDINARY, "Q6_K", None),
    (SIDECARS, "Q8_0", Found("dflash-X-Q8_0.gguf", True, True)),
    (SIDECARS, "Q6_K", Found("dflash-X-Q4_K_M.gguf", True, False)),
    (SIDECARS, "Q5_K_M", Found("dflash-X-Q4_K_M.gguf", True, False)),
    (SIDECARS, "BF16", Found("dflash-X-bf16.gguf", True, True)),
    (ORDINARY + SIDECARS, "Q8_0", Found("dflash-X-Q8_0.gguf", True, True)),
    (ORDINARY + SIDECARS, None, Found("dflash-X-Q4_K_M.gguf", True, True)),
    (NESTED, "Q8_0", Found("Q8_0/dflash-X-Q8_0.gguf", True, True)),
    (NESTED, "Q4_K_M", Found("dflash-X-Q4_K_M.gguf", True, True)),
    (["Q8_0/dflash-X-Q8_0.gguf"], "Q8_0", None),
    (["X-DFlash_Q8_0_final.gguf"], "Q8_0", None),
    (["DFlash-X-Q8_0.gguf"], "Q8_0", Found("DFlash-X-Q8_0.gguf", False, True)),
    (["X-Q8_0-00002-of-00002.gguf", "X-Q8_0-00001-of-00002.gguf"], "Q8_0",
     Found("X-Q8_0-00001-of-00002.gguf", False, True)),
    ([*ORDINARY, "preset.ini"], "Q8_0", None),
    (["README.md"], None, None),
]  # fmt: skip
"""Files of a repository, quant asked for, what is taken."""


@pytest.mark.parametrize(("listing", "quant", "found"), CASES)
def test_the_file_that_is_taken(listing: list[str], quant: str | None, found: Found | None) -> None:
    assert draft(listing, quant) == found


def test_sidecars_of_other_kinds_are_named() -> None:
    assert rivals([*ORDINARY, "mtp-X-Q8_0.gguf", "dspark-X.gguf", "mtp-notes.md"]) == [
        "mtp-X-Q8_0.gguf",
        "dspark-X.gguf",
    ]


@pytest.mark.slow
def test_the_pinned_llama_server_takes_the_same(hub: HubServer, toolchain: Path, tmp_path: Path) -> None:
    """It asks the Hub for the draft, and then ends, as the files are no models."""
    home = {"HF_HOME": str(tmp_path / "home"), "HF_HUB_CACHE": str(tmp_path / "cache"), "LLAMA_CACHE": str(tmp_path)}
    env = process.environment({**home, "HF_ENDPOINT": hub.endpoint, "MODEL_ENDPOINT": f"{hub.endpoint}/"})
    commit(hub, "demo-org/target", ["Target-Q8_0.gguf"], tmp_path)
    asked = {}
    for number, (listing, quant, _) in enumerate(CASES):
        repo = f"demo-org/draft{number}"
        commit(hub, repo, listing, tmp_path)
        named = f"{repo}:{quant}" if quant else repo
        command = f"-hf demo-org/target:Q8_0 -hfd {named} --spec-type draft-dflash --no-mmproj -t 1".split()
        code, _ = process.stream([toolchain / "bin" / "llama-server", *command], lambda _: None, env=env)
        assert code == 1
        asked[number] = {entry.file for entry in hub.log.entries(repo, suffix=".gguf")}
    assert asked == {
        number: set(parts(found.path, listing, "")) if found else set()
        for number, (listing, _, found) in enumerate(CASES)
    }


def commit(hub: HubServer, repo: str, listing: list[str], tmp_path: Path) -> None:
    """A repository of these files, none of which is a model."""
    for name in listing:
        path = tmp_path / repo / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"no model: {name}")
    hub.commit_folder(repo, tmp_path / repo, "Add")
