"""The vocabulary check: what the files of a tokenizer say, two tokenizers compared, and the mask token's rules."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scripts.core import BuildError, Check, read_json
from scripts.vocab import check, check_mask, compare, main, read_vocab
from tests.errors_table import Said
from tests.toy_pair import EXPECT, FIRST, MASK, ROWS, draft_folder, weights
from tests.toy_tokenizer import PADDING, SEVEN, STOCK, change, full_folder, toy_folder, toy_json, toy_size, write


@pytest.fixture
def pair(tmp_path: Path) -> SimpleNamespace:
    """A draft, a target with the seven tokens and a base without them, as folders."""
    draft = draft_folder(tmp_path / "draft")
    weights(draft)
    base = toy_folder(tmp_path / "base", tokens=STOCK)
    return SimpleNamespace(draft=draft, target=toy_folder(tmp_path / "target"), base=base)


Stopped = Callable[..., str]


@pytest.fixture
def stopped(pair: SimpleNamespace, capsys: pytest.CaptureFixture[str], said: Said) -> Stopped:
    """Checks the pair, records the error by its title and returns it with the lines that failing checks print."""

    def run(title: str, expect: dict[str, Any] | None = None) -> str:
        with pytest.raises(BuildError) as caught:
            check(pair.draft, pair.target, pair.base, EXPECT if expect is None else expect)
        said(title, caught.value)
        return f"{capsys.readouterr().err}{caught.value}"

    return run


def detail(checks: list[Check], name: str) -> str:
    return next(one.detail for one in checks if one.name == name)


def rename(folder: Path, token_id: int, string: str) -> None:
    """Give an added token of a folder's tokenizer.json another string."""
    value = read_json(folder / "tokenizer.json")
    for entry in value["added_tokens"]:
        if entry["id"] == token_id:
            entry["content"] = string
    write(folder / "tokenizer.json", value)


# A pair that fits


def test_a_fitting_pair(pair: SimpleNamespace) -> None:
    report = check(pair.draft, pair.target, pair.base, EXPECT)
    assert report.ok
    figures = report.figures
    assert [entry["string"] for entry in figures["added_range"]] == SEVEN
    assert [entry["id"] for entry in figures["added_range"]] == list(range(FIRST, FIRST + 7))
    assert not any(entry["in_base"] for entry in figures["added_range"])
    assert figures["mask_token"] == {"id": MASK, "string": None}
    assert (figures["bpe_tokens"], figures["added_tokens"]) == (toy_size(), 12)
    assert (figures["padding_rows"], figures["vocab_size"], figures["differing_ids"]) == (PADDING, ROWS, 7)
    assert figures["special_tokens"]["eos"]["tokenizer"] == {"id": toy_size() + 2, "string": "<|im_end|>"}
    assert figures["special_tokens"]["pad"]["tokenizer"] == {"id": toy_size(), "string": "<|endoftext|>"}
    assert figures["special_tokens"]["bos"] == {"tokenizer": None, "configs": []}
    assert figures["chat_template"]["source"] == "chat_template.jinja"
    assert detail(report.checks, "differences from base") == f"exactly {FIRST}..{FIRST + 6} differ (7 ids)"
    assert f"{PADDING} padding rows" in detail(report.checks, "vocabulary size")


def test_without_base_the_tokens_must_be_in_the_target(pair: SimpleNamespace) -> None:
    report = check(pair.draft, pair.target, None, EXPECT)
    assert report.ok and report.figures["differing_ids"] is None
    assert detail(report.checks, "expected added tokens") == (
        f"{FIRST}..{FIRST + 6}: '<|audio_start|>' to '<|audio_pad|>'"
    )
    assert {entry["in_base"] for entry in report.figures["added_range"]} == {None}


