"""Read a GGUF file's metadata and tensor table, trusting nothing in it.

Every length is compared with the bytes that are there before it is used, so a cut or random file ends as one
line and never as a long wait. A vocabulary of 250,000 tokens takes about a second. The file may lie elsewhere: what is
needed of it is asked for as the reading goes on.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from scripts.core import BuildError, human

BUILD_AGAIN = "delete the file and build it again"
MOST = 1 << 24
"""Most entries of a list, bytes of a text or tensors that are read; the largest vocabularies have 2^18 tokens."""

UNNAMED = {42: ("Q2_0", 64, 18)}
"""Tensor types that llama-quantize writes and the gguf package does not name: name, weights of a block, its bytes."""

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9

Buffer = bytes | bytearray | mmap.mmap
"""Bytes of a file, from its first one on."""

TYPES: Mapping[int, tuple[str, int, int]] = UNNAMED | {
    kind.value: (kind.name, *size) for kind, size in gguf.GGML_QUANT_SIZES.items()
}
"""All tensor types by number, each with its name, weights of a block and bytes of a block."""


@dataclass(frozen=True)
class GgufTensor:
    """One tensor: type name (``Q4_K``), shape (rows first) and its first and one-past-last byte in the file."""

    name: str
    type: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def weights(self) -> int:
        """How many weights the tensor has."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class GgufHeader:
    """What a GGUF says before its data: metadata values by key, tensors by name, where data starts (bytes)."""

    size: int
    values: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]
    data_start: int


