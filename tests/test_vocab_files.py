"""Reading a tokenizer folder: every place where its files can contradict each other, and the message for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.core import BuildError
from scripts.vocab_files import read_vocab
from tests.errors_table import Said
from tests.toy_tokenizer import SEVEN, STOCK, change, toy_folder, toy_json, toy_size, write

LAST = toy_size() + len(STOCK + SEVEN) - 1


def contradiction(folder: Path) -> str:
    with pytest.raises(BuildError) as caught:
        read_vocab(folder)
    return str(caught.value)


def test_settings_that_name_an_id_differently(tmp_path: Path, said: Said) -> None:
    at = toy_size() + 3
    decoder = {str(at): {"content": "<thought>", "special": True}}
    folder = toy_folder(tmp_path / "target", added_tokens_decoder=decoder)
    message = contradiction(folder)
    assert message.startswith(
        f"one string per id: id {at} is '<think>' in tokenizer.json added_tokens and '<thought>' in "
        f"tokenizer_config.json added_tokens_decoder ({folder})"
    )
    said("Vocabulary: tokenizer_config.json that names an id otherwise than tokenizer.json", message)


def test_added_tokens_that_name_an_id_differently(tmp_path: Path, said: Said) -> None:
    folder = toy_folder(tmp_path / "target")
    write(folder / "added_tokens.json", {"<thought>": toy_size() + 3})
    expected = f"id {toy_size() + 3} is '<think>' in tokenizer.json added_tokens and '<thought>' in added_tokens.json"
    message = contradiction(folder)
    assert expected in message
    said("Vocabulary: added_tokens.json that names an id otherwise than tokenizer.json", message)


def test_vocab_json_that_names_an_id_differently(tmp_path: Path, said: Said) -> None:
    folder = toy_folder(tmp_path / "target")
    write(folder / "vocab.json", {"thought": 3})
    message = contradiction(folder)
    assert "in tokenizer.json model.vocab and 'thought' in vocab.json" in message
    said("Vocabulary: vocab.json that names an id otherwise than tokenizer.json", message)


def test_an_added_token_over_an_ordinary_one(tmp_path: Path, said: Said) -> None:
    folder = toy_folder(tmp_path / "target")
    value = toy_json(STOCK)
    value["added_tokens"][0]["id"] = toy_size() - 1
    write(folder / "tokenizer.json", value)
    message = contradiction(folder)
    assert "in tokenizer.json model.vocab and '<|endoftext|>' in tokenizer.json added_tokens" in message
    said("Vocabulary: an added token with the id of an ordinary one", message)


def test_one_string_at_two_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str], said: Said) -> None:
    folder = toy_folder(tmp_path / "target")
    write(folder / "added_tokens.json", {"<think>": LAST + 1})
    expected = (
        f"one id per string: '<think>' has id {toy_size() + 3} in tokenizer.json added_tokens and id {LAST + 1} in "
        "added_tokens.json"
    )
    message = contradiction(folder)
    assert expected in message
    assert expected in capsys.readouterr().err
    said("Vocabulary: one string with two ids", message)


def test_special_tokens_that_disagree(tmp_path: Path, said: Said) -> None:
    folder = toy_folder(tmp_path / "target")
    write(folder / "special_tokens_map.json", {"eos_token": {"content": "<|endoftext|>"}})
    message = contradiction(folder)
    assert message.startswith(
        f"special tokens agree: eos_token is '<|im_end|>' (id {toy_size() + 2}) in tokenizer_config.json and "
        f"'<|endoftext|>' (id {toy_size()}) in special_tokens_map.json"
    )
    said("Vocabulary: two files that name another end of text", message)


def test_named_tokens_without_an_id(tmp_path: Path) -> None:
    names = {"audio_token": "<|audio_pad|>"}
    folder = toy_folder(tmp_path / "target", tokens=STOCK, model_specific_special_tokens=names)
    assert (
        "tokenizer_config.json model_specific_special_tokens names '<|audio_pad|>' as audio_token, but no file gives it"
    ) in contradiction(folder)


def test_listed_special_tokens_without_an_id(tmp_path: Path) -> None:
    folder = toy_folder(tmp_path / "target", additional_special_tokens=["<|im_start|>", "<lost>"])
    assert "names '<lost>' as additional_special_tokens '<lost>', but no file gives it an id" in contradiction(folder)


def test_a_config_role_on_an_ordinary_token_is_a_warning(tmp_path: Path) -> None:
    folder = toy_folder(tmp_path / "target")
    change(folder / "config.json", bos_token_id=7)
    texts = [one.detail for one in read_vocab(folder).checks if one.name == "special ids of the configs"]
    assert texts[0].startswith("warning: config.json gives the role bos to an ordinary token: id 7 ")


@pytest.mark.parametrize("value", [True, "7", -1])
def test_a_config_id_that_is_no_id(tmp_path: Path, value: object, said: Said) -> None:
    folder = toy_folder(tmp_path / "target")
    change(folder / "config.json", pad_token_id=value)
    message = contradiction(folder)
    assert message.startswith(f"config.json: pad_token_id is {value!r}, not a token id")
    said(f"Vocabulary: pad_token_id {value!r}", message)


def test_an_entry_that_is_no_id_and_string(tmp_path: Path, said: Said) -> None:
    folder = toy_folder(tmp_path / "target")
    value = toy_json(STOCK)
    value["added_tokens"][1]["id"] = True
    write(folder / "tokenizer.json", value)
    message = contradiction(folder)
    assert message.startswith("tokenizer.json added_tokens has an entry that is not an id and a string: Tr")
    said("Vocabulary: an added token whose id is no number", message)


def test_a_vocabulary_of_another_kind(tmp_path: Path, said: Said) -> None:
    folder = toy_folder(tmp_path / "target")
    write(folder / "tokenizer.json", {"model": {"type": "Unigram", "vocab": [["a", 0.0]]}})
    message = contradiction(folder)
    assert "tokenizer.json has no vocabulary of strings and ids (model type 'Unigram')" in message
    said("Vocabulary: a tokenizer that is not BPE", message)


def test_broken_json(tmp_path: Path, said: Said) -> None:
    folder = toy_folder(tmp_path / "target")
    (folder / "special_tokens_map.json").write_text("<html>")
    message = contradiction(folder)
    assert message.startswith("not valid JSON") and str(folder / "special_tokens_map.json") in message
    said("Vocabulary: a web page in place of special_tokens_map.json", message)


def test_a_chat_template_that_is_no_text(tmp_path: Path, said: Said) -> None:
    folder = toy_folder(tmp_path / "target")
    (folder / "chat_template.jinja").write_bytes(b"\xff\xfe{{")
    message = contradiction(folder)
    assert message.startswith("not UTF-8 text: ")
    said("Vocabulary: a chat template that is no text", message)
