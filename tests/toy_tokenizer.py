"""Small tokenizers for tests: a byte-level BPE of a few hundred tokens, with the rules and added tokens of Qwen3.5."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from demo.pair import configs
from demo.pair import tokenizer as full
from scripts.core import read_json

REGEX = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CORPUS = [
    "नमस्ते दुनिया यह एक छोटी सी परीक्षा है " * 8,
    "def f(x): return x\n" * 8,
    "hello world it's " * 8,
    "我想在苹果公司 " * 8,
]
STOCK = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
SEVEN = [
    "<|audio_start|>",
    "<|audio_end|>",
    "<tts_pad>",
    "<tts_text_bos>",
    "<tts_text_eod>",
    "<tts_text_bos_single>",
    "<|audio_pad|>",
]
PADDING = 20
"""Rows of the toy embedding after the last token of ``STOCK + SEVEN``."""


@functools.cache
def toy_model() -> str:
    """A byte-level BPE tokenizer of a few hundred tokens with the Qwen3.5 rules, as JSON, without added tokens."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(REGEX), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=380, initial_alphabet=alphabet, show_progress=False)
    )
    return tokenizer.to_str()


def toy_size() -> int:
    """Ordinary tokens of the toy tokenizer; the first added token has this id."""
    return len(json.loads(toy_model())["model"]["vocab"])


def toy_json(tokens: list[str]) -> dict[str, Any]:
    """The toy's tokenizer.json with these added tokens, ids following the ordinary ones."""
    value: dict[str, Any] = json.loads(toy_model())
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    value["added_tokens"] = [
        {"id": toy_size() + at, "content": token, **flags, "special": token.startswith("<|")}
        for at, token in enumerate(tokens)
    ]
    return value


def toy_settings(**changes: Any) -> dict[str, Any]:
    """A tokenizer_config.json as transformers v5 saves it; a change to None removes the key."""
    settings = {
        "backend": "tokenizers",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 4096,
        "tokenizer_class": "PreTrainedTokenizerFast",
        **changes,
    }
    return {key: value for key, value in settings.items() if value is not None}


def toy_folder(folder: Path, tokens: list[str] | None = None, **changes: Any) -> Path:
    """Write a toy target folder: config, tokenizer with ``STOCK + SEVEN``, settings and chat template."""
    tokens = STOCK + SEVEN if tokens is None else tokens
    folder.mkdir(parents=True)
    rows = toy_size() + len(STOCK + SEVEN) + PADDING
    # model_type qwen3: its registered class is the one that rebuilds the rules without combining marks.
    config = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 16, "num_hidden_layers": 4}
    write(folder / "config.json", {**config, "vocab_size": rows, "eos_token_id": toy_size() + 2})
    write(folder / "tokenizer.json", toy_json(tokens))
    write(folder / "tokenizer_config.json", toy_settings(**changes))
    (folder / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
    return folder


def write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False), encoding="utf-8")


def change(path: Path, **changes: Any) -> None:
    """Change keys of a JSON file; None removes a key."""
    value = {**read_json(path), **changes}
    write(path, {key: entry for key, entry in value.items() if entry is not None})


def full_folder(folder: Path, variant: str) -> Path:
    """Write the ``base`` or ``finetune`` folder with the whole vocabulary of 248,044 tokens."""
    full.write(variant, folder)
    write(folder / "config.json", configs.target_config())
    return folder
