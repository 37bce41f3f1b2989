"""The torch reference of DFlash decoding and llama-server accept the same number of tokens, block by block."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from demo.pair import FIXTURE, corpus, reference
from demo.pair.reference import Block, Checked, Pair, blocks_in
from scripts import core
from scripts.llama_server import Answer
from tests.broken_gguf import broken
from tests.chain import Chain

END = reference.ENDS[0]


def answer(drafted: int | None, accepted: int | None) -> Answer:
    return Answer("", [], "eos", 1, 1.0, 1, 1.0, drafted, accepted, 0.1)


LOG = """\
I slot operator(): id  0 | task 0 | accepted 15/15 draft tokens
I slot operator(): id  0 | task 0 | accepted  3/13 draft tokens
I slot print_timing: id  0 | task 0 | draft acceptance = 0.64286
I slot operator(): id  0 | task 9 | accepted  4/ 7 draft tokens (restore checkpoint)
I slot operator(): id  0 | task 9 | accepted  5/ 5 draft tokens
I slot operator(): id  0 | task 9 | accepted  0/ 7 draft tokens
"""


def test_blocks_are_read_from_the_log_answer_by_answer() -> None:
    found = blocks_in(LOG, [answer(28, 18), answer(None, None), answer(14, 4)])
    # What is read again after a checkpoint was restored is no block of its own.
    assert found == [[Block(15, 15), Block(13, 3)], [], [Block(7, 4), Block(7, 0)]]


def test_a_log_that_does_not_add_up_is_refused() -> None:
    with pytest.raises(core.BuildError, match="the log tells of 28 drafted tokens, the answer of 30"):
        blocks_in(LOG.partition("task 9")[0], [answer(30, 18)])


@pytest.mark.parametrize(
    ("drafted", "tokens", "counted"),
    [
        (15, [5, 6, 7], 2),
        (15, [5, END, 7], 1),  # drafted past the end, and refused from there on
        (2, [5, END, 7], 2),  # nothing drafted follows the end
        (15, [5, 6, END], 2),  # the target's own
    ],
)
def test_nothing_is_accepted_past_an_end_of_text(drafted: int, tokens: list[int], counted: int) -> None:
    block = Checked(drafted, 2, tokens, [1.0] * drafted)
    assert block.before_end() == Block(drafted, counted)


@pytest.fixture(scope="module")
def pair() -> Pair:
    torch.set_num_threads(1)  # passes this small lose more by splitting than they gain
    return Pair.load(FIXTURE)


def test_a_token_that_the_pair_does_not_know_is_refused(pair: Pair) -> None:
    with pytest.raises(core.BuildError, match=r"the pair knows no token 0 \(a prompt or its answer\)"):
        pair.read([END, 0])


def test_a_block_gives_the_target_s_own_answer(pair: Pair) -> None:
    """Whatever the draft says, the answer is the one that the target gives token by token."""
    prompt = pair.token_ids[40:60]
    plain = list(prompt)
    for _ in range(6):
        plain += pair.choose(pair.read(plain)[1][-1:])[0]
    blocks = list(reference.decode(pair, prompt, 6))
    found = [token for block in blocks for token in block.tokens]
    assert found == plain[len(prompt) + 1 :][: len(found)]
    assert sum(block.accepted + 1 for block in blocks) == len(found)
    assert len(found) in (4, 5)  # a last token for which there is no room to draft is no block's


@pytest.fixture(scope="module")
def full_target(toolchain: Path, pair_repos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The target in bf16, as it was trained: in a quantized one, near-ties fall otherwise."""
    out = tmp_path_factory.mktemp("target") / "bf16.gguf"
    source = toolchain / "llama.cpp"
    command: list[str | Path] = [
        sys.executable,
        source / "convert_hf_to_gguf.py",
        pair_repos / "finetune",
        "--outfile",
        out,
    ]
    command += ["--outtype", "bf16", "--no-mtp", "--model-name", "TinyQwen3.5-Coder"]
    # The converter needs the gguf package of its own tree: the published one does not know all architectures.
    environment = {**os.environ, "PYTHONPATH": str(source / "gguf-py"), "HF_HUB_OFFLINE": "1"}
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=300)
    return out


@pytest.fixture(scope="module")
def right(chain: Chain) -> Path:
    """The draft as the chain converts it, in bf16."""
    return chain.results / "gguf" / "TinyQwen3.5-Coder-DFlash-bf16.gguf"


@pytest.mark.slow
def test_every_block_accepts_as_much_as_in_llama_server(
    pair: Pair, toolchain: Path, full_target: Path, right: Path
) -> None:
    samples = corpus.evaluation_samples(per_kind=1)
    compared = reference.compare(pair, toolchain / "bin" / "llama-server", full_target, right, samples, predict=48)
    print(reference.table(samples, compared).to_string(index=False))
    assert {one.prompt for one in compared} == {sample.name for sample in samples}
    assert [one for one in compared if not one.equal] == []
    # Neither all nor nothing: lengths of many kinds were the same, and so was where an end of text cut them.
    assert len({one.server.accepted for one in compared}) > 4, compared
    assert any(one.cut for one in compared), compared


@pytest.mark.slow
def test_another_epsilon_that_acceptance_does_not_see_is_seen(
    pair: Pair, toolchain: Path, full_target: Path, right: Path, tmp_path: Path
) -> None:
    unsure = [sample for sample in corpus.unseen_samples() if sample.name == "Even"]
    draft = broken(right, "rms_norm_eps 1e-2", tmp_path)
    *before, last = reference.compare(pair, toolchain / "bin" / "llama-server", full_target, draft, unsure, predict=48)
    assert all(one.equal for one in before)
    assert not last.equal
    assert last.gap is not None
    assert last.gap > 1, last  # no near-tie: rounding does not turn a lead like this


@pytest.mark.slow
def test_the_front_prints_a_table_and_fails_on_a_block_that_differs(
    toolchain: Path, full_target: Path, right: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, report = toolchain / "bin" / "llama-server", tmp_path / "report.json"
    arguments = ["--server", str(server), "--target", str(full_target), "--per-kind", "1", "--predict", "20"]
    arguments += ["--draft", str(broken(right, "block size 8", tmp_path)), "--json", str(report)]
    assert reference.main(arguments) == 1
    output = capsys.readouterr()
    assert "block 0: reference 15 of 15, llama-server 7 of 7" in output.out
    assert "accepted length of every block: 4 of 4 blocks differ" in output.err
    written = core.read_json(report)
    assert not written["ok"]
    assert [block["server"]["drafted"] for block in written["blocks"]] == [7] * 4
