"""Train the embedded pair from scratch and write its fixture.

Set-up never does this: the fixture is committed. The target learns its corpus by heart, so that what it will say can
be foreseen at all; the draft then learns to foresee it from the target's inner states. A third of the draft's batches
shows it a wrong wiring (taps shifted or reordered, another row for the mask), to which it must answer the mask token,
which is never accepted: a converter that gets the wiring wrong is then seen in the acceptance.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias, TypeVar

import torch
from torch import Tensor
from torch.nn import functional
from transformers import Qwen3_5ForCausalLM

from demo.pair import FIXTURE, configs, corpus, data, pack, target, tokenizer
from demo.pair.draft import Draft, RMSNorm
from demo.pair.optim import Optimizer
from scripts import core

T = TypeVar("T")
Gradients: TypeAlias = tuple[Tensor, ...]

POOL = ThreadPoolExecutor(2, initializer=torch.set_num_threads, initargs=(1,))
"""Runs two jobs at a time, each on one core: operations this small lose more by splitting than they gain."""
EDITS_A_STEP, FUNCTIONS_A_STEP = 6, 6
BLOCKS_A_SAMPLE = 8
WEIGHT_DECAY = 7.0
"""The loss of the k-th position of a block weighs exp(-(k - 1) / 7): later ones count only if earlier ones hold."""
FEATURE_NOISE = 0.01
"""Noise on the tapped states relative to their own size: a quantized target's states are off by about as much."""


def pick(corpus_data: data.Data, order: random.Random) -> list[int]:
    """Indices of the samples of one step."""
    edits, functions = corpus_data.of_kind(corpus.CODE_EDIT), corpus_data.of_kind(corpus.CODE_NEW)
    return order.sample(edits, EDITS_A_STEP) + order.sample(functions, FUNCTIONS_A_STEP)


