"""Read what a safetensors file says about itself, and its tensors one at a time, without loading it.

A wrong file (an error page saved as weights, a Git LFS pointer, a cut download, weights that are already
quantized) is named before anything long starts.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from scripts.core import BuildError, human, read_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
LONGEST_HEADER = 100_000_000
"""Bytes; the limit of the safetensors format itself."""

WIDTHS = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8,
}  # fmt: skip
"""Bytes of one element, by dtype name as safetensors spells it."""

REFUSED = {
    "F16": "half precision overflows where bfloat16 does not, so a draft is never made from it",
    "F32": "single precision would have to be rounded, so the build could not be compared bit for bit",
    "F8_E4M3": "an 8-bit float is already quantized",
    "F8_E5M2": "an 8-bit float is already quantized",
}
FETCH_AGAIN = "delete the file and fetch it again"
TAKE_BF16 = "take a revision with BF16 weights"


@dataclass(frozen=True)
class Tensor:
    """One tensor of a file: dtype name, shape (rows first) and its first and one-past-last byte in the file."""

    name: str
    path: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Header:
    """What a safetensors file says about itself; ``data_start`` is the first byte of tensor data."""

    path: Path
    tensors: Mapping[str, Tensor]
    header_length: int
    data_start: int


@dataclass(frozen=True)
class Weights:
    """A checked folder of weights: its files' headers and every tensor by name."""

    folder: Path
    headers: tuple[Header, ...]
    tensors: Mapping[str, Tensor]

    @property
    def files(self) -> tuple[Path, ...]:
        """The weight files, and the index when the weights are sharded."""
        index = self.folder / INDEX
        return (*(header.path for header in self.headers), *((index,) if index.exists() else ()))

    @property
    def data_bytes(self) -> int:
        """Bytes of tensor data in all files."""
        return sum(tensor.end - tensor.begin for tensor in self.tensors.values())


def read_header(path: Path) -> Header:
    """Read the header of one safetensors file; reads no tensor data.

    Raises:
        BuildError: the file is missing, is something else (each case has its own sentence), or its header
            does not describe exactly the bytes that follow it.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            start = stream.read(64)
            length = struct.unpack("<Q", start[:8])[0] if len(start) >= 8 else 0
            if not 2 <= length <= min(LONGEST_HEADER, size - 8) or start[8:9] != b"{":
                raise BuildError(_what_it_is(start, length, size), path, FETCH_AGAIN)
            stream.seek(8)
            raw = stream.read(length)
    except OSError as error:
        raise BuildError(f"cannot read the weights: {error.strerror}", path, "fetch the draft again") from error
    try:
        entries = json.loads(raw, object_pairs_hook=_no_repeats)
    except (ValueError, RecursionError) as error:
        raise BuildError(f"the safetensors header is not valid JSON: {error}", path, FETCH_AGAIN) from error
    entries.pop("__metadata__", None)
    if not entries:
        raise BuildError("the file holds no tensors", path, FETCH_AGAIN)
    data_start = 8 + length
    tensors = {name: _tensor(name, entry, path, data_start) for name, entry in entries.items()}
    _check_layout(tensors, path, data_start, size)
    return Header(path, tensors, length, data_start)


def _what_it_is(start: bytes, length: int, size: int) -> str:
    """Say what a file is that does not start like safetensors."""
    if not size:
        return "the file is empty"
    if start.startswith(b"version https://git-lfs"):
        return "this is a Git LFS pointer, not the weights it points to"
    if start.lstrip().startswith(b"<"):
        return "this is a web page, not weights"
    if start.lstrip().startswith(b"{"):
        return "this is a JSON text (an error message of the server), not weights"
    if size < 1000 and start[:16].isascii() and start[:16].decode("ascii").isprintable():
        return f"this is a text ({start[:32].decode('ascii', 'replace')!r}), not weights"
    if size < 8:
        return f"the file ends after {size} bytes, before the length of its header"
    if length > LONGEST_HEADER:
        return f"not a safetensors file: its first 8 bytes give a header of {length} bytes"
    if length > size - 8:
        return f"the header should have {length} bytes and the file has {size}: the download was cut short"
    return "not a safetensors file: no JSON object follows the header's length"


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object; a name that occurs twice is an error, where plain JSON would keep the last."""
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise ValueError(f"{name!r} occurs twice")
        result[name] = value
    return result


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _tensor(name: str, entry: Any, path: Path, data_start: int) -> Tensor:
    """Check one header entry: its types, and that its bytes are what its dtype and shape need."""
    dtype, shape, offsets = (entry.get(key) if isinstance(entry, dict) else None for key in _ENTRY)
    if not (
        isinstance(dtype, str)
        and isinstance(shape, list)
        and len(shape) <= 8
        and all(map(_is_count, shape))
        and isinstance(offsets, list)
        and len(offsets) == 2
        and all(map(_is_count, offsets))
    ):
        raise BuildError(f"the header entry of tensor {name} is malformed", path, FETCH_AGAIN)
    if dtype not in WIDTHS:
        raise BuildError(f"tensor {name} has the unknown dtype {dtype}", path, TAKE_BF16)
    begin, end = offsets
    needed = math.prod(shape) * WIDTHS[dtype]
    if end - begin != needed:
        raise BuildError(
            f"tensor {name} ({dtype} {shape}) needs {needed} bytes and has {end - begin}", path, FETCH_AGAIN
        )
    return Tensor(name, path, dtype, tuple(shape), data_start + begin, data_start + end)


