"""Preparing a tokenizer folder: what is changed, what is not, and that ids which move are noticed."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from scripts.core import BuildError, read_json, sha256_file
from scripts.tokenizer import first_difference, main, prepare
from scripts.vocab_settings import edit_settings
from tests.errors_table import Said
from tests.toy_tokenizer import SEVEN, STOCK, change, full_folder, toy_folder, toy_json, toy_size, write


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return toy_folder(tmp_path / "source")


def refused(source: Path, out: Path) -> str:
    """The one-line error of preparing a folder; nothing may be left behind."""
    with pytest.raises(BuildError) as caught:
        prepare(source, out)
    assert [path.name for path in out.parent.iterdir() if path.name.startswith(".")] == []
    return str(caught.value)


# The settings, as text


def test_only_the_class_changes_and_every_other_byte_stays(source: Path, tmp_path: Path) -> None:
    text = (
        '{\r\n    "tokenizer_class"  :"TokenizersBackend" ,\r\n\t"note": "\\u0939\\u093f TokenizersBackend हि",\r\n'
        '  "model_max_length": 1e6, "nested": {"tokenizer_class": "TokenizersBackend"},\r\n'
        '"eos_token":"<|im_end|>"}'
    )
    (source / "tokenizer_config.json").write_bytes(text.encode())
    report = prepare(source, tmp_path / "out")
    written = (tmp_path / "out" / "tokenizer_config.json").read_bytes()
    assert written == text.replace('"TokenizersBackend" ,', '"PreTrainedTokenizerFast" ,').encode()
    assert report.figures["tokenizer_class"]["before"] == "TokenizersBackend"
    assert report.figures["tokenizer_class"]["after"] == "PreTrainedTokenizerFast"
    assert [file["name"] for file in report.figures["files"] if file["changed"]] == ["tokenizer_config.json"]
    assert (source / "tokenizer_config.json").read_bytes() == text.encode()


def test_loadable_settings_stay_byte_identical(source: Path, tmp_path: Path) -> None:
    text = '{"eos_token":"<|im_end|>"  ,\n\n"tokenizer_class": "PreTrainedTokenizerFast"}\n\n'
    (source / "tokenizer_config.json").write_text(text)
    report = prepare(source, tmp_path / "out")
    assert (tmp_path / "out" / "tokenizer_config.json").read_text() == text
    assert not any(file["changed"] for file in report.figures["files"])


def test_an_escaped_key_is_found() -> None:
    text, notes = edit_settings('{"tokenizer\\u005fclass": "TokenizersBackend"}', Path("f"))
    assert text == '{"tokenizer\\u005fclass": "PreTrainedTokenizerFast"}'
    assert notes == ["tokenizer_class TokenizersBackend -> PreTrainedTokenizerFast"]


def test_list_of_extra_tokens_is_renamed() -> None:
    text, notes = edit_settings('{"a": 1,\n "extra_special_tokens" : ["<x>"],\n "b": 2}\n', Path("f"))
    assert text == '{"a": 1,\n "additional_special_tokens" : ["<x>"],\n "b": 2}\n'
    assert notes == ["extra_special_tokens (a list) -> additional_special_tokens"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            '{\n "extra_special_tokens": ["<x>", "<y>"],\n "additional_special_tokens": ["<y>", {"content": "<x>"}]\n}',
            '{\n "additional_special_tokens": ["<y>", {"content": "<x>"}]\n}',
        ),
        (
            '{\n "additional_special_tokens": ["<x>"],\n "extra_special_tokens": ["<x>"]\n}',
            '{\n "additional_special_tokens": ["<x>"]\n}',
        ),
    ],
)
def test_the_same_list_twice_is_kept_once(before: str, after: str) -> None:
    assert edit_settings(before, Path("f"))[0] == after


def test_extra_tokens_by_name_stay() -> None:
    text = '{"extra_special_tokens": {"audio_token": "<a>"}, "additional_special_tokens": ["<x>"]}'
    assert edit_settings(text, Path("f")) == (text, [])


def test_lists_that_disagree_stop(said: Said) -> None:
    text = '{"extra_special_tokens": ["<x>"], "additional_special_tokens": ["<y>"]}'
    with pytest.raises(
        BuildError, match=r"extra_special_tokens \['<x>'\] and additional_special_tokens \['<y>'\] disag"
    ) as caught:
        edit_settings(text, Path("f"))
    said("Tokenizer: two lists of special tokens that disagree", caught.value)


def test_a_key_that_appears_twice_stops(said: Said) -> None:
    with pytest.raises(BuildError, match="key 'tokenizer_class' appears twice") as caught:
        edit_settings('{"tokenizer_class": "A", "tokenizer_class": "TokenizersBackend"}', Path("f"))
    said("Tokenizer: a key that appears twice", caught.value)


def test_a_class_that_is_no_name_stops(said: Said) -> None:
    with pytest.raises(BuildError, match="tokenizer_class is 7, not a name") as caught:
        edit_settings('{"tokenizer_class": 7}', Path("f"))
    said("Tokenizer: a class that is no name", caught.value)


# Files


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_a_missing_file_stops(source: Path, tmp_path: Path, name: str, said: Said) -> None:
    (source / name).unlink()
    message = refused(source, tmp_path / "out")
    assert message.startswith(f"{name} is missing ({source})")
    said(f"Tokenizer: no {name}", message)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_broken_json_stops(source: Path, tmp_path: Path, name: str, said: Said) -> None:
    (source / name).write_text('{"model": ')
    message = refused(source, tmp_path / "out")
    assert message.startswith("not valid JSON") and str(source / name) in message
    said(f"Tokenizer: {name} that is no JSON", message)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_json_that_is_no_object_stops(source: Path, tmp_path: Path, name: str, said: Said) -> None:
    (source / name).write_text("[]")
    message = refused(source, tmp_path / "out")
    assert message.startswith(f"not a JSON object ({source / name})")
    said(f"Tokenizer: {name} that is no object", message)


def test_no_chat_template_stops(source: Path, tmp_path: Path, said: Said) -> None:
    (source / "chat_template.jinja").unlink()
    message = refused(source, tmp_path / "out")
    assert message.startswith("no chat template: neither chat_template.jinja nor a chat_temp")
    said("Tokenizer: no chat template", message)


def test_chat_template_as_a_key_is_enough(source: Path, tmp_path: Path) -> None:
    (source / "chat_template.jinja").unlink()
    change(source / "tokenizer_config.json", chat_template="{{ messages }}")
    report = prepare(source, tmp_path / "out")
    assert ("chat template", "in tokenizer_config.json chat_template") in [
        (one.name, one.detail) for one in report.checks
    ]


def test_two_different_chat_templates_are_a_warning(source: Path, tmp_path: Path) -> None:
    change(source / "tokenizer_config.json", chat_template="{{ other }}")
    report = prepare(source, tmp_path / "out")
    assert report.checks[0].detail.startswith(
        "warning: different templates in chat_template.jinja, tokenizer_config.json"
    )


def test_a_vocabulary_that_the_library_refuses_stops(source: Path, tmp_path: Path, said: Said) -> None:
    value = toy_json(STOCK + SEVEN)
    value["model"]["merges"] = [["no", "such"]]
    write(source / "tokenizer.json", value)
    message = refused(source, tmp_path / "out")
    assert message.startswith("tokenizer.json cannot be loaded: ") and "no" in message
    said("Tokenizer: a vocabulary that cannot be loaded", message)


def test_only_tokenizer_files_are_copied(source: Path, tmp_path: Path) -> None:
    for name in ("model.safetensors", "pytorch_model.bin", "README.md", "modeling_x.py"):
        (source / name).write_text("x")
    change(source / "config.json", note="kept")
    (source / "generation_config.json").write_text("{}")
    (source / "merges.txt").write_text("#version: 0.2\n")
    report = prepare(source, tmp_path / "out")
    names = ["chat_template.jinja", "config.json", "generation_config.json", "merges.txt", "tokenizer.json"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [*names, "tokenizer_config.json"]
    for file in report.figures["files"]:
        assert file["sha256"] == sha256_file(tmp_path / "out" / file["name"])
        assert file["source_sha256"] == sha256_file(source / file["name"])


def test_remote_code_is_named_and_neither_copied_nor_run(source: Path, tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    (source / "evil.py").write_text(f"open({str(trace)!r}, 'w')\nclass Evil: pass\n")
    for name in ("config.json", "tokenizer_config.json"):
        change(source / name, auto_map={"AutoTokenizer": [None, "evil.Evil"], "AutoConfig": "evil.Evil"})
    report = prepare(source, tmp_path / "out")
    detail = next(one.detail for one in report.checks if one.name == "remote code")
    assert detail.startswith("warning: config.json and tokenizer_config.json point to code by auto_map")
    assert not trace.exists() and not (tmp_path / "out" / "evil.py").exists()


def test_running_again_replaces_the_folder(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare(source, out)
    (out / ".snakemake_timestamp").touch()
    (source / "chat_template.jinja").write_text("new")
    (source / "generation_config.json").write_text("{}")
    prepare(source, out)
    (source / "generation_config.json").unlink()
    prepare(source, out)
    assert (out / "chat_template.jinja").read_text() == "new"
    assert not (out / "generation_config.json").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


def test_a_failure_leaves_the_folder_as_it_was(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare(source, out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    (source / "chat_template.jinja").write_text("new")
    change(source / "tokenizer_config.json", tokenizer_class="Qwen2Tokenizer")
    refused(source, out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_a_folder_with_other_files_is_not_replaced(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("x")
    assert refused(source, out).startswith(f"the folder to write holds other files, such as thesis.txt ({out})")
    assert (out / "thesis.txt").exists()


@pytest.mark.parametrize("out", [".", ".."])
def test_the_source_is_not_replaced(source: Path, out: str) -> None:
    assert refused(source, source / out).startswith("the folder to write holds the source")


def test_a_file_in_the_way_stops(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("x")
    assert refused(source, tmp_path / "out").startswith("the folder to write is a file")


# Ids


def test_report_counts_and_class(source: Path, tmp_path: Path) -> None:
    report = prepare(source, tmp_path / "out")
    assert report.ok
    assert report.figures["added_tokens"] == 12
    assert report.figures["probe_tokens"] > 300
    assert report.figures["tokenizer_class"]["loaded"] in ("TokenizersBackend", "PreTrainedTokenizerFast")


@pytest.mark.parametrize("name", ["Qwen2Tokenizer", "Qwen2TokenizerFast"])
def test_a_class_that_rebuilds_the_rules_is_caught(tmp_path: Path, name: str, said: Said) -> None:
    source = toy_folder(tmp_path / "source", tokenizer_class=name)
    message = refused(source, tmp_path / "out")
    assert f"same ids: {name} (loaded as Qwen2Tokenizer by transformers " in message
    assert "cuts Hindi 'नमस" in message
    raw = tokenizers.Tokenizer.from_file(str(source / "tokenizer.json"))
    ids = raw.encode("नमस्ते").ids
    assert any(f"is {one} (" in message for one in ids) and "by AutoTokenizer" in message
    assert not (tmp_path / "out").exists()
    said(f"Tokenizer: a class rewritten by hand to {name}", message)


def test_a_class_nobody_knows_is_not_rewritten(tmp_path: Path) -> None:
    source = toy_folder(tmp_path / "source", tokenizer_class="NoSuchTokenizer")
    try:
        prepare(source, tmp_path / "out")
    except BuildError as error:  # transformers v4 refuses such a name, v5 loads tokenizer.json as it is
        assert "NoSuchTokenizer" in str(error)
    else:
        assert read_json(tmp_path / "out" / "tokenizer_config.json")["tokenizer_class"] == "NoSuchTokenizer"


def test_names_without_an_id_are_caught(tmp_path: Path, said: Said) -> None:
    names = {"audio_bos_token": "<|audio_start|>", "audio_token": "<|audio_pad|>"}
    source = toy_folder(tmp_path / "source", tokens=STOCK, model_specific_special_tokens=names)
    message = refused(source, tmp_path / "out")
    assert message.startswith(
        "named tokens have ids: tokenizer_config.json model_specific_special_tokens names '<|audio_start|>' as "
        "audio_bos_token, but no file gives it an id"
    )
    said("Tokenizer: named tokens without an id", message)


def test_an_id_that_the_loader_moves_is_caught(tmp_path: Path, said: Said) -> None:
    at = toy_size() + len(STOCK) + 6
    decoder = {str(at): {"content": "<|audio_pad|>", "special": True}}
    source = toy_folder(tmp_path / "source", tokens=STOCK, added_tokens_decoder=decoder)
    message = refused(source, tmp_path / "out")
    assert "loaded vocabulary: " in message
    assert f"id {at - 6}: files say None, PreTrainedTokenizerFast (loaded as " in message
    assert f"id {at}: files say '<|audio_pad|>'" in message
    said("Tokenizer: an id that the loader moves", message)


def test_ids_given_by_the_settings_alone_are_accepted(tmp_path: Path) -> None:
    first = toy_size() + len(STOCK)
    decoder = {str(first + at): {"content": token, "special": True} for at, token in enumerate(SEVEN)}
    source = toy_folder(tmp_path / "source", tokens=STOCK, added_tokens_decoder=decoder)
    report = prepare(source, tmp_path / "out")
    assert report.figures["added_tokens"] == 12
    assert report.checks[-1].detail.endswith("; 7 of them are not in tokenizer.json")


def test_special_tokens_that_are_split_are_caught(tmp_path: Path, said: Said) -> None:
    source = toy_folder(tmp_path / "source", split_special_tokens=True)
    message = refused(source, tmp_path / "out")
    assert "cuts added token '<|endoftext|>' " in message
    said("Tokenizer: special tokens that are split", message)


def test_a_split_token_of_the_settings_alone_is_caught(tmp_path: Path) -> None:
    at = toy_size() + 1
    source = toy_folder(
        tmp_path / "source",
        tokens=["<think>"],
        eos_token=None,
        pad_token=None,
        split_special_tokens=True,
        added_tokens_decoder={str(at): {"content": "<|audio_pad|>", "special": True}},
    )
    change(source / "config.json", eos_token_id=None)
    message = refused(source, tmp_path / "out")
    assert message.startswith("added tokens: PreTrainedTokenizerFast (loaded as ")
    assert "cuts '<|audio_pad|>' to [" in message and f"], not to id {at} (" in message


def test_the_network_is_never_asked(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def refuse(*args: Any, **_: Any) -> Any:
        asked.append(args)
        raise OSError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    prepare(source, tmp_path / "out")
    assert asked == []


def test_first_difference() -> None:
    assert first_difference([1, 2], [1, 2]) is None
    assert first_difference([1, 2], [1, 3]) == 1
    assert first_difference([1], [1, 2]) == 1


# Command line


def test_command_writes_folder_and_report(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.json"
    arguments = ["--source", str(source), "--out", str(tmp_path / "out"), "--report", str(report)]
    assert main(arguments) == 0
    assert read_json(report)["ok"] is True
    assert "12 added tokens, same ids on" in capsys.readouterr().err


def test_command_says_what_is_wrong_in_one_line(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (source / "config.json").unlink()
    report = tmp_path / "report.json"
    assert main(["--source", str(source), "--out", str(tmp_path / "out"), "--report", str(report)]) == 1
    assert capsys.readouterr().err == (
        f"error: config.json is missing ({source}): fetch it with the tokenizer; the converter needs it\n"
    )
    assert not report.exists()


@pytest.mark.slow
def test_full_vocabulary(tmp_path: Path) -> None:
    base, finetune = (full_folder(tmp_path / "source" / name, name) for name in ("base", "finetune"))
    report = prepare(finetune, tmp_path / "finetune")
    assert report.figures["added_tokens"] == 33
    assert report.figures["tokenizer_class"]["before"] == "TokenizersBackend"
    before = (finetune / "tokenizer_config.json").read_bytes()
    after = (tmp_path / "finetune" / "tokenizer_config.json").read_bytes()
    assert after == before.replace(b'"TokenizersBackend"', b'"PreTrainedTokenizerFast"')
    assert prepare(base, tmp_path / "base").figures["added_tokens"] == 26
