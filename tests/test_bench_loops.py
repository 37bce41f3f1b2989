"""Loops are told from answers that only repeat what code repeats."""

import random
import zlib

import pytest

from demo.pair import corpus
from scripts import bench_loops

WORDS = random.Random(1).choices(range(1000), k=300)


@pytest.mark.parametrize(
    ("tokens", "text", "reason"),
    [
        ([7] * 40, "//" * 40, "80 times '/'"),
        ([1, 2] * 8, "////////////////////////", "24 times '/'"),
        ([1, 2, 3, 4, 5] * 20, "a b c d e ", "of its 12-token runs are repeated"),
        (WORDS[:20] * 3, "two lines over and over", "of its 12-token runs are repeated"),
        (WORDS[:200] + WORDS[200:220] * 5, "a good start", "it ends in a cycle of 20 tokens"),
    ],
    ids=["one token", "a few tokens of one character", "five tokens", "a long cycle", "a loop after a good start"],
)
def test_a_loop_is_found(tokens: list[int], text: str, reason: str) -> None:
    assert reason in (bench_loops.loop(tokens, text) or "no loop")


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (WORDS, "words"),
        (WORDS[:100] + WORDS[:40] + WORDS[100:200], "a part quoted again"),
        (WORDS[:30], "# " + "-" * 40 + " title of a longer section, with words enough to be longer than its rule"),
        ([1] * 12, "short"),
        ([], ""),
        (WORDS[:100] + WORDS[100:110] * 3, "said three times"),
    ],
    ids=["no repetition", "a quotation", "a rule of dashes", "too short to tell", "no answer", "three times"],
)
def test_what_is_no_loop(tokens: list[int], text: str) -> None:
    assert bench_loops.loop(tokens, text) is None


def test_no_answer_of_the_corpus_counts_as_a_loop() -> None:
    for sample in corpus.training_samples() + corpus.unseen_samples():
        # Words in the place of tokens, which takes no tokenizer.
        words = [zlib.crc32(word.encode()) for word in sample.answer.split()]
        assert bench_loops.loop(words, sample.answer) is None, sample.name


def test_the_share_of_repeated_runs() -> None:
    assert bench_loops.repeated_share([1] * 13) == 0.5
    assert bench_loops.repeated_share([1] * 11) == 0
    assert bench_loops.repeated_share(WORDS) == 0