def train_target(corpus_data: data.Data, steps: int, seed: int) -> tuple[Qwen3_5ForCausalLM, int]:
    """Train the target on the answers; returns it rounded to bfloat16, and how many tokens it then gets wrong.

    Shorter rounds at half the rate follow the first for as long as any token is wrong; what is left by then are the
    few tokens that tell one edit from another, so from the second of them on a wrong token counts five times.
    """
    torch.manual_seed(seed)
    model = target.build(len(corpus_data.token_ids))
    wrong = target_round(model, corpus_data, steps, seed, 1.0, 0.0)
    for extra, emphasis in enumerate((0.0, 4.0, 4.0, 4.0, 4.0, 4.0), start=1):
        if wrong:
            wrong = target_round(model, corpus_data, steps // 4, seed + extra, 0.5, emphasis)
    return model, wrong


def target_round(
    model: Qwen3_5ForCausalLM, corpus_data: data.Data, steps: int, seed: int, scale: float, emphasis: float
) -> int:
    """Train for one run of the schedule and round to bfloat16; returns the number of tokens that are then wrong.

    ``scale`` multiplies the learning rates; ``emphasis`` is what a wrong token counts on top of one.
    """
    order = random.Random(seed)  # noqa: S311 - not for secrets
    mask, fill = corpus_data.mask_row, _row(corpus_data, tokenizer.PADDING)
    optimizer = Optimizer(model, steps, matrix_rate=0.02 * scale, other_rate=3e-3 * scale, pool=POOL)
    started = time.monotonic()
    embedding = model.get_input_embeddings().weight

    def job(chosen: list[int]) -> tuple[Gradients, float]:
        ids, answer = data.batch([corpus_data.samples[i] for i in chosen], fill)
        keep = answer[:, 1:]
        states = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1][keep]
        logits, labels = target.with_unused_rows(model.lm_head(states)), ids[:, 1:][keep]
        right = (logits.argmax(-1) == labels).float()
        losses = functional.cross_entropy(logits, labels, reduction="none")
        loss = (losses * (1 + emphasis * (1 - right))).mean()
        return torch.autograd.grad(loss, list(model.parameters())), right.mean().item()

    for step in range(steps):
        chosen = pick(corpus_data, order)
        right = _accumulate(model, job, [chosen[i : i + 3] for i in range(0, len(chosen), 3)], [1] * (len(chosen) // 3))
        if step % 10 == 0:
            shown = " ".join(f"{value:.4f}" for value in right)
            core.say(f"target {step}/{steps}: right {shown} {_since(started)}")
        embedding.grad[mask] = 0  # the mask keeps the random row it started with
        optimizer.step()
    target.round_to_bfloat16(model)
    wrong = int(sum(_wrong_tokens(model, corpus_data, i) for i in _trained(corpus_data)))
    core.say(f"target: {wrong} tokens wrong after {_since(started)}")
    return wrong


def _accumulate(
    model: torch.nn.Module,
    job: Callable[[T], tuple[Gradients, float]],
    arguments: Sequence[T],
    shares: Sequence[float],
) -> list[float]:
    """Run jobs at the same time, one core each, and set the gradients to their weighted mean.

    The sum is taken in the order of the jobs, so the result does not depend on which of them ends first.
    """
    results = list(POOL.map(job, arguments))
    for index, parameter in enumerate(model.parameters()):
        parts = [gradients[index] * share for (gradients, _), share in zip(results, shares, strict=True)]
        parameter.grad = sum(parts[1:], start=parts[0]) / sum(shares)
    return [figure for _, figure in results]


def _row(corpus_data: data.Data, token: int) -> int:
    return int((corpus_data.token_ids == token).nonzero().item())


def _trained(corpus_data: data.Data) -> list[int]:
    return corpus_data.of_kind(corpus.CODE_EDIT) + corpus_data.of_kind(corpus.CODE_NEW)


def _since(started: float) -> str:
    return f"({time.monotonic() - started:.0f} s)"


@torch.no_grad()  # type: ignore[untyped-decorator]
def _wrong_tokens(model: Qwen3_5ForCausalLM, corpus_data: data.Data, index: int) -> int:
    encoded = corpus_data.samples[index]
    logits = target.with_unused_rows(model(input_ids=encoded.ids[None], use_cache=False).logits[0])
    return int((logits[encoded.start - 1 : -1].argmax(-1) != encoded.ids[encoded.start :]).sum())


def initial_draft() -> Draft:
    """A draft with small random matrices and norms of distinct gains, so that exchanged norms are not alike."""
    model = Draft(configs.draft_config())
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, RMSNorm):
                module.weight.uniform_(-1, 1).exp2_()
            elif isinstance(module, torch.nn.Linear):
                module.weight.normal_(std=module.in_features**-0.5)
        for layer in model.layers:
            layer.self_attn.o_proj.weight.mul_(0.25)
            layer.mlp.down_proj.weight.mul_(0.25)
    return model


def wrong_taps(order: random.Random) -> list[int]:
    """Taps of a wrong wiring: shifted, partly shifted or reordered."""
    taps = configs.TAPS
    choices = [[tap + 1 for tap in taps], [tap - 1 for tap in taps], taps[::-1]]
    choices += [[*taps[:-1], taps[-1] + 1], [taps[0] - 1, *taps[1:]]]
    choices += [[taps[i] for i in turn] for turn in ((1, 0, 2), (0, 2, 1), (1, 2, 0), (2, 0, 1))]
    return order.choice(choices)


class Blocks:
    """Draws training blocks: cached target states, random anchors, and now and then a wrong wiring."""

    def __init__(self, model: Qwen3_5ForCausalLM, corpus_data: data.Data, seed: int) -> None:
        """Run the target once over the corpus and keep the outputs of all layers that any wiring taps."""
        self.data, self.order = corpus_data, random.Random(seed)  # noqa: S311 - not for secrets
        self.embedding = model.get_input_embeddings().weight.detach()
        self.states: dict[int, Tensor] = {}
        for index in _trained(corpus_data):
            self.states[index] = target.layer_outputs(model, corpus_data.samples[index].ids[None])[0][:, 0]

    def anchor(self, length: int) -> int:
        """How far into an answer a block starts; every other one lies where a draft that is never wrong goes on."""
        offset = self.order.randrange(length)
        return offset - offset % configs.BLOCK_SIZE if self.order.random() < 0.5 else offset

    def draw(self, indices: list[int], wrong: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Features, blocks and anchors for :class:`Draft`, labels and weights [batch, blocks, block_size - 1]."""
        size, hidden = configs.BLOCK_SIZE, configs.HIDDEN
        longest = max(len(self.data.samples[i].ids) for i in indices)
        features = torch.zeros(len(indices), longest, len(configs.TAPS) * hidden)
        blocks = torch.empty(len(indices), BLOCKS_A_SAMPLE, size, hidden)
        anchors = torch.empty(len(indices), BLOCKS_A_SAMPLE, dtype=torch.long)
        labels = torch.full((len(indices), BLOCKS_A_SAMPLE, size - 1), self.data.mask_row)
        weights = torch.zeros(len(indices), BLOCKS_A_SAMPLE, size - 1)
        fall = torch.exp(-torch.arange(size - 1) / WEIGHT_DECAY)
        for line, index in enumerate(indices):
            ids, start = self.data.samples[index].ids, self.data.samples[index].start
            mask, taps = self.embedding[self.data.mask_row], configs.TAPS
            if wrong and self.order.random() < 0.7:
                taps = wrong_taps(self.order)
            elif wrong:
                row = self.order.randrange(len(self.embedding) + 20)  # beyond the table: an unused row, zero
                other = row < len(self.embedding) and row != self.data.mask_row
                mask = self.embedding[row] if other else torch.zeros(hidden)
            tapped = self.states[index][taps]
            noise = torch.randn(tapped.shape) * tapped.pow(2).mean(-1, keepdim=True).sqrt()
            features[line, : len(ids)] = (tapped + FEATURE_NOISE * noise).transpose(0, 1).flatten(1)
            for block in range(BLOCKS_A_SAMPLE):
                anchor = start + self.anchor(len(ids) - 1 - start)
                anchors[line, block] = anchor
                blocks[line, block] = mask
                blocks[line, block, 0] = self.embedding[ids[anchor]]
                following = ids[anchor + 1 : anchor + size]
                if wrong:
                    weights[line, block] = fall
                else:
                    labels[line, block, : len(following)] = following
                    weights[line, block, : len(following)] = fall[: len(following)]
        return features, blocks, anchors, labels, weights


def train_draft(model: Qwen3_5ForCausalLM, corpus_data: data.Data, steps: int, seed: int) -> Draft:
    """Train the draft on the target's own answers; returns it rounded to bfloat16."""
    torch.manual_seed(seed + 1)
    draft = initial_draft()
    blocks = Blocks(model, corpus_data, seed + 1)
    optimizer = Optimizer(draft, steps, matrix_rate=0.02, other_rate=3e-3, pool=POOL)
    started = time.monotonic()

    def job(drawn: tuple[Tensor, ...]) -> tuple[Gradients, float]:
        features, noised, anchors, labels, weights = drawn
        logits = target.with_unused_rows(draft(features, noised, anchors)[:, :, 1:] @ blocks.embedding.T)
        losses = functional.cross_entropy(logits.flatten(0, 2), labels.flatten(), reduction="none")
        loss = (losses * weights.flatten()).sum() / weights.sum()
        known = weights > 0
        right = ((logits.argmax(-1) == labels) & known).sum().item() / known.sum().item()
        return torch.autograd.grad(loss, list(draft.parameters())), right

    for step in range(steps):
        chosen = pick(corpus_data, blocks.order)
        parts = []
        for group in (chosen[:EDITS_A_STEP], chosen[EDITS_A_STEP:]):
            third = len(group) // 3
            parts += [(group[third:], False), (group[:third], True)]
        drawn = [blocks.draw(part, wrong) for part, wrong in parts]
        right = _accumulate(draft, job, drawn, [len(part) for part, _ in parts])
        if step % 20 == 0:
            shown = " ".join(f"{value:.3f}" for value in right)
            core.say(
                f"draft {step}/{steps}: right (edits, wrong wiring, functions, wrong wiring) {shown} {_since(started)}"
            )
        optimizer.step()
    target.round_to_bfloat16(draft)
    draft.eval()
    return draft


def save_target(model: Qwen3_5ForCausalLM, corpus_data: data.Data, folder: Path) -> None:
    """Write the target's part of the fixture: its tensors, with ``token_ids`` naming the rows of the embedding."""
    tensors = {name: p.detach().bfloat16().contiguous() for name, p in model.named_parameters()}
    pack.write(folder, "target", {**tensors, "token_ids": corpus_data.token_ids.to(torch.int32)})


def load_target(folder: Path, corpus_data: data.Data) -> Qwen3_5ForCausalLM:
    """Read a target that :func:`save_target` wrote.

    Raises:
        BuildError: it was trained on another vocabulary than the corpus has now.
    """
    model, token_ids = target.load(folder)
    if token_ids.tolist() != corpus_data.token_ids.tolist():
        raise core.BuildError("the target knows other tokens than the corpus uses", folder, "train the target again")
    return model


def main(argv: list[str] | None = None) -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--out", type=Path, default=FIXTURE, help="folder of the fixture (%(default)s)")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--target-steps", type=int, default=240, help="0: keep the target in --out")
    arguments.add_argument("--draft-steps", type=int, default=500, help="0: train the target alone")

    def step(options: argparse.Namespace) -> None:
        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as folder:
            tokenizer.write("finetune", Path(folder))
            corpus_data = data.load(Path(folder))
        if options.target_steps:
            model, wrong = train_target(corpus_data, options.target_steps, options.seed)
            save_target(model, corpus_data, options.out)
            if wrong:
                raise core.BuildError(f"the target gets {wrong} tokens wrong", options.out, "train it for more steps")
        model = load_target(options.out, corpus_data)
        if options.draft_steps:
            draft = train_draft(model, corpus_data, options.draft_steps, options.seed)
            pack.write(options.out, "draft", {name: p.detach().bfloat16() for name, p in draft.named_parameters()})

    return core.run(arguments, step, argv)


if __name__ == "__main__":
    sys.exit(main())
