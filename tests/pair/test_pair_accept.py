"""The pair drafts for real: acceptance and identical output with llama-server, and what goes wrong without."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import gguf
import pytest

from demo.pair import accept, corpus
from scripts import core

SAMPLES = corpus.evaluation_samples(per_kind=3)


@pytest.fixture(scope="session")
def drafts(toolchain: Path, pair_repos: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The draft converted with the pinned converter, as bf16, Q8_0 and Q4_K_M."""
    folder = tmp_path_factory.mktemp("drafts")
    converter = toolchain / "llama.cpp"
    files = {kind: folder / f"draft-{kind}.gguf" for kind in ("bf16", "Q8_0", "Q4_K_M")}
    command = [sys.executable, str(converter / "convert_hf_to_gguf.py"), str(pair_repos / "draft")]
    command += ["--target-model-dir", str(pair_repos / "finetune"), "--outtype", "bf16"]
    command += ["--outfile", str(files["bf16"]), "--model-name", "TinyQwen3.5-DFlash"]
    environment = {**os.environ, "PYTHONPATH": str(converter / "gguf-py"), "HF_HUB_OFFLINE": "1"}
    # The rewritten class is what transformers 4 can load; here the finetune's own class is loadable.
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=300)
    for kind in ("Q8_0", "Q4_K_M"):
        quantize = [str(toolchain / "bin" / "llama-quantize"), str(files["bf16"]), str(files[kind]), kind]
        subprocess.run(quantize, check=True, capture_output=True, timeout=300)
    return files


@pytest.fixture(scope="session")
def plain_answers(toolchain: Path, pair_repos: Path) -> list[accept.Answer]:
    """The Q8_0 target's answers without a draft."""
    target = pair_repos / "finetune-gguf" / "TinyQwen3.5-Coder-Q8_0.gguf"
    return accept.measure(toolchain / "bin" / "llama-server", target, None, SAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bf16", "Q8_0", "Q4_K_M"])
def test_acceptance_and_identical_output(
    toolchain: Path, pair_repos: Path, drafts: dict[str, Path], plain_answers: list[accept.Answer], kind: str
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
def test_the_target_knows_its_answers_by_heart(plain_answers: list[accept.Answer]) -> None:
    for answer in plain_answers:
        assert answer.draft_n is None
        if answer.sample.seen:
            assert answer.text == answer.sample.answer.removesuffix(corpus.END)


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


def answer(
    sample: corpus.Sample, tokens: list[int], drafted: int | None, accepted: int | None, rate: float
) -> accept.Answer:
    return accept.Answer(sample, "text", tokens, len(tokens), rate, drafted, accepted)


def test_the_table_counts_by_kind_and_sees_a_changed_output() -> None:
    edit = next(s for s in SAMPLES if s.kind == corpus.CODE_EDIT and s.seen)
    unseen = next(s for s in SAMPLES if s.kind == corpus.CODE_NEW and not s.seen)
    with_draft = [answer(unseen, [1, 2], 10, 0, 20.0), answer(edit, list(range(32)), 30, 24, 64.0)]
    without = [answer(unseen, [1, 3], None, None, 20.0), answer(edit, list(range(32)), None, None, 32.0)]
    edits, new = accept.table(with_draft, without)
    assert (edits.kind, edits.acceptance, edits.tokens_per_pass) == ("code-edit", 0.8, 4.0)
    assert (edits.identical, edits.speed_ratio) == (True, 2.0)
    assert (new.kind, new.acceptance, new.identical) == ("code-new (unseen)", 0.0, False)
