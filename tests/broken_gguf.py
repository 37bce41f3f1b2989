"""Drafts as a wrong converter would write them: a copy of a GGUF with one thing in it broken.

Nothing else moves: metadata values are changed where they stand, a key that is dropped is cut out of the header, and
tensors trade their bytes. The file loads as any other, which is what makes such faults hard to see.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from scripts.verify_gguf import open_gguf

CODES = {
    gguf.GGUFValueType.UINT32: "I",
    gguf.GGUFValueType.INT32: "i",
    gguf.GGUFValueType.FLOAT32: "f",
    gguf.GGUFValueType.BOOL: "?",
}
"""How the values that are changed here are packed, little endian."""


class BrokenGguf:
    """The content of a GGUF, to be broken and written elsewhere."""

    def __init__(self, path: Path) -> None:
        """Read the whole of a file that is right."""
        self.file = open_gguf(path)
        self.header = bytearray(path.read_bytes()[: self.file.data_start])
        self.data = bytearray(path.read_bytes()[self.file.data_start :])
        self.layers: int = self.file.values["dflash.block_count"]

    def _value(self, key: str) -> tuple[int, int, str]:
        """Where the entry of a key starts, where its value does, and how the value is packed."""
        name = _text(key)
        assert self.header.count(name) == 1, key
        start = self.header.index(name)
        at = start + len(name) + 4
        (kind,) = struct.unpack_from("<I", self.header, at - 4)
        count = 1
        if kind == gguf.GGUFValueType.ARRAY:
            kind, count = struct.unpack_from("<IQ", self.header, at)
            at += struct.calcsize("<IQ")
        return start, at, f"<{count}{CODES[kind]}"

    def set(self, key: str, *values: Any) -> None:
        """Change a number, or all numbers of a list, in place."""
        _, at, code = self._value(key)
        assert struct.unpack_from(code, self.header, at) != struct.unpack(code, struct.pack(code, *values)), key
        struct.pack_into(code, self.header, at, *values)

    def drop(self, key: str) -> None:
        """Cut a key and its value out."""
        start, at, code = self._value(key)
        last = list(self.file.tensors.values())[-1]
        # The table of tensors ends with the last one's name, number of dimensions, dimensions, type and offset.
        end = self.header.rindex(_text(last.name)) + len(_text(last.name)) + 4 + 8 * len(last.shape) + 4 + 8
        del self.header[end:], self.header[start : at + struct.calcsize(code)]
        (keys,) = struct.unpack_from("<Q", self.header, 16)  # after magic, version and the number of tensors
        struct.pack_into("<Q", self.header, 16, keys - 1)
        self.header += bytes(-len(self.header) % gguf.GGUF_DEFAULT_ALIGNMENT)

    def exchange(self, first: str, second: str) -> None:
        """Let two tensors of one shape and type trade their bytes."""
        ours, theirs = self._place(first), self._place(second)
        self.data[ours], self.data[theirs] = self.data[theirs], self.data[ours]

    def exchange_in_layers(self, first: str, second: str) -> None:
        """The same in every layer, for names without ``blk.N.`` and ``.weight``."""
        for layer in range(self.layers):
            self.exchange(f"blk.{layer}.{first}.weight", f"blk.{layer}.{second}.weight")

    def exchange_columns(self, name: str, parts: int) -> None:
        """Cut the rows of a bf16 matrix into ``parts`` and let the first two trade places."""
        rows, columns = self.file.tensors[name].shape
        found = np.frombuffer(self.data[self._place(name)], np.uint16).reshape(rows, parts, columns // parts)
        order = [1, 0, *range(2, parts)]
        self.data[self._place(name)] = found[:, order].tobytes()

    def _place(self, name: str) -> slice:
        tensor = self.file.tensors[name]
        assert tensor.end - tensor.begin == math.prod(tensor.shape) * (4 if tensor.type == "F32" else 2), name
        return slice(tensor.begin - self.file.data_start, tensor.end - self.file.data_start)

    def write(self, path: Path) -> Path:
        """Write the file; returns its path."""
        path.write_bytes(self.header + self.data)
        return path


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _swap_layers(file: BrokenGguf) -> None:
    for name in file.file.tensors:
        if name.startswith("blk.0."):
            file.exchange(name, name.replace("blk.0.", "blk.1."))


def _drop_window(file: BrokenGguf) -> None:
    file.drop("dflash.attention.sliding_window")
    file.drop("dflash.attention.sliding_window_pattern")


Break = Callable[[BrokenGguf], None]

BREAKS: dict[str, Break] = {
    "rope theta 1e4": lambda file: file.set("dflash.rope.freq_base", 1e4),
    "rope theta 1e6": lambda file: file.set("dflash.rope.freq_base", 1e6),
    "taps shifted by one": lambda file: file.set("dflash.target_layers", 3, 5, 7),
    "taps reversed": lambda file: file.set("dflash.target_layers", 6, 4, 2),
    "mask id of another row": lambda file: file.set("tokenizer.ggml.mask_token_id", 248076),
    "window dropped": _drop_window,
    "window 4096": lambda file: file.set("dflash.attention.sliding_window", 4096),
    "two layers swapped": _swap_layers,
    "K and V exchanged": lambda file: file.exchange_in_layers("attn_k", "attn_v"),
    "column blocks of fc swapped": lambda file: file.exchange_columns("fc.weight", 3),
    "gate and up exchanged": lambda file: file.exchange_in_layers("ffn_gate", "ffn_up"),
    "input and post-attention norms exchanged": lambda file: file.exchange_in_layers("attn_norm", "ffn_norm"),
    "hidden_norm and norm exchanged": lambda file: file.exchange("enc.output_norm.weight", "output_norm.weight"),
    "q_norm and k_norm exchanged": lambda file: file.exchange_in_layers("attn_q_norm", "attn_k_norm"),
    "rms_norm_eps 1e-2": lambda file: file.set("dflash.attention.layer_norm_rms_epsilon", 1e-2),
    "block size 8": lambda file: file.set("dflash.block_size", 8),
}
"""What a converter may get wrong on the embedded draft, each alone, by title."""


def broken(right: Path, title: str, folder: Path) -> Path:
    """Write a copy of a right GGUF with one of :data:`BREAKS` into ``folder``; returns its path."""
    file = BrokenGguf(right)
    BREAKS[title](file)
    return file.write(folder / f"{title}.gguf")
