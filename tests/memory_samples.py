"""Headers of the real sizes without their gigabytes: the 9B target and its draft as sparse GGUF files.

Shapes of Qwen3.5-9B (32 layers, three of four with a recurrent state) and of z-lab/Qwen3.5-9B-DFlash (6 layers, five
with a window of 4096). The data is a hole in the file: nothing is written, and what reads it gets zeros.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from scripts.verify_gguf import TYPES

HIDDEN, INNER, VOCABULARY = 4096, 12288, 248320
LAYERS, DRAFT_LAYERS, TAPS = 32, 6, [2, 6, 10, 14, 18, 22, 26, 30]
Tensors = Mapping[str, tuple[tuple[int, ...], str]]
"""Shape (rows first) and type by name."""

TARGET: dict[str, Any] = {
    "block_count": LAYERS,
    "context_length": 262144,
    "embedding_length": HIDDEN,
    "feed_forward_length": INNER,
    "attention.head_count": 16,
    "attention.head_count_kv": 4,
    "attention.key_length": 256,
    "attention.value_length": 256,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.dimension_count": 64,
    "rope.dimension_sections": [11, 11, 10, 0],
    "rope.freq_base": 1e7,
    "ssm.conv_kernel": 4,
    "ssm.state_size": 128,
    "ssm.group_count": 16,
    "ssm.time_step_rank": 32,
    "ssm.inner_size": 4096,
    "full_attention_interval": 4,
}
DRAFT: dict[str, Any] = {
    "block_count": DRAFT_LAYERS,
    "context_length": 262144,
    "embedding_length": HIDDEN,
    "feed_forward_length": INNER,
    "attention.head_count": 32,
    "attention.head_count_kv": 8,
    "attention.key_length": 128,
    "attention.value_length": 128,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.freq_base": 1e7,
    "rope.dimension_sections": [64, 0, 0, 0],
    "block_size": 16,
    "target_layers": TAPS,
    "attention.sliding_window": 4096,
    "attention.sliding_window_pattern": [True] * 5 + [False],
}


def _target_tensors(quant: str) -> Iterator[tuple[str, tuple[int, ...], str]]:
    yield "token_embd.weight", (VOCABULARY, HIDDEN), quant
    yield "output.weight", (VOCABULARY, HIDDEN), "Q6_K"
    yield "output_norm.weight", (HIDDEN,), "F32"
    for layer in range(LAYERS):
        name = f"blk.{layer}"
        yield f"{name}.attn_norm.weight", (HIDDEN,), "F32"
        yield f"{name}.post_attention_norm.weight", (HIDDEN,), "F32"
        yield f"{name}.ffn_gate.weight", (INNER, HIDDEN), quant
        yield f"{name}.ffn_up.weight", (INNER, HIDDEN), quant
        yield f"{name}.ffn_down.weight", (HIDDEN, INNER), quant
        if layer % 4 == 3:
            yield f"{name}.attn_q.weight", (8192, HIDDEN), quant
            yield f"{name}.attn_k.weight", (1024, HIDDEN), quant
            yield f"{name}.attn_v.weight", (1024, HIDDEN), quant
            yield f"{name}.attn_output.weight", (HIDDEN, 4096), quant
            yield f"{name}.attn_q_norm.weight", (256,), "F32"
            yield f"{name}.attn_k_norm.weight", (256,), "F32"
        else:
            yield f"{name}.attn_qkv.weight", (8192, HIDDEN), quant
            yield f"{name}.attn_gate.weight", (4096, HIDDEN), quant
            yield f"{name}.ssm_alpha.weight", (32, HIDDEN), quant
            yield f"{name}.ssm_beta.weight", (32, HIDDEN), quant
            yield f"{name}.ssm_conv1d.weight", (8192, 4), "F32"
            yield f"{name}.ssm_a", (32,), "F32"
            yield f"{name}.ssm_dt.bias", (32,), "F32"
            yield f"{name}.ssm_norm.weight", (128,), "F32"
            yield f"{name}.ssm_out.weight", (HIDDEN, 4096), quant


def _draft_tensors(quant: str) -> Iterator[tuple[str, tuple[int, ...], str]]:
    yield "fc.weight", (HIDDEN, HIDDEN * len(TAPS)), quant
    yield "enc.output_norm.weight", (HIDDEN,), "F32"
    yield "output_norm.weight", (HIDDEN,), "F32"
    for layer in range(DRAFT_LAYERS):
        name = f"blk.{layer}"
        yield f"{name}.attn_norm.weight", (HIDDEN,), "F32"
        yield f"{name}.ffn_norm.weight", (HIDDEN,), "F32"
        yield f"{name}.attn_q_norm.weight", (128,), "F32"
        yield f"{name}.attn_k_norm.weight", (128,), "F32"
        yield f"{name}.attn_q.weight", (4096, HIDDEN), quant
        yield f"{name}.attn_k.weight", (1024, HIDDEN), quant
        yield f"{name}.attn_v.weight", (1024, HIDDEN), quant
        yield f"{name}.attn_output.weight", (HIDDEN, 4096), quant
        yield f"{name}.ffn_gate.weight", (INNER, HIDDEN), quant
        yield f"{name}.ffn_up.weight", (INNER, HIDDEN), quant
        yield f"{name}.ffn_down.weight", (HIDDEN, INNER), quant


def target(path: Path, quant: str = "Q4_K", tokenizer: Mapping[str, Any] | None = None) -> Path:
    """Write the target's header; ``tokenizer`` are the ``tokenizer.`` values of a whole GGUF, for a file that loads."""
    return _write(path, "qwen35", TARGET, _target_tensors(quant), tokenizer or {})


def draft(path: Path, quant: str = "Q4_K", tokenizer: Mapping[str, Any] | None = None) -> Path:
    """Write the draft's header."""
    return _write(path, "dflash", DRAFT, _draft_tensors(quant), tokenizer or {})


def _write(
    path: Path,
    family: str,
    values: Mapping[str, Any],
    tensors: Iterator[tuple[str, tuple[int, ...], str]],
    tokenizer: Mapping[str, Any],
) -> Path:
    writer = gguf.GGUFWriter(path, family)
    for key, value in [*((f"{family}.{key}", value) for key, value in values.items()), *tokenizer.items()]:
        _add(writer, key, value)
    end = 0
    for name, shape, kind in tensors:
        _, block, width = next(row for row in TYPES.values() if row[0] == kind)
        size = int(np.prod(shape)) // block * width
        stored = (*shape[:-1], shape[-1] // block * width) if kind != "F32" else shape
        dtype = np.dtype(np.float32 if kind == "F32" else np.uint8)
        writer.add_tensor_info(name, list(stored), dtype, size, gguf.GGMLQuantizationType[kind])
        end += size + -size % gguf.GGUF_DEFAULT_ALIGNMENT
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    start = path.stat().st_size
    with path.open("r+b") as stream:
        stream.truncate(start + -start % gguf.GGUF_DEFAULT_ALIGNMENT + end)
    return path


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)
