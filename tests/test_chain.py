"""The whole chain on the embedded pair, as `make demo` runs it, in copies of the project."""

import os
import re
import time
from pathlib import Path

import pytest

from demo import pair
from demo import run as demo_run
from scripts import config, core, release
from tests.chain import KEY, Chain, copy

pytestmark = pytest.mark.slow


def test_every_contracted_file_is_there(chain: Chain) -> None:
    name = config.load(demo_run.CONFIG)["pairs"][KEY]["name"]
    expected = ["target/tokenizer.json", "mlx/config.json", "mlx/model.safetensors", "release/manifest.json"]
    expected += [f"gguf/{name}-{quant}.gguf" for quant in ("bf16", "Q8_0", "Q4_K_M")]
    expected += [f"source/{role}/config.json" for role in ("draft", "target", "base")]
    reports = ("lock", "vocab", "convert", "gguf-bf16", "gguf-Q8_0", "gguf-Q4_K_M", "mlx", "publish")
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
    assert [entry for entry in log.requests_for(pair.GGUF_REPO) if entry.file] == []


def test_nothing_to_do_after_a_finished_build(chain: Chain) -> None:
    started = time.monotonic()
    done = chain.snakemake("-n", "all", "publish")
    took = time.monotonic() - started
    assert "Nothing to be done" in done.stderr + done.stdout
    assert took < 5


def test_a_touched_card_template_rebuilds_the_card_and_what_follows(chain: Chain) -> None:
    template = chain.folder / "workflow" / "templates" / "card.md.j2"
    before = template.read_text()
    template.write_text(before + "\nOne more line.\n")
    try:
        done = chain.snakemake("-n", "--quiet", "progress", "--", "all", "publish")
    finally:
        template.write_text(before)
        os.utime(template, (1, 1))
    planned = set(re.findall(r"^(\w+) +\d+$", done.stdout + done.stderr, re.MULTILINE)) - {"total"}
    assert planned == {"card", "release", "all", "publish_pair", "publish"}


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
    names = [str(chain.folder), str(Path.home()), os.uname().nodename + "."]
    for path in (chain.results / "release").iterdir():
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