@dataclass(frozen=True)
class GgufFile(GgufHeader):
    """A GGUF file on this machine."""

    path: Path

    def map_bytes(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        """Map a range of the file's bytes, read-only; the mapping ends with the last reference to it."""
        if begin == end:
            return np.empty(0, dtype=np.uint8)
        return np.memmap(self.path, dtype=np.uint8, mode="r", offset=begin, shape=(end - begin,))


def open_gguf(path: Path) -> GgufFile:
    """Read a GGUF file's metadata and tensor table; reads no tensor data.

    Raises:
        BuildError: the file is missing, is no GGUF, is cut short, or its parts do not fit together.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as stream, contextlib.ExitStack() as stack:
            # An empty file cannot be mapped.
            data = stack.enter_context(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)) if size else b""
            header = read_header(path, size, lambda _: data, BUILD_AGAIN)
    except OSError as error:
        raise BuildError(f"cannot read the GGUF: {error.strerror}", path, "build it first") from error
    return GgufFile(header.size, header.values, header.tensors, header.data_start, path)


def read_header(where: str | os.PathLike[str], size: int, more: Callable[[int], Buffer], do: str) -> GgufHeader:
    """Read a GGUF's metadata and tensor table from wherever its bytes come from.

    Args:
        where: the file, for messages.
        size: its size in bytes.
        more: gives the file's bytes from the first one on, as many as it is called with, or more.
        do: what to do about a file that is no whole GGUF, for messages.

    Raises:
        BuildError: it is no GGUF, is cut short, or its parts do not fit together.
    """
    return _Reader(where, size, more, do).read()


class _Reader:
    """Goes through the file once, front to back; ``at`` is the next byte."""

    def __init__(self, where: str | os.PathLike[str], size: int, more: Callable[[int], Buffer], do: str) -> None:
        self.where, self.size, self.more, self.do = where, size, more, do
        self.data: Buffer = b""
        self.have = self.at = 0

    def stop(self, what: str) -> BuildError:
        return BuildError(what, self.where, self.do)

    def take(self, size: int) -> int:
        """Step over ``size`` bytes and return where they start."""
        start = self.at
        if size > self.size - start:
            raise self.stop(f"the GGUF's metadata is cut short: byte {start} should be followed by {size} more")
        self.at = start + size
        if self.at > self.have:
            self.data = self.more(self.at)
            self.have = len(self.data)
        return start

    def unpack(self, code: str) -> tuple[Any, ...]:
        start = self.take(struct.calcsize(f"<{code}"))
        return struct.unpack_from(f"<{code}", self.data, start)

    def scalar(self, code: str) -> Any:
        return self.unpack(code)[0]

    def count(self, least: int, what: str) -> int:
        """A number of items that follow, each of at least ``least`` bytes."""
        value: int = self.scalar("Q")
        if value > MOST:
            raise self.stop(f"the GGUF is broken: it promises {value} {what}, more than any model has")
        if value * least > self.size - self.at:
            left = self.size - self.at
            raise self.stop(f"the GGUF is cut short or broken: it promises {value} {what} and has {left} bytes left")
        return value

    def text(self) -> str:
        length = self.count(1, "bytes of text")
        start = self.take(length)
        try:
            return self.data[start : self.at].decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.stop(f"a text in the GGUF is not UTF-8 (byte {start})") from error

    def value(self, key: str) -> Any:
        kind = self.scalar("I")
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            return self.scalar(self.code(kind, key))
        kind = self.scalar("I")
        if kind == _STRING:
            return [self.text() for _ in range(self.count(8, f"texts in {key}"))]
        code = self.code(kind, key)
        count = self.count(struct.calcsize(f"<{code}"), f"values in {key}")
        return list(self.unpack(f"{count}{code}"))

    def code(self, kind: int, key: str) -> str:
        if kind not in _SCALARS:
            raise self.stop(f"{key} has the unknown value type {kind}")
        return _SCALARS[kind]

    def read(self) -> GgufHeader:
        if self.size < 4 or self.unpack("4s")[0] != b"GGUF":
            raise self.stop("not a GGUF file: it does not start with GGUF")
        version = self.scalar("I")
        if version not in (2, 3):
            raise self.stop(f"GGUF version {version} is unknown")
        tensor_count = self.count(32, "tensors")
        values: dict[str, Any] = {}
        for _ in range(self.count(13, "metadata values")):
            key = self.text()
            if key in values:
                raise self.stop(f"{key} occurs twice in the GGUF's metadata")
            values[key] = self.value(key)
        alignment = values.get("general.alignment", gguf.GGUF_DEFAULT_ALIGNMENT)
        if type(alignment) is not int or alignment < 8 or alignment & (alignment - 1):
            raise self.stop(f"general.alignment is {alignment!r}")
        tensors = [self.tensor() for _ in range(tensor_count)]
        start = self.at + -self.at % alignment
        return GgufHeader(self.size, values, self.place(tensors, start, alignment), start)

    def tensor(self) -> GgufTensor:
        """One row of the tensor table; its offset is still relative to the data's start."""
        name = self.text()
        dimensions = self.scalar("I")
        if not 1 <= dimensions <= 4:
            raise self.stop(f"tensor {name} has {dimensions} dimensions")
        shape = tuple(reversed([self.scalar("Q") for _ in range(dimensions)]))
        number = self.scalar("I")
        if number not in TYPES:
            raise self.stop(f"tensor {name} has the unknown type {number}")
        kind, block, width = TYPES[number]
        if shape[-1] % block:
            raise self.stop(f"tensor {name} has rows of {shape[-1]} weights, and {kind} packs {block} at a time")
        offset = self.scalar("Q")
        return GgufTensor(name, kind, shape, offset, offset + math.prod(shape) // block * width)

    def place(self, tensors: list[GgufTensor], start: int, alignment: int) -> dict[str, GgufTensor]:
        """Check that the tensors fill the rest of the file one after another; make their places absolute."""
        placed: dict[str, GgufTensor] = {}
        at = 0
        for tensor in tensors:
            if tensor.name in placed:
                raise self.stop(f"tensor {tensor.name} occurs twice")
            placed[tensor.name] = GgufTensor(
                tensor.name, tensor.type, tensor.shape, start + tensor.begin, start + tensor.end
            )
        for tensor in sorted(tensors, key=lambda tensor: (tensor.begin, tensor.end)):
            if tensor.begin != at:
                raise self.stop(f"tensor {tensor.name} starts at byte {tensor.begin} of the data, not {at}")
            at = tensor.end + -tensor.end % alignment
        last = max((tensor.end for tensor in placed.values()), default=self.size)
        if last > self.size:
            raise self.stop(f"the GGUF is cut short: {human(last - self.size)} of tensor data are missing")
        # Padding after the last tensor may be written or left out.
        if self.size - last >= alignment:
            raise self.stop(f"{self.size - last} bytes follow the last tensor")
        return placed
