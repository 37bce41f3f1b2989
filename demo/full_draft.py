"""The repositories of a full-size run: a draft of the real 9B shapes with random weights, and tokenizers for it.

Speed and memory depend on shapes and types, not on what a model has learnt. The draft's one file is laid out as
safetensors' own writer does it and comes to the 2,583,816,472 bytes of the real one. The weights are written a piece at
a time, and the same seed gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from demo.pair import configs, materialise, tokenizer
from scripts import core
from scripts.draft_config import expected_tensors, read_draft_config

BYTES = 2_583_816_472
"""Bytes of the draft's model.safetensors."""

SEED = 9
SPREAD = 0.02
"""Standard deviation of the matrices; norms are 1, give or take as much."""

PIECE = 1 << 24
"""Weights drawn at a time: 64 MB as float32. The weights depend on it."""

HIDDEN, INNER, TARGET_LAYERS, CONTEXT = 4096, 12288, 32, 262144

FOLDERS = {
    "full-size/Random-9B-DFlash": "draft",
    "full-size/Random-9B-Coder": "target",
    "full-size/Random-9B": "base",
}
"""Repo id to the folder that :func:`repositories` writes it to."""


def draft_config() -> dict[str, Any]:
    """``config.json`` of the draft: 6 layers, 8 taps, a window of 4096 on all layers but the last."""
    taps = [1, 5, 9, 13, 17, 21, 25, 29]
    return configs.draft_config() | {
        "dflash_config": {"block_size": 16, "mask_token_id": configs.MASK_TOKEN, "target_layer_ids": taps},
        "head_dim": 128,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
        "max_position_embeddings": CONTEXT,
        "max_window_layers": 6,
        "num_attention_heads": 32,
        "num_hidden_layers": 6,
        "num_key_value_heads": 8,
        "num_target_layers": TARGET_LAYERS,
        "sliding_window": 4096,
    }


def target_config() -> dict[str, Any]:
    """``config.json`` of the target and of the base: the 9B model's text part, 32 layers, multi-axis rotation."""
    small = configs.target_config()
    rope = small["text_config"]["rope_parameters"] | {"mrope_section": [11, 11, 10]}
    text = small["text_config"] | {
        "head_dim": 256,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * (TARGET_LAYERS // 4),
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_value_head_dim": 128,
        "max_position_embeddings": CONTEXT,
        "num_attention_heads": 16,
        "num_hidden_layers": TARGET_LAYERS,
        "num_key_value_heads": 4,
        "rope_parameters": rope,
        "tie_word_embeddings": False,
    }
    model = {"architectures": ["Qwen3_5ForConditionalGeneration"], "text_config": text, "tie_word_embeddings": False}
    return small | model


def header(shapes: Mapping[str, tuple[int, ...]]) -> bytes:
    """What stands before the weights in a safetensors file of BF16 tensors: length, JSON, spaces up to 8 bytes.

    Tensors lie in the order of their names.
    """
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name in sorted(shapes):
        end = at + 2 * math.prod(shapes[name])
        entries[name] = {"dtype": "BF16", "shape": list(shapes[name]), "data_offsets": [at, end]}
        at = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def file_bytes(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Bytes of the whole file."""
    return len(header(shapes)) + 2 * sum(math.prod(shape) for shape in shapes.values())


def to_bf16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Finite float32 values as BF16 bits, rounded to nearest, ties to even."""
    bits = values.view(np.uint32)
    return ((bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)).astype(np.uint16)


def write_weights(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Write random weights; vectors are norms and lie around 1, matrices around 0."""
    total = file_bytes(shapes)
    with path.open("wb") as stream, core.Progress("full-size draft: drawing weights", total) as progress:
        stream.write(header(shapes))
        for number, name in enumerate(sorted(shapes)):
            random = np.random.default_rng([SEED, number])
            left = math.prod(shapes[name])
            while left:
                values = random.standard_normal(min(left, PIECE), dtype=np.float32) * np.float32(SPREAD)
                if len(shapes[name]) == 1:
                    values += np.float32(1)
                stream.write(to_bf16(values).astype("<u2").data)
                left -= len(values)
                progress.set(stream.tell())


def write_draft(folder: Path) -> None:
    """The draft's repository."""
    folder.mkdir(parents=True)
    core.write_json(folder / "config.json", draft_config())
    write_weights(folder / "model.safetensors", expected_tensors(read_draft_config(folder / "config.json")))
    text = "Random weights in the shapes of a draft for a 9B target. It drafts nothing."
    (folder / "README.md").write_text(materialise.readme("Random-9B-DFlash", [], text), encoding="utf-8")


def write_tokenizer(variant: str, folder: Path) -> None:
    """The repository of the target ("finetune") or the base ("base"): config and tokenizer, no weights.

    tokenizer.json is written without white space, which brings it from 16 to 10 MB.
    """
    folder.mkdir(parents=True)
    core.write_json(folder / "config.json", target_config())
    tokenizer.write(variant, folder)
    path = folder / "tokenizer.json"
    compact = json.dumps(core.read_json(path), ensure_ascii=False, separators=(",", ":"))
    path.write_text(compact + "\n", encoding="utf-8")


def repositories(cache: Path) -> Path:
    """The three repositories as folders in ``cache``, made once."""
    here = Path(__file__)
    key = hashlib.sha256(here.read_bytes() + materialise.content_key().encode()).hexdigest()
    materialise.once(cache, "draft", key, write_draft)
    materialise.once(cache, "target", key, lambda place: write_tokenizer("finetune", place))
    materialise.once(cache, "base", key, lambda place: write_tokenizer("base", place))
    return cache
