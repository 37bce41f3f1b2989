"""Small drafts, targets and GGUFs for the tests of verification: right by construction, to be doctored."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from scripts.core import Report
from scripts.verify import verify

Array = npt.NDArray[Any]
Edit = Callable[["Gguf"], object]

NAME = "Sample-Draft"
CONFIG: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 512,
    "vocab_size": 30,
    "dflash_config": {"block_size": 16, "mask_token_id": 25, "target_layer_ids": [1, 3, 5]},
    "rope_parameters": {"rope_theta": 10000000, "rope_type": "default"},
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 64,
    "use_sliding_window": True,
    "num_target_layers": 8,
    "tie_word_embeddings": False,
}
TARGET_CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3_5ForCausalLM"],
    "text_config": {
        "hidden_size": 32,
        "num_hidden_layers": 8,
        "vocab_size": 30,
        "rope_parameters": {"mrope_section": [3, 3, 2], "rope_theta": 10000000},
    },
}
WORDS = ["a", "b", "c", "ab", "abc", "\u0120", "\u0120a"]
MERGES = [["a", "b"], ["ab", "c"], ["\u0120", "a"]]
ADDED = [
    (7, "<|endoftext|>", True),
    (8, "<|im_end|>", True),
    (9, "<think>", False),
    (10, "<|fim_pad|>", False),
]
TEMPLATE = "{{ messages }}\n"


def draft_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The tensors of a draft, written out by hand: HF name -> shape."""
    h, i, d = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, k = config["num_attention_heads"] * d, config["num_key_value_heads"] * d
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (h, h * len(config["dflash_config"]["target_layer_ids"])),
        "hidden_norm.weight": (h,),
        "norm.weight": (h,),
    }
    for n in range(config["num_hidden_layers"]):
        shapes |= {
            f"layers.{n}.input_layernorm.weight": (h,),
            f"layers.{n}.post_attention_layernorm.weight": (h,),
            f"layers.{n}.self_attn.q_proj.weight": (q, h),
            f"layers.{n}.self_attn.k_proj.weight": (k, h),
            f"layers.{n}.self_attn.v_proj.weight": (k, h),
            f"layers.{n}.self_attn.o_proj.weight": (h, q),
            f"layers.{n}.self_attn.q_norm.weight": (d,),
            f"layers.{n}.self_attn.k_norm.weight": (d,),
            f"layers.{n}.mlp.gate_proj.weight": (i, h),
            f"layers.{n}.mlp.up_proj.weight": (i, h),
            f"layers.{n}.mlp.down_proj.weight": (h, i),
        }
    return shapes


GGUF_NAMES = {
    "fc.weight": "fc.weight",
    "hidden_norm.weight": "enc.output_norm.weight",
    "norm.weight": "output_norm.weight",
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}


def gguf_name(name: str) -> str:
    """The GGUF name of a draft tensor."""
    if not name.startswith("layers."):
        return GGUF_NAMES[name]
    _, layer, rest = name.split(".", 2)
    return f"blk.{layer}.{GGUF_NAMES[rest]}"


def random_bits(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, Array]:
    """Random weights as BF16 bits."""
    rng = np.random.default_rng(seed)
    return {name: to_bits(rng.standard_normal(shape) * 0.05) for name, shape in shapes.items()}


def to_bits(values: Array) -> Array:
    """Values as BF16 bits, cut off."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def to_values(bits: Array) -> Array:
    """BF16 bits as float32 values."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def safetensors_bytes(tensors: dict[str, Array], dtype: str = "BF16") -> bytes:
    """A safetensors file of uint16 arrays."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, bits in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(bits.shape), "data_offsets": [at, at + bits.nbytes]}
        at += bits.nbytes
    return with_header(json.dumps(header).encode(), b"".join(bits.tobytes() for bits in tensors.values()))


def with_header(header: bytes, data: bytes) -> bytes:
    """A safetensors file with this header and these bytes behind it."""
    return len(header).to_bytes(8, "little") + header + data


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_draft(folder: Path, config: dict[str, Any] | None = None) -> dict[str, Array]:
    """Write a draft's folder; returns its weights as BF16 bits."""
    config = CONFIG if config is None else config
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config)
    weights = random_bits(draft_shapes(config))
    (folder / "model.safetensors").write_bytes(safetensors_bytes(weights))
    return weights


def tokenizer_json() -> dict[str, Any]:
    """The target's tokenizer.json."""
    return {
        "added_tokens": [
            {"id": i, "content": text, "special": special, "normalized": False} for i, text, special in ADDED
        ],
        "post_processor": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {word: i for i, word in enumerate(WORDS)}, "merges": MERGES},
    }


