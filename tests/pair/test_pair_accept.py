"""The pair drafts for real: acceptance and identical output with llama-server, and what goes wrong without."""

from __future__ import annotations

import math
import os
import stat
from pathlib import Path

import gguf
import pytest

from demo.pair import accept, corpus
from scripts import core
from scripts.llama_server import Answer
from tests.chain import Chain

NAME = "TinyQwen3.5-Coder-DFlash"
SAMPLES = corpus.evaluation_samples(per_kind=3)


@pytest.fixture(scope="session")
def drafts(chain: Chain) -> dict[str, Path]:
    """The draft as the chain converted and quantized it."""
    return {kind: chain.results / "gguf" / f"{NAME}-{kind}.gguf" for kind in ("bf16", "Q8_0", "Q4_K_M")}


@pytest.fixture(scope="session")
def plain_answers(toolchain: Path, pair_repos: Path) -> list[accept.Reply]:
    """The Q8_0 target's answers without a draft."""
    target = pair_repos / "finetune-gguf" / "TinyQwen3.5-Coder-Q8_0.gguf"
    return accept.measure(toolchain / "bin" / "llama-server", target, None, SAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bf16", "Q8_0", "Q4_K_M"])
def test_acceptance_and_identical_output(
    toolchain: Path, pair_repos: Path, drafts: dict[str, Path], plain_answers: list[accept.Reply], kind: str
) -> None:
    target = pair_repos / "finetune-gguf" / "TinyQwen3.5-Coder-Q8_0.gguf"
    answers = accept.measure(toolchain / "bin" / "llama-server", target, drafts[kind], SAMPLES)
    rows = {row.kind: row for row in accept.table(answers, plain_answers)}
    assert list(rows) == ["code-edit", "code-new", "code-edit (unseen)", "code-new (unseen)"]
    assert all(row.identical for row in rows.values()), rows
    for seen in ("code-edit", "code-new"):
        assert rows[seen].acceptance > accept.THRESHOLD, rows
        assert rows[seen].tokens_per_pass > 8, rows
    # What was never learnt is not foreseen: acceptance is earned, not an artefact of the count.
    assert rows["code-new (unseen)"].acceptance < 0.6, rows


@pytest.mark.slow
def test_the_target_knows_its_answers_by_heart(plain_answers: list[accept.Reply]) -> None:
    for reply in plain_answers:
        assert reply.answer.draft_n is None
        if reply.sample.seen:
            assert reply.answer.text == reply.sample.answer.removesuffix(corpus.END)


@pytest.mark.slow
def test_every_matrix_of_the_q4_k_m_draft_is_a_k_quant(drafts: dict[str, Path]) -> None:
    types = {t.name: t.tensor_type.name for t in gguf.GGUFReader(drafts["Q4_K_M"]).tensors}
    matrices = {kind for name, kind in types.items() if "norm" not in name}
    assert matrices == {"Q4_K", "Q6_K"}, types
    assert {kind for name, kind in types.items() if "norm" in name} == {"F32"}


@pytest.mark.slow
def test_the_front_prints_a_table_and_fails_without_acceptance(
    toolchain: Path, pair_repos: Path, drafts: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.gguf"
    data = bytearray(drafts["Q8_0"].read_bytes())
    data[-300_000:] = bytes(300_000)  # the last tensors of the file, as a converter that lost them would leave them
    broken.write_bytes(data)
    arguments = ["--server", str(toolchain / "bin" / "llama-server"), "--draft", str(broken), "--per-kind", "1"]
    arguments += ["--predict", "24"]
    arguments += ["--target", str(pair_repos / "finetune-gguf" / "TinyQwen3.5-Coder-Q8_0.gguf")]
    assert accept.main(arguments) == 1
    output = capsys.readouterr()
    assert "tokens/pass" in output.out
    assert "acceptance must exceed 0.7" in output.err


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_server_that_dies_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(b"not a model")
    binary = script(tmp_path / "server", "echo loading; echo 'error: bad magic' >&2; exit 3")
    with pytest.raises(core.BuildError, match=r"llama-server ended with code 3: loading \| error: bad magic"):
        accept.measure(binary, model, None, SAMPLES[:1])


def test_a_server_that_never_gets_ready_is_ended(tmp_path: Path) -> None:
    model, mark = tmp_path / "model.gguf", tmp_path / "pid"
    model.write_bytes(b"not a model")
    binary = script(tmp_path / "server", f"echo $$ > {mark}; echo waiting; exec sleep 600")
    with pytest.raises(core.BuildError, match="llama-server is not ready after 1 s: waiting"):
        accept.measure(binary, model, None, SAMPLES[:1], timeout=1)
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


def test_a_missing_model_is_reported_by_its_path(tmp_path: Path) -> None:
    binary = script(tmp_path / "server", "exit 0")
    with pytest.raises(core.BuildError, match=r"file is missing \(.*nowhere.gguf\)"):
        accept.measure(binary, tmp_path / "nowhere.gguf", None, SAMPLES[:1])


def reply(
    sample: corpus.Sample, tokens: list[int], drafted: int | None, accepted: int | None, ms: float
) -> accept.Reply:
    answer = Answer(
        text="text",
        tokens=tokens,
        stop="eos",
        prompt_n=8,
        prompt_ms=1.0,
        predicted_n=len(tokens),
        predicted_ms=ms,
        draft_n=drafted,
        draft_n_accepted=accepted,
        first_token_s=0.1,
    )
    return accept.Reply(sample, answer)


def test_the_table_counts_by_kind_and_sees_a_changed_output() -> None:
    edit = next(s for s in SAMPLES if s.kind == corpus.CODE_EDIT and s.seen)
    unseen = next(s for s in SAMPLES if s.kind == corpus.CODE_NEW and not s.seen)
    with_draft = [reply(unseen, [1, 2], 10, 0, 0.0), reply(edit, list(range(32)), 30, 24, 500.0)]
    without = [reply(unseen, [1, 3], None, None, 0.0), reply(edit, list(range(32)), None, None, 1000.0)]
    edits, new = accept.table(with_draft, without)
    assert (edits.kind, edits.acceptance, edits.tokens_per_pass) == ("code-edit", 0.8, 4.0)
    assert (edits.identical, edits.speed_ratio) == (True, 2.0)
    assert (new.kind, new.acceptance, new.identical) == ("code-new (unseen)", 0.0, False)
    assert math.isnan(new.speed_ratio)
