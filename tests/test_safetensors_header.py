"""Weights are checked by their headers alone, and every other file that gets saved as weights is named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from scripts.core import BuildError
from scripts.safetensors_header import INDEX, SINGLE, check_weights, open_tensors, read_header
from tests.errors_table import Said
from tests.verify_samples import random_bits, safetensors_bytes, with_header, write_json

SHAPES: dict[str, tuple[int, ...]] = {"a": (4, 6), "b": (5,), "c": (2, 3)}
BITS = random_bits(SHAPES)
RIGHT = safetensors_bytes(BITS)


def entry(dtype: str, shape: Any, begin: Any, end: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def made(data: int = 0, **entries: Any) -> bytes:
    """A safetensors file with these header entries and so many bytes of data."""
    return with_header(json.dumps(entries).encode(), bytes(data))


def test_the_header_says_names_types_shapes_and_places(tmp_path: Path) -> None:
    path = tmp_path / SINGLE
    path.write_bytes(RIGHT)
    header = read_header(path)
    assert {name: tensor.shape for name, tensor in header.tensors.items()} == SHAPES
    assert {tensor.dtype for tensor in header.tensors.values()} == {"BF16"}
    assert header.data_start == 8 + header.header_length == len(RIGHT) - 2 * (24 + 5 + 6)
    tensor = header.tensors["b"]
    assert RIGHT[tensor.begin : tensor.end] == BITS["b"].tobytes()


def test_it_reads_what_the_safetensors_package_writes(tmp_path: Path) -> None:
    path = tmp_path / SINGLE
    safetensors.numpy.save_file({"x": np.ones((3, 2), np.float32), "y": np.zeros((0, 4), np.float32)}, path)
    header = read_header(path)
    assert {name: (tensor.dtype, tensor.shape) for name, tensor in header.tensors.items()} == {
        "x": ("F32", (3, 2)),
        "y": ("F32", (0, 4)),
    }


@pytest.mark.parametrize("first", [0x3C, 0x7B, 0x76])
def test_a_header_whose_length_looks_like_a_letter_is_right(tmp_path: Path, first: int) -> None:
    """60, 123 and 118 are also the codes of <, { and v, with which other files begin."""
    header = json.dumps({"a": entry("BF16", [1], 0, 2)}, separators=(",", ":")).encode()
    path = tmp_path / SINGLE
    path.write_bytes(with_header(header.ljust(first), b"\0\0"))
    assert path.read_bytes()[0] == first
    assert list(read_header(path).tensors) == ["a"]


def test_tensors_come_one_at_a_time_as_their_bits(tmp_path: Path) -> None:
    (tmp_path / SINGLE).write_bytes(RIGHT)
    seen = dict(open_tensors(tmp_path))
    assert {name: bits.dtype for name, bits in seen.items()} == dict.fromkeys(SHAPES, np.dtype(np.uint16))
    for name, bits in seen.items():
        assert np.array_equal(bits, BITS[name])
        assert not bits.flags.writeable or bits.size == 0


def test_a_tensor_at_an_odd_byte_is_read(tmp_path: Path) -> None:
    header = json.dumps({"a": entry("BF16", [3], 0, 6)}).encode()
    header = header.ljust(len(header) + 1 - len(header) % 2)
    (tmp_path / SINGLE).write_bytes(with_header(header, BITS["a"].tobytes()[:6]))
    ((_, bits),) = open_tensors(tmp_path)
    assert np.array_equal(bits, BITS["a"].reshape(-1)[:3])


ONE = entry("BF16", [2], 0, 4)
WRONG: list[tuple[str, Callable[[], bytes], str]] = [
    ("empty", lambda: b"", "the file is empty"),
    ("web page", lambda: b"<!DOCTYPE html><html>" + bytes(3000), "this is a web page, not weights"),
    ("web page after a blank", lambda: b"\n<html></html>", "this is a web page, not weights"),
    ("error body", lambda: b'{"error":"Repository not found"}', "this is a JSON text (an error message of the server)"),
    (
        "LFS pointer",
        lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 2583816472\n",
        "this is a Git LFS pointer, not the weights it points to",
    ),
    ("text", lambda: b"Entry not found", "this is a text ('Entry not found'), not weights"),
    ("few bytes", lambda: b"\x01\x02\x03", "the file ends after 3 bytes, before the length of its header"),
    (
        "random",
        lambda: b"\xff" * 2000,
        "its first 8 bytes give a header of 18446744073709551615 bytes",
    ),
    ("no object", lambda: with_header(b"[1, 2]", b""), "not a safetensors file: no JSON object follows"),
    ("zeros", lambda: bytes(2000), "not a safetensors file: no JSON object follows"),
    ("cut in the header", lambda: RIGHT[:40], "the header should have"),
    ("cut at the header's end", lambda: made(a=1)[:-2], "the header should have 8 bytes and the file has 14"),
    ("broken JSON", lambda: with_header(b'{"a": ', b""), "the safetensors header is not valid JSON"),
    ("deep JSON", lambda: with_header(b'{"a":' + b"[" * 100_000, b""), "the safetensors header is not valid JSON"),
    ("not UTF-8", lambda: with_header(b'{"\xff":1}', b""), "the safetensors header is not valid JSON"),
    (
        "name twice",
        lambda: with_header(b'{"a":{},"a":{}}', b""),
        "the safetensors header is not valid JSON: 'a' occurs twice",
    ),
    ("no tensors", lambda: made(__metadata__={"format": "pt"}), "the file holds no tensors"),
    ("entry", lambda: made(4, a=[1]), "the header entry of tensor a is malformed"),
    ("entry without offsets", lambda: made(4, a={"dtype": "BF16", "shape": [2]}), "entry of tensor a is malformed"),
    ("negative shape", lambda: made(4, a=entry("BF16", [-2], 0, 4)), "entry of tensor a is malformed"),
    ("shape of truth", lambda: made(2, a=entry("BF16", [True], 0, 2)), "entry of tensor a is malformed"),
    ("fraction", lambda: made(4, a=entry("BF16", [2.0], 0, 4)), "entry of tensor a is malformed"),
    ("many dimensions", lambda: made(4, a=entry("BF16", [1] * 9, 0, 4)), "entry of tensor a is malformed"),
    ("dtype", lambda: made(4, a=entry("B16", [2], 0, 4)), "tensor a has the unknown dtype B16"),
    ("bytes", lambda: made(4, a=entry("BF16", [3], 0, 4)), "tensor a (BF16 [3]) needs 6 bytes and has 4"),
    ("backwards", lambda: made(4, a=entry("BF16", [2], 4, 0)), "tensor a (BF16 [2]) needs 4 bytes and has -4"),
    ("huge shape", lambda: made(4, a=entry("BF16", [1 << 62, 1 << 62], 0, 4)), "bytes and has 4"),
    ("gap", lambda: made(12, a=ONE, b=entry("BF16", [2], 8, 12)), "the tensor data has a gap before tensor b"),
    ("overlap", lambda: made(6, a=ONE, b=entry("BF16", [2], 2, 6)), "the tensor data has an overlap with tensor b"),
    ("cut by a byte", lambda: RIGHT[:-1], "1 B are missing"),
    ("a byte more", lambda: RIGHT + b"\0", "1 bytes follow the last tensor"),
]


@pytest.mark.parametrize(("make", "message"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_a_wrong_file_is_named(tmp_path: Path, make: Callable[[], bytes], message: str, said: Said) -> None:
    path = tmp_path / SINGLE
    path.write_bytes(make())
    with pytest.raises(BuildError) as caught:
        check_weights(tmp_path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    said("Weights: {id}", caught.value)


def test_a_length_of_100_mb_and_more_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / SINGLE
    with path.open("wb") as stream:
        stream.write((100_000_001).to_bytes(8, "little") + b"{")
        stream.truncate(200_000_000)
    with pytest.raises(BuildError, match="its first 8 bytes give a header of 100000001 bytes"):
        read_header(path)


@pytest.mark.parametrize(
    ("dtype", "width", "why"),
    [
        ("F16", 2, "half precision overflows where bfloat16 does not"),
        ("F32", 4, "single precision would have to be rounded"),
        ("F8_E4M3", 1, "an 8-bit float is already quantized"),
        ("F8_E5M2", 1, "an 8-bit float is already quantized"),
        ("I64", 8, "this is no floating-point weight"),
    ],
)
def test_another_dtype_is_refused_with_its_reason(tmp_path: Path, dtype: str, width: int, why: str, said: Said) -> None:
    (tmp_path / SINGLE).write_bytes(made(4 + width, a=ONE, b=entry(dtype, [1], 4, 4 + width)))
    with pytest.raises(BuildError, match=f"tensor b is {dtype}: {why}") as caught:
        check_weights(tmp_path)
    said(f"Weights: a tensor of {dtype}", caught.value)


def shard(folder: Path, placed: dict[str, str] | None = None) -> None:
    """Two shards and their index: a and b in the first, c in the second."""
    one, two = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    (folder / one).write_bytes(safetensors_bytes({name: BITS[name] for name in "ab"}))
    (folder / two).write_bytes(safetensors_bytes({"c": BITS["c"]}))
    write_json(folder / INDEX, {"weight_map": placed or {"a": one, "b": one, "c": two}})


def test_shards_are_read_through_their_index(tmp_path: Path) -> None:
    shard(tmp_path)
    weights = check_weights(tmp_path)
    assert sorted(weights.tensors) == ["a", "b", "c"]
    assert [path.name for path in weights.files] == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        INDEX,
    ]
    assert weights.data_bytes == 2 * (24 + 5 + 6)
    assert {name: bits.tobytes() for name, bits in open_tensors(tmp_path)} == {n: b.tobytes() for n, b in BITS.items()}


ONE_SHARD, TWO_SHARD = (f"model-0000{n}-of-00002.safetensors" for n in (1, 2))


@pytest.mark.parametrize(
    ("placed", "message"),
    [
        ({"a": ONE_SHARD, "b": ONE_SHARD, "c": TWO_SHARD, "d": TWO_SHARD}, "tensor d of the index is in no shard"),
        ({"a": ONE_SHARD, "b": ONE_SHARD, "c": ONE_SHARD}, f"{TWO_SHARD} does not belong to the weights"),
        ({"a": ONE_SHARD, "b": TWO_SHARD, "c": TWO_SHARD}, "the index does not place tensor b in this file"),
        ({"a": ONE_SHARD, "c": TWO_SHARD}, "the index does not place tensor b in this file"),
        ({"a": "model-3.safetensors"}, "model-3.safetensors is missing; it holds model-00001"),
        ({"a": "../model.safetensors"}, "the index names '../model.safetensors', which is no weight file"),
        ({"a": "pytorch_model.bin"}, "the index names 'pytorch_model.bin', which is no weight file"),
    ],
    ids=[
        *("an index with a tensor that no shard has", "an index that leaves a shard out"),
        *(
            "an index with a tensor in another shard",
            "an index without a tensor",
            "an index with a shard that is not there",
        ),
        *("an index that leaves the folder", "an index of pickles"),
    ],
)
def test_an_index_that_does_not_fit_its_shards_is_named(
    tmp_path: Path, placed: dict[str, str], message: str, said: Said
) -> None:
    shard(tmp_path, placed)
    with pytest.raises(BuildError) as caught:
        check_weights(tmp_path)
    assert message in str(caught.value)
    said("Weights: {id}", caught.value)


def test_a_tensor_in_two_shards_is_named(tmp_path: Path, said: Said) -> None:
    shard(tmp_path)
    (tmp_path / TWO_SHARD).write_bytes(safetensors_bytes({"b": BITS["b"], "c": BITS["c"]}))
    with pytest.raises(BuildError, match="tensor b is in two shards") as caught:
        check_weights(tmp_path)
    said("Weights: a tensor in two shards", caught.value)


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"weight_map": {}}', '{"weight_map": {"a": 1}}', '{"weight_map": []}']
)
def test_an_index_without_a_map_is_named(tmp_path: Path, content: str, said: Said) -> None:
    (tmp_path / INDEX).write_text(content, encoding="utf-8")
    with pytest.raises(BuildError, match="the index has no weight_map") as caught:
        check_weights(tmp_path)
    said(f"Weights: an index that holds `{content}`", caught.value)


def test_a_folder_without_weights_is_named(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"model\.safetensors is missing \("):
        check_weights(tmp_path)
    (tmp_path / "adapter.safetensors").write_bytes(RIGHT)
    with pytest.raises(BuildError, match=r"model\.safetensors is missing; it holds adapter\.safetensors"):
        check_weights(tmp_path)


def test_a_second_set_of_weights_is_named(tmp_path: Path, said: Said) -> None:
    for name in (SINGLE, "model-old.safetensors"):
        (tmp_path / name).write_bytes(RIGHT)
    with pytest.raises(BuildError, match=r"model-old\.safetensors does not belong to the weights") as caught:
        check_weights(tmp_path)
    said("Weights: a second set of weights in the folder", caught.value)


def test_a_link_to_nowhere_is_named(tmp_path: Path, said: Said) -> None:
    (tmp_path / SINGLE).symlink_to(tmp_path / "gone")
    with pytest.raises(BuildError, match="cannot read the weights: No such file") as caught:
        check_weights(tmp_path)
    said("Weights: a link to nowhere", caught.value)