def write_target(folder: Path) -> None:
    """Write a prepared target folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", TARGET_CONFIG)
    write_json(folder / "tokenizer.json", tokenizer_json())
    write_json(
        folder / "tokenizer_config.json",
        {"eos_token": "<|im_end|>", "pad_token": {"content": "<|endoftext|>"}, "bos_token": None},
    )
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")


@dataclass
class Gguf:
    """A GGUF to be written: metadata by key, and tensors as (data, type)."""

    values: dict[str, Any]
    tensors: dict[str, tuple[Array, str]] = field(default_factory=dict)

    def set(self, key: str, value: Any) -> None:
        """Set a metadata value."""
        self.values[key] = value

    def drop(self, key: str) -> None:
        """Remove a metadata value that is there."""
        del self.values[key]

    def change_row(self, key: str, row: int, value: Any) -> None:
        """Change one row of a list."""
        self.values[key] = [*self.values[key][:row], value, *self.values[key][row + 1 :]]

    def quantize(self, quant: str, source: dict[str, Array]) -> None:
        """Turn all matrices to a type that numpy can quantize to."""
        self.set("general.file_type", gguf.LlamaFileType[f"MOSTLY_{quant}"].value)
        for name, bits in source.items():
            if bits.ndim > 1:
                self.tensors[gguf_name(name)] = (quantized(to_values(bits), quant), quant)

    def write(self, path: Path) -> Path:
        """Write the file."""
        writer = gguf.GGUFWriter(path, self.values["general.architecture"])
        for key, value in self.values.items():
            if key == "general.architecture":
                continue
            if isinstance(value, list):
                writer.add_array(key, value)
            else:
                kinds = {bool: "BOOL", int: "UINT32", float: "FLOAT32", str: "STRING"}
                writer.add_key_value(key, value, gguf.GGUFValueType[kinds[type(value)]])
        for name, (data, kind) in self.tensors.items():
            writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType[kind])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


def quantized(values: Array, kind: str) -> Array:
    """Values as the bytes of a type."""
    result: Array = gguf.quantize(values.astype(np.float32), gguf.GGMLQuantizationType[kind])
    return result


def right_gguf(weights: dict[str, Array]) -> Gguf:
    """The bf16 GGUF that the sample draft and target make, written out by hand."""
    tokens = [*WORDS, *(text for _, text, _ in ADDED), *(f"[PAD{i}]" for i in range(11, 30))]
    result = Gguf(
        {
            "general.architecture": "dflash",
            "general.type": "model",
            "general.name": NAME,
            "general.license": "apache-2.0",
            "general.base_model.0.repo_url": "https://huggingface.co/z-lab/Sample-Draft",
            "general.file_type": 32,
            "general.quantization_version": 2,
            "dflash.block_count": 2,
            "dflash.context_length": 512,
            "dflash.embedding_length": 32,
            "dflash.feed_forward_length": 64,
            "dflash.attention.head_count": 2,
            "dflash.attention.head_count_kv": 1,
            "dflash.attention.key_length": 16,
            "dflash.attention.value_length": 16,
            "dflash.attention.layer_norm_rms_epsilon": 1e-6,
            "dflash.rope.freq_base": 1e7,
            "dflash.block_size": 16,
            "dflash.target_layers": [2, 4, 6],
            "dflash.attention.sliding_window": 64,
            "dflash.attention.sliding_window_pattern": [True, False],
            "dflash.rope.dimension_sections": [8, 0, 0, 0],
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "qwen35",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [1] * 7 + [3, 3, 4, 3] + [5] * 19,
            "tokenizer.ggml.merges": ["a b", "ab c", "\u0120 a"],
            "tokenizer.ggml.eos_token_id": 8,
            "tokenizer.ggml.padding_token_id": 7,
            "tokenizer.ggml.mask_token_id": 25,
            "tokenizer.ggml.add_bos_token": False,
            "tokenizer.ggml.add_eos_token": False,
            "tokenizer.chat_template": TEMPLATE,
        }
    )
    for name, bits in weights.items():
        if bits.ndim == 1:
            result.tensors[gguf_name(name)] = (to_values(bits), "F32")
        else:
            result.tensors[gguf_name(name)] = (bits.view(np.uint8), "BF16")
    return result


def unchanged(file: Gguf) -> None:
    """The edit that changes nothing."""


class Bench:
    """A draft, its target and a right GGUF, from which doctored ones are made."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.draft, self.target = folder, folder / "draft", folder / "target"
        self.weights = write_draft(self.draft)
        write_target(self.target)

    def gguf(self, edit: Edit = unchanged, name: str = "file.gguf") -> Path:
        built = right_gguf(self.weights)
        edit(built)
        return built.write(self.folder / name)

    def verify(self, edit: Edit = unchanged, quant: str = "bf16", **options: Any) -> Report:
        options = {"general": {"general.name": NAME}, "only_these": False, **options}
        return verify(self.gguf(edit), self.draft, self.target, quant, **options)

    def config(self, **changes: Any) -> None:
        write_json(self.draft / "config.json", {**CONFIG, **changes})


def failures(report: Report) -> list[str]:
    return [f"{check.name}: {check.detail}" for check in report.checks if not check.ok]
