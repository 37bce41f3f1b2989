"""Published files with one thing in them changed: headers of any length, and releases whose sums are right again."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path

import gguf

from scripts import core, release
from scripts.verify_gguf import GgufFile, open_gguf
from tests.broken_gguf import BrokenGguf


class Doctored(BrokenGguf):
    """A GGUF to be changed, a target's too, also where the header becomes longer or shorter."""

    def __init__(self, path: Path) -> None:
        self.file = _header(path)
        content = path.read_bytes()
        self.header, self.data = bytearray(content[: self.file.data_start]), bytearray(content[self.file.data_start :])
        self.layers = 0

    @property
    def _table_end(self) -> int:
        """Where the table of tensors ends: with the last one's name, dimensions, type and offset."""
        name, tensor = list(self.file.tensors.items())[-1]
        return self.header.rindex(text(name)) + len(text(name)) + 4 + 8 * len(tensor.shape) + 4 + 8

    def replace(self, old: bytes, new: bytes) -> None:
        """Change bytes of the header that occur once; what pads it is made anew."""
        assert self.header.count(old) == 1, old
        del self.header[self._table_end :]
        at = self.header.index(old)
        self.header[at : at + len(old)] = new
        self.header += bytes(-len(self.header) % gguf.GGUF_DEFAULT_ALIGNMENT)

    def set_text(self, key: str, new: str) -> None:
        """Change a text."""
        kind = struct.pack("<I", gguf.GGUFValueType.STRING)
        self.replace(text(key) + kind + text(self.file.values[key]), text(key) + kind + text(new))

    def set_kind(self, key: str, kind: gguf.GGUFValueType) -> None:
        """Say that the values of a list are of another type of the same width."""
        old = struct.pack("<I", gguf.GGUFValueType.ARRAY)
        (was,) = struct.unpack_from("<I", self.header, self.header.index(text(key)) + len(text(key)) + 4)
        self.replace(text(key) + old + struct.pack("<I", was), text(key) + old + struct.pack("<I", kind))

    def add_tensor(self, name: str, width: int) -> None:
        """Add a matrix of one row of zeros behind the others."""
        end = self._table_end
        entry = text(name) + struct.pack("<IQQIQ", 2, width, 1, gguf.GGMLQuantizationType.F32, len(self.data))
        del self.header[end:]
        self.header += entry
        (count,) = struct.unpack_from("<Q", self.header, 8)  # after magic and version
        struct.pack_into("<Q", self.header, 8, count + 1)
        self.header += bytes(-len(self.header) % gguf.GGUF_DEFAULT_ALIGNMENT)
        self.data += bytes(4 * width)


@cache
def _header(path: Path) -> GgufFile:
    return open_gguf(path)


def text(content: str) -> bytes:
    """A text as a GGUF has it."""
    return struct.pack("<Q", len(content.encode())) + content.encode()


def rewrite(path: Path, edit: Callable[[bytes], bytes]) -> None:
    """Change a file that may share its bytes with another: the other stays as it is."""
    content = edit(path.read_bytes())
    path.unlink()
    path.write_bytes(content)


def replace_once(path: Path, old: str, new: str) -> None:
    """Change a text that occurs once in a file."""
    content = path.read_text(encoding="utf-8")
    assert content.count(old) == 1, (path, old)
    rewrite(path, lambda _: content.replace(old, new).encode())


def close_again(folder: Path) -> None:
    """Let SHA256SUMS be right for the files as they are now."""
    names = [path.name for path in folder.iterdir() if path.name != release.SUMS]
    sums = release.parse_sums((folder / release.SUMS).read_text(encoding="utf-8"))
    lines = [f"{core.sha256_file(folder / name)}  {name}\n" for name in sorted(set(names) & sums.keys())]
    rewrite(folder / release.SUMS, lambda _: "".join(lines).encode())
