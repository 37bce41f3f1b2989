"""DFlash decoding in plain torch, and how its blocks compare with llama-server's.

How a DFlash draft works, as :func:`decode` does it:

1. The target reads the prompt and names the first token of the answer. That token is the *anchor*: it is decided, but
   the target has not read it yet.
2. The draft fills a *block*: the anchor and ``block_size - 1`` mask tokens, at the positions that follow one another.
   It sees the whole block at once and, for everything before the anchor, the outputs of a few target layers (the
   *taps*). Embedding and head are the target's. One pass gives a token for every mask.
3. The target reads anchor and drafted tokens in one pass and says what it would have put after each of them. Drafted
   tokens are *accepted* up to the first that the target would not have chosen; at that place stands the target's own
   choice, which costs nothing more and is the next anchor. So a pass gives one token more than were accepted, and the
   answer is the same as without a draft.

Nothing is cached here: every pass reads everything again, which is slow and leaves little to get wrong. The weights are
the fixture's, in float32; whatever the way to a GGUF does to them shows as another accepted length in some block.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor
from transformers import Qwen3_5ForCausalLM

from demo.pair import FIXTURE, accept, configs, corpus, pack, target, tokenizer
from demo.pair.draft import Draft
from scripts import core, llama_server

ENDS = (tokenizer.END_OF_TURN, tokenizer.PADDING)
"""Tokens that end an answer."""
UNUSED = -1
"""Stands for any token whose row of the embedding is not in use: its logit is 0."""
TRACE = {"LLAMA_TRACE": "1"}
"""Makes llama-server log the accepted length of every block."""
_ACCEPTED = re.compile(r"accepted +(\d+)/ *(\d+) draft tokens(?P<again> \(restore checkpoint\))?")


@dataclass(frozen=True)
class Block:
    """One pass of the draft and one of the target."""

    drafted: int
    accepted: int


@dataclass(frozen=True)
class Checked(Block):
    """A block of the reference, with what tells a near-tie from a fault."""

    tokens: list[int]
    """What the block adds to the answer: the accepted tokens and the target's own."""
    gaps: list[float]
    """For every drafted token, how far the best logit lies above the second, in the draft or in the target, whichever
    is closer: where it is tiny, rounding decides."""

    def before_end(self) -> Block:
        """The block as llama.cpp counts it: where an end of text was drafted, nothing from there on is accepted.

        Only the last token of a block may be one: nothing drafted follows it.
        """
        ends = [at for at, token in enumerate(self.tokens[: self.accepted]) if token in ENDS and at + 1 < self.drafted]
        return Block(self.drafted, min([self.accepted, *ends]))


class Pair:
    """Target and draft as they were trained."""

    def __init__(self, model: Qwen3_5ForCausalLM, draft: Draft, token_ids: Tensor) -> None:
        """``token_ids`` [rows] are the ids of the target's rows, ascending; the mask is one of them."""
        self.model, self.draft, self.token_ids = model, draft, token_ids.tolist()
        self.rows = {token: row for row, token in enumerate(self.token_ids)}
        self.embedding = model.get_input_embeddings().weight.detach()

    @classmethod
    def load(cls, folder: Path = FIXTURE) -> Pair:
        """Read the fixture.

        Raises:
            BuildError: it is damaged.
        """
        model, token_ids = target.load(folder)
        draft = Draft(configs.draft_config())
        draft.load_state_dict({name: tensor.float() for name, tensor in pack.read(folder, "draft").items()})
        return cls(model, draft.eval(), token_ids)

    def embed(self, tokens: Sequence[int]) -> Tensor:
        """Embeddings [tokens, hidden]."""
        return self.embedding[self.numbers(tokens)]

    def numbers(self, tokens: Sequence[int]) -> list[int]:
        """Rows of the embedding that hold these tokens.

        Raises:
            BuildError: a token has none; the pair knows the tokens of its corpus alone.
        """
        if strange := [token for token in tokens if token not in self.rows]:
            what = f"the pair knows no token {strange[0]}"
            raise core.BuildError(what, "a prompt or its answer", "ask in words of its corpus")
        return [self.rows[token] for token in tokens]

    def read(self, tokens: Sequence[int]) -> tuple[Tensor, Tensor]:
        """One pass of the target: tapped features [tokens, taps * hidden] and logits [tokens, rows]."""
        outputs, logits = target.layer_outputs(self.model, torch.tensor([self.numbers(tokens)]))
        return torch.cat([outputs[tap, 0] for tap in configs.TAPS], dim=-1), logits[0]

    def fill(self, features: Tensor, anchor: int) -> Tensor:
        """One pass of the draft: logits [block_size - 1, rows] for the masks after ``anchor``.

        ``features`` [positions, taps * hidden] are those of all tokens before the anchor.
        """
        block = self.embed([anchor] + [configs.MASK_TOKEN] * (self.draft.block_size - 1))
        states = self.draft(features[None], block[None, None], torch.tensor([[len(features)]]))
        logits: Tensor = states[0, 0, 1:] @ self.embedding.T
        return logits

    def choose(self, logits: Tensor) -> tuple[list[int], list[float]]:
        """The best token at each position, and by how much it leads the second; rows not in use have logit 0."""
        best = torch.cat([logits, logits.new_zeros(len(logits), 1)], dim=-1).topk(2, dim=-1)
        tokens = [[*self.token_ids, UNUSED][row] for row in best.indices[:, 0].tolist()]
        return tokens, (best.values[:, 0] - best.values[:, 1]).tolist()