def test_tokens_that_base_has_too_are_recorded(pair: SimpleNamespace, tmp_path: Path) -> None:
    pair.base = toy_folder(tmp_path / "stock")
    report = check(pair.draft, pair.target, pair.base, EXPECT)
    assert detail(report.checks, "differences from base").startswith("already in base: all 7 ids ")
    assert report.figures["differing_ids"] == 0
    assert all(entry["in_base"] for entry in report.figures["added_range"])


def test_a_part_of_the_range_may_be_in_base(pair: SimpleNamespace, tmp_path: Path) -> None:
    pair.base = toy_folder(tmp_path / "stock", tokens=[*STOCK, *SEVEN[:3]])
    report = check(pair.draft, pair.target, pair.base, EXPECT)
    assert detail(report.checks, "differences from base") == (
        f"4 of the ids {FIRST}..{FIRST + 6} differ, 3 are already in base"
    )


def test_new_tokens_nobody_expected_are_a_warning(pair: SimpleNamespace) -> None:
    report = check(pair.draft, pair.target, pair.base, {})
    text = detail(report.checks, "differences from base")
    assert text.startswith(f"warning: 7 ids are new in the target and none was expected: id {FIRST}: base no string, ")
    assert text.endswith("; and 4 more")
    assert report.figures["added_range"] == []


def test_other_merges_than_base_are_a_warning(pair: SimpleNamespace) -> None:
    value = read_json(pair.base / "tokenizer.json")
    value["model"]["merges"] = value["model"]["merges"][:-1]
    write(pair.base / "tokenizer.json", value)
    report = check(pair.draft, pair.target, pair.base, EXPECT)
    assert detail(report.checks, "text is cut as in base") == "warning: merges of tokenizer.json differ from base"


def test_merges_written_as_strings_are_the_same(pair: SimpleNamespace) -> None:
    value = read_json(pair.base / "tokenizer.json")
    assert isinstance(value["model"]["merges"][0], list)
    value["model"]["merges"] = [" ".join(pair) for pair in value["model"]["merges"]]
    write(pair.base / "tokenizer.json", value)
    report = check(pair.draft, pair.target, pair.base, EXPECT)
    assert detail(report.checks, "text is cut as in base") == "as in base"


# Ids that differ


def test_a_token_outside_the_range_that_differs_stops(pair: SimpleNamespace, stopped: Stopped) -> None:
    rename(pair.target, toy_size() + 3, "<thought>")
    assert (
        f"differences from base: outside the expected {FIRST}..{FIRST + 6}: id {toy_size() + 3}: "
        "base '<think>', target '<thought>'"
    ) in stopped("Vocabulary: a token outside the expected range that differs from base")


def test_a_token_that_differs_stops_when_none_is_expected(pair: SimpleNamespace, stopped: Stopped) -> None:
    rename(pair.target, toy_size() + 3, "<thought>")
    assert f"differences from base: id {toy_size() + 3}: base '<think>', target '<thought>'" in stopped(
        "Vocabulary: a token that differs from base, none expected", {"mask_token_id": MASK}
    )


def test_shifted_ids_stop_with_the_first_three(pair: SimpleNamespace, stopped: Stopped) -> None:
    write(pair.target / "tokenizer.json", toy_json([*STOCK[:1], "<new>", *STOCK[1:], *SEVEN]))
    at = toy_size() + 1
    assert (
        f"id {at}: base '<|im_start|>', target '<new>'; id {at + 1}: base '<|im_end|>', target '<|im_start|>'; "
        f"id {at + 2}: base '<think>', target '<|im_end|>'; and "
    ) in stopped("Vocabulary: shifted ids")


def test_expected_ids_that_are_missing_stop(pair: SimpleNamespace, stopped: Stopped) -> None:
    write(pair.target / "tokenizer.json", toy_json([*STOCK, *SEVEN[:5]]))
    assert f"expected added tokens: id {FIRST + 5} has no string; id {FIRST + 6} has no string" in stopped(
        "Vocabulary: expected ids that are missing"
    )


