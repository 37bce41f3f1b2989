"""The embedded tokenizers: the real vocabulary, and the tokens added to it."""

from __future__ import annotations

import json
import shutil
import unicodedata
from pathlib import Path

import pytest
import tiktoken
from tokenizers import Tokenizer

from demo.pair import tokenizer
from scripts import core
from scripts.toolchain_cache import cache_root

PROBE = (
    "नमस्ते दुनिया ភាសាខ្មែរ 👩‍👩‍👧 12345 déjà vu Привет мир 你好世界 "
    "\n\n\tfunc (a *B) Foo() error {\r\n\treturn nil // it's\n}"
    "   x  العربية ไทย 한국어 ½ e\u0301"
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both variants, written once."""
    root = tmp_path_factory.mktemp("tokenizers")
    for variant in tokenizer.ADDED_TOKENS:
        tokenizer.write(variant, root / variant)
    return {variant: root / variant for variant in tokenizer.ADDED_TOKENS}


def added(folder: Path) -> dict[int, str]:
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    return {entry["id"]: entry["content"] for entry in content["added_tokens"]}


def test_base_and_finetune_differ_in_exactly_the_seven_audio_tokens(folders: dict[str, Path]) -> None:
    base, finetune = added(folders["base"]), added(folders["finetune"])
    assert {index: token for index, token in finetune.items() if index not in base} == {
        248070: "<|audio_start|>",
        248071: "<|audio_end|>",
        248072: "<tts_pad>",
        248073: "<tts_text_bos>",
        248074: "<tts_text_eod>",
        248075: "<tts_text_bos_single>",
        248076: "<|audio_pad|>",
    }
    assert all(finetune[index] == token for index, token in base.items())


def test_every_added_token_has_its_published_id(folders: dict[str, Path]) -> None:
    finetune = added(folders["finetune"])
    assert sorted(finetune) == list(range(248044, 248077))
    known = {248044: "<|endoftext|>", 248045: "<|im_start|>", 248046: "<|im_end|>", 248055: "<|vision_pad|>"}
    known |= {248058: "<tool_call>", 248063: "<|fim_pad|>", 248068: "<think>", 248069: "</think>"}
    assert {index: finetune[index] for index in known} == known


def test_twelve_added_tokens_are_not_special(folders: dict[str, Path]) -> None:
    content = json.loads((folders["finetune"] / "tokenizer.json").read_text(encoding="utf-8"))
    plain = [entry["id"] for entry in content["added_tokens"] if not entry["special"]]
    assert plain == list(range(248058, 248070))


def test_sizes_are_those_of_the_published_vocabulary(folders: dict[str, Path]) -> None:
    model = json.loads((folders["finetune"] / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    assert (len(model["vocab"]), len(model["merges"])) == (248044, 247587)


@pytest.mark.parametrize("variant", ["base", "finetune"])
def test_ids_equal_those_of_the_rank_file(folders: dict[str, Path], variant: str) -> None:
    ranks = tokenizer.parse_ranks(tokenizer.ranks_bytes())
    reference = tiktoken.Encoding("qwen", pat_str=tokenizer.REGEX, mergeable_ranks=ranks, special_tokens={})
    text = PROBE + Path(tokenizer.__file__).read_text(encoding="utf-8").split("SPECIAL_TOKENS")[0]
    built = Tokenizer.from_file(str(folders[variant] / "tokenizer.json"))
    ids = built.encode(text, add_special_tokens=False).ids
    assert ids == reference.encode(unicodedata.normalize("NFC", text))
    assert built.decode(ids) == unicodedata.normalize("NFC", text)


def test_finetune_config_is_as_transformers_5_saves_it(folders: dict[str, Path]) -> None:
    config = json.loads((folders["finetune"] / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert config["tokenizer_class"] == "TokenizersBackend"
    assert config["backend"] == "tokenizers"
    assert config["is_local"] is True
    assert config["pretokenize_regex"] == tokenizer.REGEX
    assert len(config["model_specific_special_tokens"]) == 7
    assert "added_tokens_decoder" not in config
    assert "chat_template" not in config


def test_base_config_is_as_transformers_4_saves_it(folders: dict[str, Path]) -> None:
    config = json.loads((folders["base"] / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert list(config["added_tokens_decoder"]) == [str(index) for index in range(248044, 248070)]


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["base", "finetune"])
def test_transformers_gives_the_ids_of_the_file(folders: dict[str, Path], variant: str) -> None:
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(folders[variant])
    built = Tokenizer.from_file(str(folders[variant] / "tokenizer.json"))
    assert loaded(PROBE, add_special_tokens=False)["input_ids"] == built.encode(PROBE, add_special_tokens=False).ids
    assert len(loaded) == 248044 + len(tokenizer.ADDED_TOKENS[variant])


def test_a_second_write_takes_the_cached_file(
    folders: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tokenizer.write("finetune", tmp_path)
    assert "building" not in capfd.readouterr().err
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (tmp_path / name).read_bytes() == (folders["finetune"] / name).read_bytes()


def test_an_incomplete_rank_file_is_refused() -> None:
    with pytest.raises(core.BuildError, match=r"expected the ranks 0\.\.248043, found 2 tokens"):
        tokenizer.parse_ranks(b"IQ== 0\nIg== 1\n")


def test_the_merge_of_a_token_is_what_lower_ranks_leave() -> None:
    ranks = {b"a": 0, b"b": 1, b"c": 2, b"bc": 3, b"ab": 4, b"abc": 5, b"xyz": 6}
    assert tokenizer.merge_pair(b"abc", ranks) == (b"a", b"bc")
    assert tokenizer.merge_pair(b"a", ranks) is None
    assert tokenizer.merge_pair(b"xyz", ranks) is None


def test_a_token_made_only_by_way_of_a_higher_rank_has_its_merge() -> None:
    assert tokenizer.merge_pair(b"abc", {b"a": 0, b"b": 1, b"c": 2, b"abc": 3, b"bc": 4}) == (b"a", b"bc")


@pytest.mark.slow
def test_a_cached_tokenizer_that_was_damaged_is_built_again(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(cache_root() / "tokenizer", tmp_path / "tokenizer")
    for cached in (tmp_path / "tokenizer").glob("*/base.json"):
        cached.write_bytes(cached.read_bytes().replace(b"<|im_start|>", b"<|im_stars|>"))
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path))
    tokenizer.write("base", tmp_path / "base")
    good, again = (folder / "tokenizer.json" for folder in (folders["base"], tmp_path / "base"))
    assert core.sha256_file(again) == core.sha256_file(good)
