"""The demo video of the embedded pair: streams of a real llama-server, replayed."""

from pathlib import Path

import pytest
import yaml

from demo.pair import corpus
from scripts import capture, serve_command, video
from scripts.core import BuildError
from scripts.llama_server import running
from scripts.video_plan import Track
from scripts.video_stream import read
from scripts.workloads import Prompt
from tests.chain import Chain
from tests.errors_table import Said
from tests.video_samples import SETTINGS

PREDICT = 48
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def models(toolchain: Path, pair_repos: Path, chain: Chain) -> tuple[Path, Path, Path]:
    """The server, the target and the draft that the chain built."""
    (target,) = (pair_repos / "finetune-gguf").glob("*-Q8_0.gguf")
    (draft,) = (chain.results / "gguf").glob("*-Q8_0.gguf")
    return toolchain / "bin" / "llama-server", target, draft


def test_a_code_edit_of_the_embedded_pair(models: tuple[Path, Path, Path], tmp_path: Path) -> None:
    sample = next(sample for sample in corpus.training_samples() if sample.kind == corpus.CODE_EDIT)
    workload = {"name": "code-edit", "description": "An edit.", "prompts": [{"id": "edit", "user": sample.user}]}
    (tmp_path / "edit.yaml").write_text(yaml.safe_dump(workload))
    left, right = tmp_path / "baseline.jsonl", tmp_path / "dflash.jsonl"
    server, target, draft = models
    arguments = ["--server", server, "--target", target, "--draft", draft, "--settings", SETTINGS.dump()]
    arguments += ["--workloads", tmp_path / "edit.yaml", "--workload", "code-edit", "--format", "chat"]
    arguments += ["--predict", PREDICT, "--baseline-out", left, "--dflash-out", right]
    arguments += ["--baseline-log", tmp_path / "one.log", "--dflash-log", tmp_path / "two.log"]
    assert capture.main([str(part) for part in arguments]) == 0

    baseline, dflash = read(left), read(right)
    assert len(baseline.tokens) == len(dflash.tokens) == PREDICT
    assert baseline.prompt == dflash.prompt == sample.prompt
    assert (baseline.draft, dflash.draft) == (None, draft.name)
    assert str(target.parent) not in left.read_text() + right.read_text()
    assert len(Track(dflash).starts) < PREDICT / 4  # passes of many tokens

    report = video.make(left, right, tmp_path / "demo.gif", tmp_path / "demo.png", video.FPS, 1.0)
    assert report.ok
    assert report.figures["identical"]
    assert report.figures["acceptance"] > 0.7
    assert report.figures["gif_bytes"] < 3_000_000


def test_a_draft_that_never_engages(models: tuple[Path, Path, Path], tmp_path: Path, said: Said) -> None:
    server, target, _ = models
    command = serve_command.command(SETTINGS, target, None, server)
    draft = tmp_path / "draft.gguf"
    with running(command, tmp_path / "server.log") as client, pytest.raises(BuildError) as caught:
        capture.capture(client, Prompt("one", "Hello"), "chat", 8, target, draft)
    said("Demo video: a server that drafts nothing", caught.value)
