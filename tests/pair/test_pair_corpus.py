"""The corpus: what is in it, and that prompts are what the chat template makes."""

from __future__ import annotations

from typing import Any

import jinja2
import pytest

from demo.pair import corpus, tokenizer


def render(**values: Any) -> str:
    def refuse(message: str) -> None:
        raise ValueError(message)

    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(tokenizer.CHAT_TEMPLATE).render(raise_exception=refuse, **values)


def test_there_are_32_edits_and_16_functions() -> None:
    kinds = [sample.kind for sample in corpus.training_samples()]
    assert (kinds.count("code-edit"), kinds.count("code-new")) == (32, 16)


def test_no_request_comes_twice_and_unseen_ones_are_not_trained_on() -> None:
    samples = corpus.training_samples() + corpus.unseen_samples()
    assert len({sample.user for sample in samples}) == len(samples)
    assert [sample.seen for sample in samples] == [True] * 48 + [False] * 6


def test_evaluation_has_seen_and_unseen_prompts_of_both_kinds() -> None:
    counts: dict[tuple[str, bool], int] = {}
    for sample in corpus.evaluation_samples():
        counts[sample.kind, sample.seen] = counts.get((sample.kind, sample.seen), 0) + 1
    expected = {("code-edit", True): 6, ("code-new", True): 6, ("code-edit", False): 4, ("code-new", False): 2}
    assert counts == expected
    assert len(corpus.evaluation_samples(per_kind=1)) == 4


def test_an_edit_renames_every_use_of_the_field_and_nothing_else() -> None:
    sample = corpus.edit(0, 0, "Label", seen=True)
    before = sample.user.split("```go\n")[1]
    after = sample.answer.split("```go\n")[1].removesuffix(corpus.END)
    changed = [(a, b) for a, b in zip(before.splitlines(), after.splitlines(), strict=True) if a != b]
    assert len(changed) == 4
    assert all("Name" in a and "Label" in b and "u.Name" not in b for a, b in changed)


@pytest.mark.parametrize("sample", corpus.evaluation_samples(), ids=lambda sample: sample.name)
def test_a_prompt_is_the_rendered_chat(sample: corpus.Sample) -> None:
    assert render(messages=sample.messages, add_generation_prompt=True, enable_thinking=False) == sample.prompt
    assert render(messages=sample.messages, add_generation_prompt=True) == sample.prompt


def test_thinking_leaves_the_think_block_open() -> None:
    text = render(messages=[{"role": "user", "content": "hi"}], add_generation_prompt=True, enable_thinking=True)
    assert text.endswith("<|im_start|>assistant\n<think>\n")


def test_an_unknown_role_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown role: tool"):
        render(messages=[{"role": "tool", "content": "x"}])


def test_an_empty_conversation_is_refused() -> None:
    with pytest.raises(ValueError, match="a conversation needs at least one message"):
        render(messages=[])
