"""The vocabulary check: what the files of a tokenizer say, two tokenizers compared, and the mask token's rules."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scripts.core import BuildError, Check, read_json
from scripts.draft_config import expected_tensors, read_draft_config
from scripts.vocab import check, check_mask, compare, main, read_vocab
from tests.toy_tokenizer import PADDING, SEVEN, STOCK, change, full_folder, toy_folder, toy_json, toy_size, write

FIRST = toy_size() + len(STOCK)
"""Id of the first of the seven tokens; ``FIRST + 6`` is the last token of the toy target."""

ROWS = toy_size() + len(STOCK + SEVEN) + PADDING
MASK = FIRST + 7
EXPECT = {"mask_token_id": MASK, "added_token_ids": [FIRST, FIRST + 6], "block_size": 16}


def draft_folder(folder: Path, **changes: Any) -> Path:
    """Write a tiny draft that fits the toy target: config and weights of zeros; returns its config.json."""
    folder.mkdir(parents=True)
    nested = {"block_size": 16, "mask_token_id": MASK, "target_layer_ids": [1, 3], **changes.pop("dflash_config", {})}
    config = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 4096,
        "vocab_size": ROWS,
        "rope_parameters": {"rope_theta": 1e7, "rope_type": "default"},
        "num_target_layers": 4,
        "tie_word_embeddings": False,
        "dflash_config": {key: value for key, value in nested.items() if value is not None},
        **changes,
    }
    path = folder / "config.json"
    write(path, {key: value for key, value in config.items() if value is not None})
    return path


def weights(config: Path, without: str | None = None) -> None:
    """Write a model.safetensors of zeros with the shapes the config calls for."""
    header, at = {}, 0
    for name, shape in expected_tensors(read_draft_config(config)).items():
        if name == without:
            continue
        size = 2
        for rows in shape:
            size *= rows
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    (config.parent / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))


@pytest.fixture
def pair(tmp_path: Path) -> SimpleNamespace:
    """A draft, a target with the seven tokens and a base without them, as folders."""
    draft = draft_folder(tmp_path / "draft")
    weights(draft)
    base = toy_folder(tmp_path / "base", tokens=STOCK)
    return SimpleNamespace(draft=draft, target=toy_folder(tmp_path / "target"), base=base)


def stopped(pair: SimpleNamespace, capsys: pytest.CaptureFixture[str], expect: dict[str, Any] | None = None) -> str:
    """Every line that a failing check prints, and the error, joined."""
    with pytest.raises(BuildError) as caught:
        check(pair.draft, pair.target, pair.base, EXPECT if expect is None else expect)
    return f"{capsys.readouterr().err}{caught.value}"


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


def test_a_token_outside_the_range_that_differs_stops(
    pair: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    rename(pair.target, toy_size() + 3, "<thought>")
    assert (
        f"differences from base: outside the expected {FIRST}..{FIRST + 6}: id {toy_size() + 3}: "
        "base '<think>', target '<thought>'"
    ) in stopped(pair, capsys)


def test_a_token_that_differs_stops_when_none_is_expected(
    pair: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    rename(pair.target, toy_size() + 3, "<thought>")
    assert f"differences from base: id {toy_size() + 3}: base '<think>', target '<thought>'" in stopped(
        pair, capsys, {"mask_token_id": MASK}
    )


def test_shifted_ids_stop_with_the_first_three(pair: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    write(pair.target / "tokenizer.json", toy_json([*STOCK[:1], "<new>", *STOCK[1:], *SEVEN]))
    said = stopped(pair, capsys)
    at = toy_size() + 1
    assert (
        f"id {at}: base '<|im_start|>', target '<new>'; id {at + 1}: base '<|im_end|>', target '<|im_start|>'; "
        f"id {at + 2}: base '<think>', target '<|im_end|>'; and "
    ) in said


def test_expected_ids_that_are_missing_stop(pair: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    write(pair.target / "tokenizer.json", toy_json([*STOCK, *SEVEN[:5]]))
    said = stopped(pair, capsys)
    assert f"expected added tokens: id {FIRST + 5} has no string; id {FIRST + 6} has no string" in said


def test_expected_ids_that_are_ordinary_tokens_stop(pair: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    expect = {**EXPECT, "added_token_ids": [toy_size() - 1, FIRST + 6]}
    assert f"expected added tokens: id {toy_size() - 1} is the ordinary token " in stopped(pair, capsys, expect)


def test_expected_ids_beyond_the_embedding_stop(pair: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    expect = {**EXPECT, "added_token_ids": [FIRST, 10**12]}
    said = stopped(pair, capsys, expect)
    assert f"expected added tokens: id {10**12} has no row in the target's embedding of {ROWS} rows" in said


@pytest.mark.parametrize("with_base", [False, True])
def test_a_gap_stops(
    pair: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str], with_base: bool
) -> None:
    value = toy_json(STOCK + SEVEN)
    value["added_tokens"] = [entry for entry in value["added_tokens"] if entry["id"] != FIRST + 2]
    write(pair.target / "tokenizer.json", value)
    pair.base = toy_folder(tmp_path / "stock") if with_base else None
    said = stopped(pair, capsys, {"mask_token_id": MASK})
    assert f"gaps: id {FIRST + 2} has no string" in said


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


def test_a_config_id_without_a_string(pair: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    change(pair.target / "config.json", eos_token_id=[toy_size() + 2, MASK])
    said = stopped(pair, capsys)
    assert f"target: special ids of the configs: config.json has eos_token_id {MASK}, which has no string in" in said


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


def test_base_files_are_judged_too(pair: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    write(pair.base / "special_tokens_map.json", {"eos_token": "<|endoftext|>"})
    assert "base: special tokens agree: eos_token is '<|im_end|>'" in stopped(pair, capsys)


# Sizes


def test_sizes_that_differ(pair: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    change(pair.target / "config.json", vocab_size=ROWS - PADDING)
    said = stopped(pair, capsys, {})
    assert f"vocabulary size: draft {ROWS}, target {ROWS - PADDING} ({ROWS - PADDING} with strings, 0 padding" in said
    assert f"mask token: id {MASK} has no row in the target's embedding of {ROWS - PADDING} rows" in said


def test_an_id_beyond_the_embedding(pair: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    change(pair.target / "config.json", vocab_size=FIRST + 6)
    assert f"highest token id: id {FIRST + 6} '<|audio_pad|>' of {FIRST + 6} rows" in stopped(pair, capsys, {})


def test_no_vocab_size(pair: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    change(pair.target / "config.json", vocab_size=None)
    assert "the target's config has no vocab_size" in stopped(pair, capsys)


def test_two_vocab_sizes(pair: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    change(pair.target / "config.json", text_config={**layers(), "vocab_size": 7})
    assert f"vocab_size is {ROWS} at the top level and 7 in text_config" in stopped(pair, capsys)


@pytest.mark.parametrize("value", [True, 0, "248320"])
def test_a_vocab_size_that_is_no_number(pair: SimpleNamespace, capsys: pytest.CaptureFixture[str], value: Any) -> None:
    change(pair.target / "config.json", vocab_size=value)
    assert f"vocab_size is {value!r}, not a number of rows" in stopped(pair, capsys)


def test_a_nested_vocab_size_is_enough(pair: SimpleNamespace) -> None:
    change(pair.target / "config.json", vocab_size=None, hidden_size=None, num_hidden_layers=None, text_config=layers())
    assert check(pair.draft, pair.target, pair.base, EXPECT).figures["vocab_size"] == ROWS


# The mask token


def test_another_mask_than_expected(pair: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    said = stopped(pair, capsys, {**EXPECT, "mask_token_id": MASK + 1})
    assert f"expected mask token: draft {MASK}, expected {MASK + 1}" in said


def test_a_draft_without_a_mask(pair: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair.draft = draft_folder(tmp_path / "other", dflash_config={"mask_token_id": None})
    assert "mask_token_id is missing" in stopped(pair, capsys)


# The draft


def test_another_block_size_than_expected(pair: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    said = stopped(pair, capsys, {**EXPECT, "block_size": 8})
    assert "expected block size: draft 16, expected 8" in said


def test_weights_that_do_not_fit_the_config(pair: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    weights(pair.draft, without="fc.weight")
    assert "tensor fc.weight: missing" in stopped(pair, capsys)


def test_a_target_of_another_size(pair: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    change(pair.target / "config.json", hidden_size=32)
    assert "draft and target: hidden_size: draft 16, target 32" in stopped(pair, capsys)


def test_a_target_without_chat_template(pair: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    (pair.target / "chat_template.jinja").unlink()
    assert "chat template: none; drafts are measured on chats" in stopped(pair, capsys)


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