@torch.no_grad()  # type: ignore[untyped-decorator]
def decode(pair: Pair, prompt: Sequence[int], predict: int) -> Iterator[Checked]:
    """Answer a prompt of token ids with at most ``predict`` tokens; yields each block as it is done.

    The first token of the answer is no block's: the target names it when it reads the prompt. As in llama-server, no
    more is drafted than the answer has room for besides the target's own token, and what has room for one token only
    is not drafted at all.
    """
    features, logits = pair.read(prompt)
    (anchor,), _ = pair.choose(logits[-1:])
    answer = [anchor]
    while predict - len(answer) > 1 and not any(token in ENDS for token in answer):
        drafted, draft_gaps = pair.choose(pair.fill(features, anchor))
        drafted = drafted[: predict - len(answer) - 1]
        # A token without a row cannot be read; the target would refuse it, so what follows it does not matter.
        legible = list(itertools.takewhile(pair.rows.__contains__, drafted))
        decided = len(prompt) + len(answer)  # tokens, the anchor included
        features, logits = pair.read([*prompt, *answer, *legible])
        wanted, gaps = pair.choose(logits[decided - 1 :])
        accepted = 0
        while accepted < len(legible) and legible[accepted] == wanted[accepted]:
            accepted += 1
        tokens = wanted[: accepted + 1]
        anchor = tokens[-1]
        features = features[: decided + accepted]  # what the target read after the last accepted token is void
        answer += tokens
        closer = [min(both) for both in zip(draft_gaps, gaps, strict=False)]  # either may be the shorter
        yield Checked(len(drafted), accepted, tokens, closer)


@dataclass(frozen=True)
class Comparison:
    """One block of an answer, in the reference and in llama-server."""

    prompt: str
    number: int
    """Of the block in its answer, from 0."""
    reference: Block
    server: Block
    cut: bool
    """Whether an end of text made llama.cpp accept less than was right."""
    gap: float | None
    """The narrowest lead of a best logit at the token where the two went apart; None where no token tells them."""

    @property
    def equal(self) -> bool:
        """Whether both drafted and accepted as much."""
        return self.reference == self.server


def compare(
    pair: Pair, server: Path, target_gguf: Path, draft_gguf: Path, samples: Sequence[corpus.Sample], predict: int
) -> list[Comparison]:
    """Answer prompts with llama-server and with the reference, and set their blocks side by side.

    Blocks of one answer build on one another, so an answer is compared up to the first block that differs.

    Args:
        pair: the reference.
        server: the llama-server binary.
        target_gguf: the target; the further it is quantized, the more near-ties fall otherwise.
        draft_gguf: the draft to be checked.
        samples: the prompts.
        predict: upper limit on the tokens of an answer.

    Raises:
        BuildError: the server fails, or its log does not tell the blocks.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        with accept.serving(server, target_gguf, draft_gguf, log, env=TRACE) as client:
            prompts = [client.tokenize(sample.prompt) for sample in samples]
            answers = [client.complete(prompt, predict) for prompt in prompts]
        served = blocks_in(log.read_text(encoding="utf-8", errors="replace"), answers)
    compared = []
    for sample, prompt, blocks in zip(samples, prompts, served, strict=True):
        for number, (ours, theirs) in enumerate(itertools.zip_longest(decode(pair, prompt, predict), blocks)):
            compared.append(_comparison(sample.name, number, ours, theirs))
            if not compared[-1].equal:
                break
    return compared


def _comparison(prompt: str, number: int, ours: Checked | None, theirs: Block | None) -> Comparison:
    """Two blocks side by side; the answer of one may have had another block less than the other's."""
    reference, server = ours.before_end() if ours else Block(0, 0), theirs or Block(0, 0)
    cut = ours is not None and reference.accepted < ours.accepted
    apart = min(reference.accepted, server.accepted)
    told = reference.accepted != server.accepted and apart < min(reference.drafted, server.drafted)
    return Comparison(prompt, number, reference, server, cut, ours.gaps[apart] if ours and told else None)


