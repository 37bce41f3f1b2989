"""The rules for the mask token, and expectations that make no sense."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.core import BuildError, Check
from scripts.vocab import check_mask, parse_expect
from scripts.vocab_files import read_vocab
from tests.toy_pair import FIRST, MASK, ROWS
from tests.toy_tokenizer import change, toy_folder, toy_size


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (ROWS, f"id {ROWS} has no row in the target's embedding of {ROWS} rows"),
        (toy_size() + 2, f"id {toy_size() + 2} '<|im_end|>' is the target's eos token"),
        (toy_size(), f"id {toy_size()} '<|endoftext|>' is the target's pad token"),
        (toy_size() + 1, f"id {toy_size() + 1} is '<|im_start|>', which marks a turn"),
        (5, "is the target's bos token"),
        (None, "mask_token_id is None, not an integer from 0"),
        (True, "mask_token_id is True, not an integer from 0"),
        (-1, "mask_token_id is -1, not an integer from 0"),
        ("7", "mask_token_id is '7', not an integer from 0"),
    ],
)
def test_mask_tokens_that_are_wrong(tmp_path: Path, mask: object, expected: str) -> None:
    folder = toy_folder(tmp_path / "target")
    change(folder / "config.json", bos_token_id=5)
    found = check_mask(mask, read_vocab(folder), ROWS, None)
    assert [one.ok for one in found] == [False]
    assert expected in found[0].detail


def test_a_turn_mark_is_refused_even_when_it_has_no_role(tmp_path: Path) -> None:
    folder = toy_folder(tmp_path / "target", eos_token="<|endoftext|>")
    change(folder / "config.json", eos_token_id=None)
    found = check_mask(toy_size() + 2, read_vocab(folder), ROWS, None)
    assert found == [Check("mask token", False, f"id {toy_size() + 2} is '<|im_end|>', which marks a turn")]


@pytest.mark.parametrize(("mask", "string"), [(FIRST, "<|audio_start|>"), (toy_size() + 3, "<think>")])
def test_a_mask_that_is_a_named_token_is_a_warning(tmp_path: Path, mask: int, string: str) -> None:
    found = check_mask(mask, read_vocab(toy_folder(tmp_path / "target")), ROWS, mask)
    assert found[0] == Check("mask token", True, f"warning: id {mask} is also {string!r}")
    assert found[1].ok


@pytest.mark.parametrize("mask", [MASK, ROWS - 1])
def test_a_padding_row_is_a_good_mask(tmp_path: Path, mask: int) -> None:
    found = check_mask(mask, read_vocab(toy_folder(tmp_path / "target")), ROWS, None)
    assert found == [Check("mask token", True, f"id {mask}, a padding row of {ROWS} rows")]


@pytest.mark.parametrize(
    ("expect", "message"),
    [
        ([], "expect is [], not a mapping"),
        ({"mask": 1}, "expect has an unknown key mask"),
        ({"mask_token_id": True}, "expect.mask_token_id is True, not an integer from 0"),
        ({"block_size": "16"}, "expect.block_size is '16', not an integer from 0"),
        ({"added_token_ids": [1]}, "expect.added_token_ids is [1], not a first and a last id"),
        ({"added_token_ids": [2, 1]}, "expect.added_token_ids is [2, 1], not a first and a last id"),
        ({"added_token_ids": [False, 1]}, "expect.added_token_ids is [False, 1], not a first and a last id"),
        ({"added_token_ids": 7}, "expect.added_token_ids is 7, not a first and a last id"),
    ],
)
def test_expectations_that_make_no_sense(expect: object, message: str) -> None:
    with pytest.raises(BuildError) as caught:
        parse_expect(expect, "config.yaml")
    assert str(caught.value).startswith(f"{message} (config.yaml)")
