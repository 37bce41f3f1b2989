"""The whole chain on the embedded pair, as `make demo` runs it, in copies of the project."""

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from demo import pair
from demo import run as demo_run
from scripts import config, core, release, toolchain
from tests.chain import KEY, Chain, copy

pytestmark = pytest.mark.slow

CLOSING = {"provenance", "release", "sign", "all", "publish_pair", "publish"}
"""The rules that run whenever a file of a release changes."""


def test_every_contracted_file_is_there(chain: Chain) -> None:
    name = config.load(demo_run.CONFIG)["pairs"][KEY]["name"]
    expected = ["target/tokenizer.json", "mlx/config.json", "mlx/model.safetensors", "release/manifest.json"]
    expected += [f"gguf/{name}-{quant}.gguf" for quant in ("bf16", "Q8_0", "Q4_K_M")]
    expected += [f"source/{role}/config.json" for role in ("draft", "target", "base")]
    reports = ("lock", "vocab", "target", "convert", "gguf-bf16", "gguf-Q8_0", "gguf-Q4_K_M", "mlx", "publish")
    expected += [f"reports/{report}.json" for report in reports]
    assert [path for path in expected if not (chain.results / path).is_file()] == []
    for report in reports:
        read = core.read_json(chain.results / "reports" / f"{report}.json")
        assert read["ok"] is True
        assert read["checks"]


def test_q4_k_m_is_really_q4_k_m(chain: Chain) -> None:
    types = core.read_json(chain.results / "reports" / "gguf-Q4_K_M.json")["types"]
    assert set(types) == {"F32", "Q4_K", "Q6_K"}
    assert types["Q4_K"] > types["Q6_K"] > 0


def test_not_one_byte_of_target_weights_was_asked_for(chain: Chain) -> None:
    log = chain.hub.log
    assert log.requests_for(pair.FINETUNE_REPO, (".safetensors", ".gguf", ".bin")) == []
    assert log.bytes_for(pair.FINETUNE_REPO, "tokenizer.json") > 10_000_000


def test_of_the_served_target_only_the_header_was_read(chain: Chain) -> None:
    report = core.read_json(chain.results / "reports" / "target.json")
    asked = chain.hub.log.requests_for(pair.GGUF_REPO, ".gguf")
    assert {entry.file for entry in asked} == set(report["files"])
    assert chain.hub.log.bytes_for(pair.GGUF_REPO, ".gguf") == report["bytes_read"] < 12_000_000
    assert (report["commit"], report["tokens"]) == (chain.hub.repo(pair.GGUF_REPO).resolve("main").id, 248_320)
    manifest = core.read_json(chain.results / "release" / "manifest.json")
    assert manifest["checks"]["target"] == len(report["checks"])
    assert manifest["served"] == {key: report[key] for key in ("repo", "commit", "quant", "files")}


def test_nothing_to_do_after_a_finished_build(chain: Chain) -> None:
    started = time.monotonic()
    done = chain.snakemake("-n", "all", "publish")
    took = time.monotonic() - started
    assert "Nothing to be done" in done.stderr + done.stdout
    assert took < 5


def _rules(dry: subprocess.CompletedProcess[str]) -> set[str]:
    """The rules in the table of a dry run."""
    return set(re.findall(r"^(\w+) +\d+$", dry.stdout + dry.stderr, re.MULTILINE)) - {"total"}


def _planned(chain: Chain, path: Path, old: str, new: str) -> set[str]:
    """The rules that Snakemake would run for a release if one file of the project read otherwise."""
    before = path.read_text()
    assert old in before
    path.write_text(before.replace(old, new))
    try:
        return _rules(chain.snakemake("-n", "all", "publish"))
    finally:
        path.write_text(before)
        os.utime(path, (1, 1))


def test_a_touched_card_template_rebuilds_the_card_and_what_follows(chain: Chain) -> None:
    template = chain.folder / "workflow" / "templates" / "card.md.j2"
    planned = _planned(chain, template, "## Files", "## The files")
    assert planned == {"card", *CLOSING}


@pytest.mark.parametrize(
    ("old", "new", "rules"),
    [
        (
            "quant: Q8_0",
            "quant: Q4_K_M",
            {"check_target", "manifest", "bill_of_materials", "card", *CLOSING},
        ),
        (
            "create_pr: false",
            "sidecar: true",
            {"manifest", "bill_of_materials", "card", "release_sidecar", *CLOSING},
        ),
        ("create_pr: false", "create_pr: true", {"publish_pair", "publish"}),
        ("# The embedded pair", "# Another comment", set()),
    ],
    ids=["another quant to serve", "second names", "a pull request", "a comment"],
)
def test_a_changed_key_plans_what_uses_it_and_no_more(old: str, new: str, rules: set[str], chain: Chain) -> None:
    assert _planned(chain, chain.folder / "demo" / "config.yaml", old, new) == rules


