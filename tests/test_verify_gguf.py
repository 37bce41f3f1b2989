"""The GGUF reader agrees with the gguf package on right files and ends in one line on every wrong one."""

import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from scripts.core import BuildError
from scripts.verify_gguf import open_gguf
from tests import verify_samples as samples
from tests.errors_table import Said


@pytest.fixture
def right(tmp_path: Path) -> Path:
    """A whole GGUF."""
    return samples.right_gguf(samples.write_draft(tmp_path / "draft")).write(tmp_path / "right.gguf")


def test_it_reads_what_the_gguf_package_reads(right: Path) -> None:
    found, wanted = open_gguf(right), gguf.GGUFReader(right)
    values = {key: field.contents() for key, field in wanted.fields.items() if not key.startswith("GGUF.")}
    assert dict(found.values) == values
    assert [(t.name, t.type, t.begin, t.end) for t in found.tensors.values()] == [
        (t.name, t.tensor_type.name, t.data_offset, t.data_offset + t.n_bytes) for t in wanted.tensors
    ]
    assert [t.shape for t in found.tensors.values()] == [tuple(reversed(t.shape.tolist())) for t in wanted.tensors]


def test_it_reads_every_kind_of_value(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "kinds.gguf", "x")
    kinds = gguf.GGUFValueType
    wanted = {
        "UINT8": 200, "INT8": -3, "UINT16": 60000, "INT16": -300, "UINT32": 1 << 31, "INT32": -5, "FLOAT32": 0.5,
        "BOOL": True, "STRING": "\u00e9\u4e2d", "UINT64": 1 << 63, "INT64": -(1 << 40), "FLOAT64": 0.1,
    }  # fmt: skip
    for name, value in wanted.items():
        writer.add_key_value(name, value, kinds[name])
        writer.add_key_value(f"list of {name}", [value, value], kinds.ARRAY, kinds[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    values = open_gguf(tmp_path / "kinds.gguf").values
    assert {name: values[name] for name in wanted} == wanted
    assert {name: values[f"list of {name}"] for name in wanted} == {name: [v, v] for name, v in wanted.items()}
    assert values["BOOL"] is True


def test_bytes_are_mapped_where_they_are(right: Path) -> None:
    file = open_gguf(right)
    tensor = file.tensors["output_norm.weight"]
    assert file.map_bytes(tensor.begin, tensor.end).tobytes() == right.read_bytes()[tensor.begin : tensor.end]
    assert file.map_bytes(5, 5).size == 0


def test_a_file_cut_anywhere_ends_in_one_line(right: Path, tmp_path: Path) -> None:
    data = right.read_bytes()
    cut = tmp_path / "cut.gguf"
    start = open_gguf(right).data_start
    for length in [*range(0, start, 37), start, start + 1, len(data) - 40, len(data) - 33]:
        cut.write_bytes(data[:length])
        with pytest.raises(BuildError, match=r"cut short|not a GGUF") as caught:
            open_gguf(cut)
        assert "\n" not in str(caught.value)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def row(name: str, shape: list[int], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def assemble(values: list[bytes], rows: list[bytes], data: int = 0, version: int = 3) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, len(rows), len(values)) + b"".join(values) + b"".join(rows)
    return head + bytes(-len(head) % 32) + bytes(data)


VALUE = text("k") + struct.pack("<II", 4, 7)
WRONG: list[tuple[str, Callable[[], bytes], str]] = [
    ("another format", lambda: b"GGML" + bytes(100), "not a GGUF file: it does not start with GGUF"),
    ("empty", lambda: b"", "not a GGUF file"),
    ("version", lambda: assemble([], [], version=1), "GGUF version 1 is unknown"),
    ("big-endian", lambda: b"GGUF" + struct.pack(">I", 3) + bytes(64), "GGUF version 50331648 is unknown"),
    (
        "tensor count",
        lambda: b"GGUF" + struct.pack("<IQQ", 3, 99, 0) + bytes(64),
        "it promises 99 tensors and has",
    ),
    ("value count", lambda: b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "more than any model has"),
    ("key twice", lambda: assemble([VALUE, VALUE], []), "k occurs twice in the GGUF's metadata"),
    ("value type", lambda: assemble([text("k") + struct.pack("<II", 13, 0)], []), "k has the unknown value type 13"),
    ("nested list", lambda: assemble([text("k") + struct.pack("<IIQ", 9, 9, 0)], []), "k has the unknown value type 9"),
    (
        "long list",
        lambda: assemble([text("k") + struct.pack("<IIQ", 9, 0, 1000)], []),
        "it promises 1000 values in k and has",
    ),
    (
        "huge list",
        lambda: assemble([text("k") + struct.pack("<IIQ", 9, 0, 1 << 62)], []),
        "more than any model has",
    ),
    (
        "not UTF-8",
        lambda: assemble([text("k") + struct.pack("<IQ", 8, 1) + b"\xff"], []),
        "a text in the GGUF is not UTF-8",
    ),
    (
        "alignment",
        lambda: assemble([text("general.alignment") + struct.pack("<II", 4, 0)], []),
        "general.alignment is 0",
    ),
    ("dimensions", lambda: assemble([], [row("t", [1] * 5, 0, 0)], 32), "tensor t has 5 dimensions"),
    ("tensor type", lambda: assemble([], [row("t", [32], 99, 0)], 128), "tensor t has the unknown type 99"),
    ("row length", lambda: assemble([], [row("t", [33], 8, 0)], 64), "rows of 33 weights, and Q8_0 packs 32 at a time"),
    ("tensor twice", lambda: assemble([], [row("t", [8], 0, 0), row("t", [8], 0, 32)], 64), "tensor t occurs twice"),
    ("gap", lambda: assemble([], [row("t", [8], 0, 64)], 128), "tensor t starts at byte 64 of the data, not 0"),
    ("overlap", lambda: assemble([], [row("t", [8], 0, 0), row("u", [8], 0, 0)], 64), "starts at byte 0 of the data"),
    ("cut data", lambda: assemble([], [row("t", [64], 0, 0)], 200), "cut short: 56 B of tensor data are missing"),
    ("huge tensor", lambda: assemble([], [row("t", [1 << 60], 0, 0)], 64), "of tensor data are missing"),
    ("tail", lambda: assemble([], [row("t", [8], 0, 0)], 96), "64 bytes follow the last tensor"),
]


@pytest.mark.parametrize(("make", "message"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_a_wrong_file_is_named(tmp_path: Path, make: Callable[[], bytes], message: str, said: Said) -> None:
    path = tmp_path / "wrong.gguf"
    path.write_bytes(make())
    with pytest.raises(BuildError) as caught:
        open_gguf(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    said("GGUF: {id}", caught.value)


def test_a_folder_is_named(tmp_path: Path, said: Said) -> None:
    with pytest.raises(BuildError, match="cannot read the GGUF: Is a directory") as caught:
        open_gguf(tmp_path)
    said("GGUF: a folder", caught.value)


def test_a_table_that_fits_is_read(tmp_path: Path) -> None:
    path = tmp_path / "small.gguf"
    path.write_bytes(assemble([VALUE], [row("t", [8, 2], 0, 0), row("u", [3], 0, 64)], 76))
    file = open_gguf(path)
    assert file.tensors["t"].shape == (2, 8)
    assert file.tensors["u"].weights == 3
    assert np.frombuffer(file.map_bytes(file.tensors["u"].begin, file.tensors["u"].end), np.float32).tolist() == [0] * 3