def test_expected_ids_that_are_ordinary_tokens_stop(pair: SimpleNamespace, stopped: Stopped) -> None:
    expect = {**EXPECT, "added_token_ids": [toy_size() - 1, FIRST + 6]}
    assert f"expected added tokens: id {toy_size() - 1} is the ordinary token " in stopped(
        "Vocabulary: expected ids that are ordinary tokens", expect
    )


def test_expected_ids_beyond_the_embedding_stop(pair: SimpleNamespace, stopped: Stopped) -> None:
    expect = {**EXPECT, "added_token_ids": [FIRST, 10**12]}
    assert f"expected added tokens: id {10**12} has no row in the target's embedding of {ROWS} rows" in stopped(
        "Vocabulary: expected ids beyond the embedding", expect
    )


@pytest.mark.parametrize("with_base", [False, True])
def test_a_gap_stops(pair: SimpleNamespace, tmp_path: Path, stopped: Stopped, with_base: bool) -> None:
    value = toy_json(STOCK + SEVEN)
    value["added_tokens"] = [entry for entry in value["added_tokens"] if entry["id"] != FIRST + 2]
    write(pair.target / "tokenizer.json", value)
    pair.base = toy_folder(tmp_path / "stock") if with_base else None
    assert f"gaps: id {FIRST + 2} has no string" in stopped(
        f"Vocabulary: a gap among the ids, {'with' if with_base else 'without'} base", {"mask_token_id": MASK}
    )


def test_a_gap_that_base_has_too_is_a_warning(pair: SimpleNamespace, tmp_path: Path) -> None:
    pair.base = toy_folder(tmp_path / "stock")
    for folder in (pair.base, pair.target):
        value = toy_json(STOCK + SEVEN)
        value["added_tokens"] = [entry for entry in value["added_tokens"] if entry["id"] != FIRST + 2]
        write(folder / "tokenizer.json", value)
    report = check(pair.draft, pair.target, pair.base, {"mask_token_id": MASK})
    assert detail(report.checks, "gaps") == f"warning: as in base: id {FIRST + 2} has no string"


def test_compare_names_ids_and_both_strings(pair: SimpleNamespace) -> None:
    rename(pair.base, toy_size() + 1, "<|turn|>")
    found = compare(read_vocab(pair.base), read_vocab(pair.target))
    assert found[:2] == [(toy_size() + 1, "<|turn|>", "<|im_start|>"), (FIRST, None, "<|audio_start|>")]
    assert len(found) == 8


def test_a_config_id_without_a_string(pair: SimpleNamespace, stopped: Stopped) -> None:
    change(pair.target / "config.json", eos_token_id=[toy_size() + 2, MASK])
    assert (
        f"target: special ids of the configs: config.json has eos_token_id {MASK}, which has no string in"
        in stopped("Vocabulary: a special id of config.json without a string")
    )


def test_a_config_that_ends_otherwise_is_a_warning(pair: SimpleNamespace) -> None:
    change(pair.target / "config.json", eos_token_id=None, text_config={"eos_token_id": toy_size(), **layers()})
    write(pair.target / "generation_config.json", {"eos_token_id": [toy_size(), toy_size() + 2]})
    report = check(pair.draft, pair.target, pair.base, EXPECT)
    assert detail(report.checks, "target: special ids of the configs") == (
        f"warning: eos is id {toy_size()} '<|endoftext|>' in config.json text_config and id {toy_size() + 2} "
        "'<|im_end|>' in tokenizer_config.json"
    )
    assert len(report.figures["special_tokens"]["eos"]["configs"]) == 3


def layers() -> dict[str, int]:
    """The sizes of the toy target, for a config that nests them."""
    return {"hidden_size": 16, "num_hidden_layers": 4, "vocab_size": ROWS}


def test_base_files_are_judged_too(pair: SimpleNamespace, stopped: Stopped) -> None:
    write(pair.base / "special_tokens_map.json", {"eos_token": "<|endoftext|>"})
    assert "base: special tokens agree: eos_token is '<|im_end|>'" in stopped(
        "Vocabulary: files of the base that disagree"
    )