def blocks_in(log: str, answers: Sequence[llama_server.Answer]) -> list[list[Block]]:
    """The blocks of each answer, in turn, from the log of a server that ran with :data:`TRACE`.

    Raises:
        BuildError: the log's blocks do not add up to what the answers say was drafted and accepted.
    """
    lines = list(_ACCEPTED.finditer(log))
    # A target that cannot step back reads the accepted tokens once more, which is logged as a block of its own.
    first = [line for before, line in itertools.pairwise([None, *lines]) if line and not (before and before["again"])]
    blocks = iter([Block(int(line[2]), int(line[1])) for line in first])
    found = []
    for answer in answers:
        own: list[Block] = []
        while sum(block.drafted for block in own) < (answer.draft_n or 0) and (block := next(blocks, None)):
            own.append(block)
        total = sum(block.drafted for block in own), sum(block.accepted for block in own)
        if total != (answer.draft_n or 0, answer.draft_n_accepted or 0):
            what = f"the log tells of {total[0]} drafted tokens, the answer of {answer.draft_n}"
            raise core.BuildError(what, "llama-server's log", "use a build whose log tells blocks with LLAMA_TRACE=1")
        found.append(own)
    return found


def main(argv: list[str] | None = None) -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--server", type=Path, required=True, help="the llama-server binary")
    arguments.add_argument("--target", type=Path, required=True, help="GGUF of the target")
    arguments.add_argument("--draft", type=Path, required=True, help="GGUF of the draft")
    arguments.add_argument("--predict", type=int, default=64, help="tokens an answer at most (%(default)s)")
    arguments.add_argument("--per-kind", type=int, default=2, help="prompts of each kind at most (%(default)s)")
    arguments.add_argument("--json", type=Path, help="also write a report here")

    def step(options: argparse.Namespace) -> None:
        torch.set_num_threads(1)  # passes this small lose more by splitting than they gain
        samples = corpus.evaluation_samples(options.per_kind)
        compared = compare(Pair.load(), options.server, options.target, options.draft, samples, options.predict)
        print(table(samples, compared).to_string(index=False))
        report = core.Report(figures={"blocks": [dataclasses.asdict(one) for one in compared]})
        different = [one for one in compared if not one.equal]
        for one in different:
            ours, theirs = (f"{block.accepted} of {block.drafted}" for block in (one.reference, one.server))
            lead = "" if one.gap is None else f"; best logit leads by {one.gap:.3f}"
            print(f"{one.prompt}, block {one.number}: reference {ours}, llama-server {theirs}{lead}")
        detail = f"{len(different)} of {len(compared)} blocks differ"
        report.check("accepted length of every block", not different, detail)
        if options.json:
            report.write(options.json)
        report.settle(options.draft, "verify the draft; where the best logits all but tie, use a target of more bits")

    return core.run(arguments, step, argv)


def table(samples: Sequence[corpus.Sample], compared: Sequence[Comparison]) -> pd.DataFrame:
    """Blocks by kind of prompt: how many, how many equal (and cut by an end of text), how many different."""
    kinds = {sample.name: sample.kind if sample.seen else f"{sample.kind} (unseen)" for sample in samples}
    rows = [
        {
            "kind": kinds[one.prompt],
            "blocks": 1,
            "drafted": one.server.drafted,
            "accepted": one.server.accepted,
            "equal": int(one.equal),
            "cut by the end": int(one.equal and one.cut),
            "different": int(not one.equal),
        }
        for one in compared
    ]
    return pd.DataFrame(rows).groupby("kind", as_index=False, sort=False).sum()


if __name__ == "__main__":
    sys.exit(main())