def test_another_llama_cpp_builds_again_and_fetches_nothing(chain: Chain) -> None:
    planned = _planned(chain, chain.folder / "demo" / "config.yaml", "sha256: 832d", "sha256: 0000")
    assert {"toolchain_source", "toolchain_build", "convert", "quantize", "verify", "manifest", "release"} <= planned
    assert (
        planned & {"write_lock", "resolve", "fetch", "prepare_tokenizer", "check_vocabulary", "check_target"} == set()
    )


def test_a_deleted_file_is_made_again_without_the_hub(chain: Chain) -> None:
    name = f"{config.load(demo_run.CONFIG)['pairs'][KEY]['name']}-Q8_0.gguf"
    away = {
        path: path.with_name(f"{path.name}.away")
        for path in (chain.results / "gguf" / name, chain.results / "release" / name)
    }
    for path, aside in away.items():
        path.rename(aside)
    try:
        planned = _rules(chain.snakemake("-n", f"results/{KEY}/release/{name}"))
    finally:
        for path, aside in away.items():
            aside.rename(path)
    assert {"quantize", "release_file"} <= planned <= {"quantize", "verify", "release_file"}


def test_the_hub_holds_the_release(chain: Chain) -> None:
    report = core.read_json(chain.results / "reports" / "publish.json")
    sums = release.read_sums(chain.results / "release")
    assert set(report["changed"]) == {*sums, release.SUMS}
    repo = chain.hub.repo(report["repo"])
    assert repo is not None
    assert report["commit"]


def test_publishing_again_changes_nothing(chain: Chain) -> None:
    before = core.read_json(chain.results / "reports" / "publish.json")["commit"]
    done = chain.snakemake("--cores", "1", "--forcerun", "publish_pair", "--", "publish")
    assert done.returncode == 0, done.stderr[-2000:]
    after = core.read_json(chain.results / "reports" / "publish.json")
    assert (after["commit"], after["changed"]) == (before, [])


def test_two_builds_in_two_folders_give_the_same_bytes(chain: Chain, tmp_path: Path) -> None:
    other = Chain(copy(tmp_path / "elsewhere"), chain.hub, chain.work)
    done = other.snakemake("--cores", str(os.cpu_count()))
    assert done.returncode == 0, done.stderr[-3000:]
    assert release.read_sums(other.results / "release") == release.read_sums(chain.results / "release")


def test_no_path_user_or_machine_in_what_is_published(chain: Chain) -> None:
    for path in (chain.results / "release").iterdir():
        names = [str(chain.folder), str(chain.work), str(toolchain.cache_root())]
        # A vocabulary of 248,320 tokens has "/root" and many a host's name in it; texts of ours have not.
        names += [] if path.suffix == ".gguf" else [str(Path.home()), os.uname().nodename + "."]
        content = path.read_bytes()
        assert [name for name in names if name.encode() in content] == [], path.name


def test_the_token_is_nowhere(chain: Chain) -> None:
    token = chain.hub.token("write").encode()
    found = [
        path
        for root in (chain.folder / "logs", chain.folder / "results", chain.folder / ".snakemake")
        for path in root.rglob("*")
        if path.is_file() and path.stat().st_size < 40_000_000 and token in path.read_bytes()
    ]
    assert found == []


def test_an_expectation_that_is_not_met_stops_before_anything_is_converted(chain: Chain, tmp_path: Path) -> None:
    other = Chain(copy(tmp_path / "wrong"), chain.hub, chain.work)
    changed = (
        (other.folder / "demo" / "config.yaml").read_text().replace("mask_token_id: 248077", "mask_token_id: 248070")
    )
    (other.folder / "demo" / "config.yaml").write_text(changed)
    done = other.snakemake("--cores", "1")
    assert done.returncode == 1
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert errors
    assert len(set(errors)) == 1
    assert "248077" in errors[0]
    assert "248070" in errors[0]
    assert not (other.results / "gguf").exists()
    assert not (other.results / "release").exists()


def test_a_target_that_does_not_fit_stops_before_anything_is_converted(chain: Chain, tmp_path: Path) -> None:
    other = Chain(copy(tmp_path / "mismatch"), chain.hub, chain.work)
    settings = other.folder / "demo" / "config.yaml"
    # The draft itself in the place of the target, as a file of this machine.
    (name,) = (chain.results / "gguf").glob("*-Q8_0.gguf")
    served = "target_gguf: { repo: tiny-coder/TinyQwen3.5-Coder-GGUF, quant: Q8_0 }"
    assert served in settings.read_text()
    settings.write_text(settings.read_text().replace(served, f"target_gguf: {{ path: {str(name)!r} }}"))
    done = other.snakemake("--cores", "1")
    assert done.returncode == 1
    (error,) = {line for line in done.stderr.splitlines() if line.startswith("error: ")}
    assert "mask row: mask token 248077, the served target has no token_embd.weight (and 3 more)" in error
    assert not (other.results / "gguf").exists()
