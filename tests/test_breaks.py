"""A draft that was converted wrongly never gets through: each fault alone, as a wrong converter would make it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from demo.pair import accept, corpus
from scripts import config, verify
from tests.broken_gguf import BREAKS, BrokenGguf, broken
from tests.chain import Chain
from tests.errors_table import Said

pytestmark = pytest.mark.slow

NAME = "TinyQwen3.5-Coder-DFlash"

SAID = {
    "rope theta 1e4": "dflash.rope.freq_base: is 10000.0; config.json gives 10000000.0",
    "rope theta 1e6": "dflash.rope.freq_base: is 1000000.0; config.json gives 10000000.0",
    "taps shifted by one": "dflash.target_layers: is [3, 5, 7]; config.json gives [2, 4, 6]",
    "taps reversed": "dflash.target_layers: is [6, 4, 2]; config.json gives [2, 4, 6]",
    "mask id of another row": "tokenizer.ggml.mask_token_id: is 248076; the draft's config.json gives 248077",
    "window dropped": "dflash.attention.sliding_window: missing; config.json gives 64 (and 1 more)",
    "window 4096": "dflash.attention.sliding_window: is 4096; config.json gives 64",
    "two layers swapped": "bit for bit: blk.0.",
    "K and V exchanged": "bit for bit: blk.0.attn_k.weight differs",
    "column blocks of fc swapped": "bit for bit: fc.weight differs",
    "gate and up exchanged": "bit for bit: blk.0.ffn_gate.weight differs",
    "input and post-attention norms exchanged": "bit for bit: blk.0.attn_norm.weight differs",
    "hidden_norm and norm exchanged": "bit for bit: enc.output_norm.weight differs",
    "q_norm and k_norm exchanged": "bit for bit: blk.0.attn_k_norm.weight differs",
    "rms_norm_eps 1e-2": "dflash.attention.layer_norm_rms_epsilon: is 0.009999",
    "block size 8": "dflash.block_size: is 8; config.json gives 16",
}
"""How the line begins that is said about each break."""

GATED = [
    *("rope theta 1e4", "taps shifted by one", "mask id of another row"),
    *("window dropped", "two layers swapped", "K and V exchanged"),
]
"""Breaks that acceptance alone gives away."""

UNSEEN = ["hidden_norm and norm exchanged", "rms_norm_eps 1e-2", "block size 8"]
"""Breaks that leave acceptance as it is. The comparison with the source finds them, and so do the lengths of single
blocks (tests/pair/test_pair_reference.py).
"""

PREDICT = 16
"""Tokens of an answer: a draft that is never right takes a pass for each of them."""


@pytest.fixture(scope="module")
def right(chain: Chain) -> Path:
    """The draft as the chain converts it, in bf16."""
    return chain.results / "gguf" / f"{NAME}-bf16.gguf"


def verified(chain: Chain, path: Path, report: Path) -> int:
    """Verify a file as the rule does; returns the exit code."""
    arguments = ["--gguf", str(path), "--quant", "bf16", "--report", str(report)]
    arguments += ["--convert", str(chain.results / "reports" / "convert.json")]
    arguments += ["--draft", str(chain.results / "source" / "draft"), "--target", str(chain.results / "target")]
    return verify.main(arguments)


def test_a_copy_that_nobody_broke_is_verified(chain: Chain, right: Path, tmp_path: Path) -> None:
    copy = BrokenGguf(right).write(tmp_path / "copy.gguf")
    assert copy.read_bytes() == right.read_bytes()
    assert verified(chain, copy, tmp_path / "report.json") == 0


def test_every_break_has_its_line() -> None:
    assert list(SAID) == list(BREAKS)


@pytest.mark.parametrize("title", BREAKS)
def test_verify_catches(
    title: str, chain: Chain, right: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], said: Said
) -> None:
    assert verified(chain, broken(right, title, tmp_path), tmp_path / "report.json") == 1
    assert not (tmp_path / "report.json").exists()
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith(f"error: {SAID[title]}")
    said(f"GGUF: a draft converted wrongly, {title}", line)


def test_acceptance_catches_the_grave_breaks_and_no_others(
    chain: Chain, toolchain: Path, pair_repos: Path, right: Path, tmp_path: Path
) -> None:
    margin = config.schema()["properties"]["bench"]["properties"]["margin"]["default"]
    seen = [sample for sample in corpus.evaluation_samples(per_kind=1) if sample.seen]
    target = pair_repos / "finetune-gguf" / "TinyQwen3.5-Coder-Q8_0.gguf"
    rows = []
    for title in ("none", *GATED, *UNSEEN):
        draft = right if title == "none" else broken(right, title, tmp_path)
        replies = accept.measure(toolchain / "bin" / "llama-server", target, draft, seen, predict=PREDICT)
        figures = {reply.sample.kind: accept.acceptance([reply]) for reply in replies}
        rows.append({"break": title, **figures, "all": accept.acceptance(replies)})
    table = pd.DataFrame(rows).set_index("break")
    table["caught"] = table["all"] < table["all"]["none"] - margin
    print(table.to_string(float_format="{:.3f}".format))
    assert table["all"]["none"] > accept.THRESHOLD, table
    assert list(table.index[table["caught"]]) == GATED, table
    # A window that is lost shows where the context is longer than it, and nowhere else.
    window = table.loc["window dropped"]
    assert window[corpus.CODE_EDIT] < window[corpus.CODE_NEW], table