# Sizes


def test_sizes_that_differ(pair: SimpleNamespace, stopped: Stopped) -> None:
    change(pair.target / "config.json", vocab_size=ROWS - PADDING)
    message = stopped("Vocabulary: another size than the draft's", {})
    assert f"vocabulary size: draft {ROWS}, target {ROWS - PADDING} ({ROWS - PADDING} with strings, 0 " in message
    assert f"mask token: id {MASK} has no row in the target's embedding of {ROWS - PADDING} rows" in message


def test_an_id_beyond_the_embedding(pair: SimpleNamespace, stopped: Stopped) -> None:
    change(pair.target / "config.json", vocab_size=FIRST + 6)
    assert f"highest token id: id {FIRST + 6} '<|audio_pad|>' of {FIRST + 6} rows" in stopped(
        "Vocabulary: an id beyond the embedding", {}
    )


def test_no_vocab_size(pair: SimpleNamespace, stopped: Stopped) -> None:
    change(pair.target / "config.json", vocab_size=None)
    assert "the target's config has no vocab_size" in stopped("Vocabulary: no vocab_size")


def test_two_vocab_sizes(pair: SimpleNamespace, stopped: Stopped) -> None:
    change(pair.target / "config.json", text_config={**layers(), "vocab_size": 7})
    assert f"vocab_size is {ROWS} at the top level and 7 in text_config" in stopped(
        "Vocabulary: two vocab_sizes that disagree"
    )


@pytest.mark.parametrize("value", [True, 0, "248320"])
def test_a_vocab_size_that_is_no_number(pair: SimpleNamespace, stopped: Stopped, value: Any) -> None:
    change(pair.target / "config.json", vocab_size=value)
    assert f"vocab_size is {value!r}, not a number of rows" in stopped(f"Vocabulary: vocab_size {value!r}")


def test_a_nested_vocab_size_is_enough(pair: SimpleNamespace) -> None:
    change(pair.target / "config.json", vocab_size=None, hidden_size=None, num_hidden_layers=None, text_config=layers())
    assert check(pair.draft, pair.target, pair.base, EXPECT).figures["vocab_size"] == ROWS


# The mask token


def test_another_mask_than_expected(pair: SimpleNamespace, stopped: Stopped) -> None:
    assert f"expected mask token: draft {MASK}, expected {MASK + 1}" in stopped(
        "Vocabulary: another mask token than expected", {**EXPECT, "mask_token_id": MASK + 1}
    )


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (ROWS, f"mask_token_id {ROWS} is outside the vocabulary of {ROWS} rows"),
        (toy_size() + 2, f"mask token: id {toy_size() + 2} '<|im_end|>' is the target's eos token"),
        (toy_size() + 1, f"mask token: id {toy_size() + 1} is '<|im_start|>', which marks a turn"),
        (toy_size(), f"mask token: id {toy_size()} '<|endoftext|>' is the target's pad token"),
    ],
    ids=["beyond the embedding", "that ends a turn", "that opens a turn", "that pads"],
)
def test_a_mask_with_a_meaning(
    mask: int, message: str, pair: SimpleNamespace, tmp_path: Path, stopped: Stopped
) -> None:
    pair.draft = draft_folder(tmp_path / "other", dflash_config={"mask_token_id": mask})
    if mask < ROWS:
        weights(pair.draft)
    assert message in stopped("Vocabulary: a mask token {id}", {"mask_token_id": mask})


def test_a_draft_without_a_mask(pair: SimpleNamespace, tmp_path: Path, stopped: Stopped) -> None:
    pair.draft = draft_folder(tmp_path / "other", dflash_config={"mask_token_id": None})
    assert "mask_token_id is missing" in stopped("Vocabulary: a draft without a mask token")


# The draft


