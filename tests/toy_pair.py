"""A tiny draft that fits the toy target, and the ids that the tests of the vocabulary check use."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from scripts.draft_config import expected_tensors, read_draft_config
from tests.toy_tokenizer import PADDING, SEVEN, STOCK, toy_size, write

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


def weights(config: Path, **changes: tuple[int, ...] | None) -> None:
    """Write a model.safetensors of zeros with the shapes the config calls for, but for changes; None leaves one out."""
    header, at = {}, 0
    for name, shape in (expected_tensors(read_draft_config(config)) | changes).items():
        if shape is None:
            continue
        size = 2
        for rows in shape:
            size *= rows
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    (config.parent / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))
