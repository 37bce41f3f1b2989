"""The configurations of the pair: a Qwen3.5 target and a DFlash draft in the layout z-lab publishes.

Hidden size and every row length of the draft are multiples of 256, the block of the K-quants: a smaller model would
silently get other quantization types than the ones its file name promises.
"""

from __future__ import annotations

from typing import Any

from demo.pair.tokenizer import END_OF_TURN, PADDING, ROWS

HIDDEN = 256
TARGET_LAYERS = 8
DRAFT_LAYERS = 2
TAPS = [1, 3, 5]
"""Target layers (from 0) whose outputs the draft reads."""
BLOCK_SIZE = 16
MASK_TOKEN = 248077
"""A padding row of the target's embedding that serves as the mask."""
WINDOW = 64
"""Sliding window of the draft's first layer, in tokens."""
ROPE_THETA = 10_000_000
EPS = 1e-6


def target_text_config() -> dict[str, Any]:
    """The text configuration of the target: 3 linear-attention layers to 1 full-attention layer, tied head."""
    return {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_output_gate": True,
        "dtype": "bfloat16",
        "eos_token_id": END_OF_TURN,
        "full_attention_interval": 4,
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "initializer_range": 0.02,
        "intermediate_size": 256,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * (TARGET_LAYERS // 4),
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 32,
        "linear_num_key_heads": 4,
        "linear_num_value_heads": 4,
        "linear_value_head_dim": 32,
        "max_position_embeddings": 4096,
        "model_type": "qwen3_5_text",
        "num_attention_heads": 4,
        "num_hidden_layers": TARGET_LAYERS,
        "num_key_value_heads": 2,
        "partial_rotary_factor": 0.25,
        "rms_norm_eps": EPS,
        "rope_parameters": {
            "mrope_interleaved": True,
            "mrope_section": [3, 3, 2],
            "partial_rotary_factor": 0.25,
            "rope_theta": ROPE_THETA,
            "rope_type": "default",
        },
        "tie_word_embeddings": True,
        "use_cache": True,
        "vocab_size": ROWS,
    }


def target_config() -> dict[str, Any]:
    """``config.json`` of the base and of the finetune."""
    return {
        "architectures": ["Qwen3_5ForCausalLM"],
        "dtype": "bfloat16",
        "eos_token_id": END_OF_TURN,
        "model_type": "qwen3_5",
        "pad_token_id": PADDING,
        "text_config": target_text_config(),
        "tie_word_embeddings": True,
        "transformers_version": "5.24.0",
    }


def draft_config() -> dict[str, Any]:
    """``config.json`` of the draft, nested as transformers 5 writes it."""
    return {
        "architectures": ["DFlashDraftModel"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "dflash_config": {"block_size": BLOCK_SIZE, "mask_token_id": MASK_TOKEN, "target_layer_ids": TAPS},
        "dtype": "bfloat16",
        "eos_token_id": END_OF_TURN,
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "initializer_range": 0.02,
        "intermediate_size": 512,
        "layer_types": ["sliding_attention", "full_attention"],
        "max_position_embeddings": 4096,
        "max_window_layers": DRAFT_LAYERS,
        "model_type": "qwen3",
        "num_attention_heads": 4,
        "num_hidden_layers": DRAFT_LAYERS,
        "num_key_value_heads": 2,
        "num_target_layers": TARGET_LAYERS,
        "pad_token_id": PADDING,
        "rms_norm_eps": EPS,
        "rope_parameters": {"rope_theta": ROPE_THETA, "rope_type": "default"},
        "sliding_window": WINDOW,
        "tie_word_embeddings": False,
        "transformers_version": "5.24.0",
        "use_cache": True,
        "use_sliding_window": True,
        "vocab_size": ROWS,
    }
