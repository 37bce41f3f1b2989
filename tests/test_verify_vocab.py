"""A target's tokenizer files become the vocabulary that its draft's GGUF must carry."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scripts.core import BuildError
from scripts.verify_vocab import read_vocabulary
from tests import verify_samples as samples


@pytest.fixture
def target(tmp_path: Path) -> Path:
    samples.write_target(tmp_path)
    return tmp_path


def change(target: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    tokenizer = samples.tokenizer_json()
    edit(tokenizer)
    samples.write_json(target / "tokenizer.json", tokenizer)


def test_rows_are_words_added_tokens_and_padding(target: Path) -> None:
    vocabulary = read_vocabulary(target, 13)
    assert vocabulary.tokens == [
        "a", "b", "c", "ab", "abc", "\u0120", "\u0120a",
        "<|endoftext|>", "<|im_end|>", "<think>", "<|fim_pad|>", "[PAD11]", "[PAD12]",
    ]  # fmt: skip
    assert vocabulary.kinds == [1] * 7 + [3, 3, 4, 3, 5, 5]
    assert vocabulary.merges == ["a b", "ab c", "\u0120 a"]
    assert vocabulary.chat_template == samples.TEMPLATE
    assert vocabulary.adds == {"bos": False, "eos": False}


def test_merges_as_texts_are_those_as_pairs(target: Path) -> None:
    pairs = read_vocabulary(target, 13).merges
    change(target, lambda tokenizer: tokenizer["model"].update(merges=["a b", "ab c", "\u0120 a"]))
    assert read_vocabulary(target, 13).merges == pairs
    change(target, lambda tokenizer: tokenizer["model"].update(merges=[["a b", "c"]]))
    assert read_vocabulary(target, 13).merges == ["a\u0120b c"]


def test_special_ids_come_from_the_tokenizer_then_from_the_model(target: Path) -> None:
    assert read_vocabulary(target, 13).special_ids == {
        "eos": (8, "tokenizer_config.json"),
        "pad": (7, "tokenizer_config.json"),
    }
    samples.write_json(target / "tokenizer_config.json", {"eos_token": None, "pad_token": "<|nowhere|>"})
    samples.write_json(target / "config.json", {"eos_token_id": [8, 7], "text_config": {"pad_token_id": 7}})
    assert read_vocabulary(target, 13).special_ids == {"pad": (7, "config.json")}
    samples.write_json(target / "config.json", {"eos_token_id": 8, "text_config": {"eos_token_id": 7}})
    assert read_vocabulary(target, 13).special_ids == {"eos": (8, "config.json")}


def test_without_a_post_processor_the_settings_say_what_is_added(target: Path) -> None:
    change(target, lambda tokenizer: tokenizer.update(post_processor=None))
    samples.write_json(target / "tokenizer_config.json", {"add_bos_token": True})
    assert read_vocabulary(target, 13).adds == {"bos": True}


def test_the_template_of_the_settings_wins_over_the_file(target: Path) -> None:
    samples.write_json(target / "tokenizer_config.json", {"chat_template": "{{ x }}"})
    assert read_vocabulary(target, 13).chat_template == "{{ x }}"
    samples.write_json(target / "tokenizer_config.json", {})
    (target / "chat_template.jinja").unlink()
    assert read_vocabulary(target, 13).chat_template is None


WRONG: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda t: t["model"].update(type="Unigram"), "tokenizer.json is no BPE tokenizer with a vocabulary"),
    (lambda t: t.pop("model"), "tokenizer.json is no BPE tokenizer with a vocabulary"),
    (lambda t: t["added_tokens"].append({"id": 11}), "an added token of tokenizer.json is malformed"),
    (
        lambda t: t["added_tokens"].append({"id": 13, "content": "<x>"}),
        "token '<x>' has id 13, and the vocabulary has 13",
    ),
    (lambda t: t["added_tokens"].append({"id": "1", "content": "<x>"}), "token '<x>' has id '1'"),
    (lambda t: t["added_tokens"].append({"id": 9, "content": "<x>"}), "tokens '<think>' and '<x>' share id 9"),
    (lambda t: t["model"].update(merges=[]), "tokenizer.json has no merges"),
    (lambda t: t["model"].update(merges=[["a", "b", "c"]]), "merge ['a', 'b', 'c'] of tokenizer.json is malformed"),
    (
        lambda t: t.update(post_processor={"processors": [{"type": "ByteLevel"}, {"type": "TemplateProcessing"}]}),
        "tokenizer.json has the post-processor 'TemplateProcessing'",
    ),
]


@pytest.mark.parametrize(("edit", "message"), WRONG)
def test_a_wrong_tokenizer_is_named(target: Path, edit: Callable[[dict[str, Any]], object], message: str) -> None:
    change(target, edit)
    with pytest.raises(BuildError) as caught:
        read_vocabulary(target, 13)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "config.json"])
def test_a_missing_or_broken_file_is_named(target: Path, name: str) -> None:
    (target / name).write_text("[]", encoding="utf-8")
    with pytest.raises(BuildError, match=f"holds no JSON object .*{name}"):
        read_vocabulary(target, 13)
    (target / name).unlink()
    with pytest.raises(BuildError, match=f"file is missing .*{name}"):
        read_vocabulary(target, 13)
