"""The torch reference of the draft, and the optimizer it is trained with."""

from __future__ import annotations

import random

import pytest
import torch

from demo.pair import configs, optim, target, train
from demo.pair.draft import Draft, rotate


@pytest.fixture(scope="module")
def draft() -> Draft:
    torch.manual_seed(0)
    return train.initial_draft()


@torch.no_grad()  # type: ignore[untyped-decorator]
def run(draft: Draft, features: torch.Tensor, blocks: torch.Tensor, anchors: list[int]) -> torch.Tensor:
    result: torch.Tensor = draft(features, blocks, torch.tensor([anchors]))
    return result


def test_parameters_are_the_published_tensors(draft: Draft) -> None:
    assert len(list(draft.named_parameters())) == 11 * configs.DRAFT_LAYERS + 3


def test_a_block_sees_only_what_lies_before_it(draft: Draft) -> None:
    features, block = torch.randn(1, 120, 768), torch.randn(1, 1, 16, 256)
    later, earlier = features.clone(), features.clone()
    later[:, 100:] = 0
    earlier[:, 99] = 0
    assert run(draft, features, block, [100]).equal(run(draft, later, block, [100]))
    assert not run(draft, features, block, [100]).allclose(run(draft, earlier, block, [100]))


def test_blocks_of_one_answer_do_not_see_each_other(draft: Draft) -> None:
    features, blocks = torch.randn(1, 120, 768), torch.randn(1, 2, 16, 256)
    together = run(draft, features, blocks, [50, 90])
    assert torch.allclose(together[:, :1], run(draft, features, blocks[:, :1], [50]), atol=1e-5)
    assert torch.allclose(together[:, 1:], run(draft, features, blocks[:, 1:], [90]), atol=1e-5)


def test_positions_of_a_block_see_later_ones(draft: Draft) -> None:
    features, block = torch.randn(1, 20, 768), torch.randn(1, 1, 16, 256)
    changed = block.clone()
    changed[:, :, 15] = 0
    assert not run(draft, features, block, [20])[:, :, 1].allclose(run(draft, features, changed, [20])[:, :, 1])


@pytest.mark.parametrize(("back", "seen"), [(63, True), (64, False)])
def test_the_window_ends_64_tokens_back(draft: Draft, back: int, seen: bool) -> None:
    layer = draft.layers[0]
    x, context = torch.randn(1, 1, 256), torch.randn(1, 2, 256)
    at, context_at, allowed = torch.tensor([[100]]), torch.tensor([[100 - back, 90]]), torch.ones(1, 1, 3).bool()
    changed = context.clone()
    changed[:, 0] = 0
    with torch.no_grad():
        same = layer(x, context, at, context_at, allowed).equal(layer(x, changed, at, context_at, allowed))
    assert same is not seen


def test_rotation_depends_on_distance_alone() -> None:
    q, k = torch.randn(1, 1, 1, 64), torch.randn(1, 1, 1, 64)
    scores = [
        (rotate(q, torch.tensor([[a]]), 1e7) * rotate(k, torch.tensor([[b]]), 1e7)).sum() for a, b in ((9, 5), (14, 10))
    ]
    assert torch.isclose(scores[0], scores[1], atol=1e-4)


def test_unused_rows_weigh_as_much_as_zero_logits() -> None:
    logits = torch.randn(3, 300)
    full = torch.cat([logits, torch.zeros(3, 248320 - 300)], dim=1)
    assert torch.allclose(target.with_unused_rows(logits).logsumexp(1), full.logsumexp(1), atol=1e-4)


def test_a_wrong_wiring_is_never_the_right_one() -> None:
    order = random.Random(0)
    drawn = [train.wrong_taps(order) for _ in range(300)]
    assert configs.TAPS not in drawn
    assert {tuple(taps) for taps in drawn} >= {(2, 4, 6), (0, 2, 4), (5, 3, 1), (1, 3, 6), (3, 1, 5)}
    assert all(0 <= tap < configs.TARGET_LAYERS - 1 for taps in drawn for tap in taps)


@pytest.mark.parametrize("shape", [(3, 40, 20), (2, 20, 40)])
def test_orthogonalising_brings_singular_values_near_one(shape: tuple[int, ...]) -> None:
    values = torch.linalg.svdvals(optim.orthogonalise(torch.randn(*shape)))
    assert values.min() > 0.5
    assert values.max() < 1.5