_ENTRY = ("dtype", "shape", "data_offsets")


def _check_layout(tensors: Mapping[str, Tensor], path: Path, data_start: int, size: int) -> None:
    """Check that tensors lie one after another without gaps and end where the file ends."""
    at = data_start
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.begin, tensor.end)):
        if tensor.begin != at:
            kind = "a gap before" if tensor.begin > at else "an overlap with"
            raise BuildError(f"the tensor data has {kind} tensor {tensor.name}", path, FETCH_AGAIN)
        at = tensor.end
    if at > size:
        raise BuildError(
            f"the file has {size} bytes and its header describes {at}: {human(at - size)} are missing",
            path,
            FETCH_AGAIN,
        )
    if at < size:
        raise BuildError(f"{size - at} bytes follow the last tensor", path, FETCH_AGAIN)


def check_weights(folder: Path) -> Weights:
    """Check a folder's weights: ``model.safetensors``, or the shards that the index names; reads headers only.

    Raises:
        BuildError: no weights or more than one set of them, a file that :func:`read_header` refuses, a tensor
            that is not BF16, or shards that do not hold exactly the index's tensors, each once.
    """
    index = folder / INDEX
    placed = read_index(index) if index.exists() else None
    names = sorted(set(placed.values())) if placed is not None else [SINGLE]
    present = {path.name for path in folder.glob("*.safetensors")}
    if missing := [name for name in names if name not in present]:
        found = f"; it holds {', '.join(sorted(present))}" if present else ""
        raise BuildError(f"{missing[0]} is missing{found}", folder, "fetch the draft again")
    # The converter takes every file of this pattern, so one that is not meant would be mixed in.
    if extra := sorted(name for name in present - set(names) if name.startswith("model")):
        raise BuildError(f"{extra[0]} does not belong to the weights", folder, "keep one set of weights in the folder")
    headers = tuple(read_header(folder / name) for name in names)
    tensors: dict[str, Tensor] = {}
    for header in headers:
        for name, tensor in header.tensors.items():
            if name in tensors:
                raise BuildError(f"tensor {name} is in two shards", header.path, FETCH_AGAIN)
            if placed is not None and placed.get(name) != header.path.name:
                raise BuildError(f"the index does not place tensor {name} in this file", header.path, FETCH_AGAIN)
            if tensor.dtype != "BF16":
                why = REFUSED.get(tensor.dtype, "this is no floating-point weight")
                raise BuildError(f"tensor {name} is {tensor.dtype}: {why}", header.path, TAKE_BF16)
            tensors[name] = tensor
    if lost := sorted(set(placed or ()) - set(tensors)):
        raise BuildError(f"tensor {lost[0]} of the index is in no shard", index, FETCH_AGAIN)
    return Weights(folder, headers, tensors)


def read_index(path: Path) -> dict[str, str]:
    """The index's tensor name -> file name; file names are plain names inside the folder."""
    raw = read_json(path)
    placed = raw.get("weight_map") if isinstance(raw, dict) else None
    if not isinstance(placed, dict) or not placed or not all(isinstance(name, str) for name in placed.values()):
        raise BuildError("the index has no weight_map of tensor names to file names", path, FETCH_AGAIN)
    for name in placed.values():
        if Path(name).name != name or not (name.startswith("model") and name.endswith(".safetensors")):
            raise BuildError(f"the index names {name!r}, which is no weight file of this folder", path, FETCH_AGAIN)
    return placed


def map_tensor(tensor: Tensor) -> npt.NDArray[np.uint16]:
    """Map one BF16 tensor into memory as its raw bits (uint16, the tensor's shape), read-only.

    The mapping ends with the last reference to the array, so one tensor at a time stays in memory.
    """
    if math.prod(tensor.shape) == 0:
        return np.empty(tensor.shape, dtype=np.uint16)
    return np.memmap(tensor.path, dtype="<u2", mode="r", offset=tensor.begin, shape=tensor.shape)


def open_tensors(folder: Path) -> Iterator[tuple[str, npt.NDArray[np.uint16]]]:
    """Go through a folder's tensors: name and raw BF16 bits (uint16, rows first), one mapped at a time.

    Raises:
        BuildError: as :func:`check_weights`.
    """
    for name, tensor in check_weights(folder).tensors.items():
        yield name, map_tensor(tensor)