def test_another_block_size_than_expected(pair: SimpleNamespace, stopped: Stopped) -> None:
    assert "expected block size: draft 16, expected 8" in stopped(
        "Vocabulary: another block size than expected", {**EXPECT, "block_size": 8}
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fc.weight": None}, "tensor fc.weight: missing"),
        ({"fc.weight": (16, 48)}, "tensor fc.weight: shape [16, 48], the config calls for [16, 32]"),
        ({"norm.weight": (8,)}, "tensor norm.weight: shape [8], the config calls for [16]"),
        ({"embed_tokens.weight": (4, 16)}, "tensor embed_tokens.weight: not part of a plain DFlash draft"),
    ],
    ids=["a tensor missing", "fc of the wrong width", "a tensor of the wrong shape", "a tensor too many"],
)
def test_weights_that_do_not_fit_the_config(
    changes: dict[str, tuple[int, ...] | None], message: str, pair: SimpleNamespace, stopped: Stopped
) -> None:
    weights(pair.draft, **changes)
    assert message in stopped("Weights: {id}")


def test_a_target_of_another_size(pair: SimpleNamespace, stopped: Stopped) -> None:
    change(pair.target / "config.json", hidden_size=32)
    assert "draft and target: hidden_size: draft 16, target 32" in stopped(
        "Vocabulary: a target of another hidden size"
    )


def test_a_target_without_chat_template(pair: SimpleNamespace, stopped: Stopped) -> None:
    (pair.target / "chat_template.jinja").unlink()
    assert "chat template: none; drafts are measured on chats" in stopped("Vocabulary: a target without chat template")


def test_every_failed_check_is_printed(pair: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    expect = {**EXPECT, "block_size": 8, "mask_token_id": MASK + 1}
    with pytest.raises(BuildError, match=r"2 of [0-9]+ checks failed, the first one expected mask token: draft"):
        check(pair.draft, pair.target, pair.base, expect)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["expected mask token", "expected block size"]


# Command line


def arguments(pair: SimpleNamespace, report: Path, expect: str) -> list[str]:
    folders = ["--draft", str(pair.draft.parent), "--target", str(pair.target), "--base", str(pair.base)]
    return [*folders, "--expect", expect, "--report", str(report)]


def test_command_writes_the_report(pair: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "reports" / "vocab.json"
    assert main(arguments(pair, report, json.dumps(EXPECT))) == 0
    assert read_json(report)["ok"] is True
    assert f"{toy_size()} + 12 tokens, {PADDING} padding rows, mask {MASK}" in capsys.readouterr().err


def test_command_writes_no_report_of_a_pair_that_does_not_fit(
    pair: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "vocab.json"
    assert main(arguments(pair, report, json.dumps({**EXPECT, "block_size": 8}))) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: 1 of ") and "expected block size: draft 16, expected 8" in last
    assert not report.exists()


def test_command_refuses_an_expectation_that_is_no_json(
    pair: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(pair, tmp_path / "vocab.json", "{mask: 1}")) == 1
    assert capsys.readouterr().err.startswith("error: not valid JSON: ")


@pytest.mark.slow
def test_full_vocabularies(tmp_path: Path) -> None:
    base, target = (read_vocab(full_folder(tmp_path / name, name)) for name in ("base", "finetune"))
    assert [entry[0] for entry in compare(base, target)] == list(range(248070, 248077))
    assert [entry[2] for entry in compare(base, target)] == SEVEN
    assert (len(target.tokens), len(target.added), target.vocab_size) == (248077, 33, 248320)
    assert (len(base.tokens), len(base.added), base.gaps, target.gaps) == (248070, 26, [], [])
    assert base.rules == target.rules
    found = {mask: check_mask(mask, target, 248320, None)[0] for mask in (248077, 248070, 248046, 248044, 248320)}
    assert {mask: one.ok for mask, one in found.items()} == {
        248077: True, 248070: True, 248046: False, 248044: False, 248320: False,
    }  # fmt: skip
    assert found[248070].detail.startswith("warning: ")
