"""Whatever is in a file, a step ends with its result or with one line, soon, and in the memory that the file deserves.

The examples are the same in every run. To look for new ones: pytest tests/test_properties.py --hypothesis-profile long
"""

import contextlib
import copy
import json
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from scripts import config, core, lock, release
from scripts.core import BuildError
from scripts.draft_config import read_draft_config
from scripts.mlx import flatten_config
from scripts.safetensors_header import SINGLE, check_weights
from scripts.verify_gguf import open_gguf
from scripts.vocab_files import collect_vocab
from scripts.vocab_settings import LOADABLE_CLASS, V5_CLASS, edit_settings
from tests import verify_samples as samples

pytestmark = pytest.mark.timeout(120)

BITS = samples.random_bits({"a": (3, 4), "b": (5,), "c": (2, 1)})
WEIGHTS = samples.safetensors_bytes(BITS)
RIGHT_CONFIG = samples.CONFIG

NUMBERS = st.integers(-(2**70), 2**70) | st.integers(0, 40) | st.floats() | st.just(10**400)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)


@contextlib.contextmanager
def one_line(size: int = 0) -> Iterator[None]:
    """The block may fail with one line only; with ``size``, it takes no memory that so many bytes would not explain."""
    if size:
        tracemalloc.start()
    try:
        yield
    except BuildError as error:
        text = str(error)
        assert text.isprintable()
        assert len(text) < 10_000
        text.encode("utf-8")
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 4_000_000 + 100 * size


@st.composite
def damaged(draw: st.DrawFn, right: bytes, until: int) -> bytes:
    """A right file with some of its first ``until`` bytes changed, cut short, or with something between."""
    raw = bytearray(right)
    for at, value in draw(st.lists(st.tuples(st.integers(0, until - 1), st.integers(0, 255)), max_size=4)):
        raw[at] = value
    at = draw(st.integers(0, until))
    return bytes(draw(st.sampled_from([raw, raw[:at], raw[:at] + draw(st.binary(max_size=20)) + raw[at:]])))


# Weights


@given(st.one_of(st.binary(max_size=300), damaged(WEIGHTS, len(WEIGHTS))))
def test_any_bytes_as_weights(tmp_path: Path, data: bytes) -> None:
    (tmp_path / SINGLE).write_bytes(data)
    with one_line(len(data)):
        check_weights(tmp_path)


ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["BF16", "F16", "I64"]) | SCALARS,
        "shape": st.lists(NUMBERS, max_size=9) | VALUES,
        "data_offsets": st.lists(NUMBERS, min_size=2, max_size=2) | VALUES,
    },
)


@given(
    st.dictionaries(st.text(max_size=5) | st.just("__metadata__"), ENTRIES | VALUES, max_size=4), st.binary(max_size=40)
)
def test_any_header_of_weights(tmp_path: Path, header: dict[str, Any], data: bytes) -> None:
    text = json.dumps(header).encode()
    (tmp_path / SINGLE).write_bytes(struct.pack("<Q", len(text)) + text + data)
    with one_line(len(text)):
        check_weights(tmp_path)


@given(st.lists(st.tuples(st.text(min_size=1, max_size=6), st.lists(st.integers(0, 4), max_size=3)), max_size=5))
def test_right_weights_are_read(tmp_path: Path, tensors: list[tuple[str, list[int]]]) -> None:
    assume(tensors and "__metadata__" not in dict(tensors))
    shapes = {name: tuple(shape) for name, shape in tensors}
    bits = samples.random_bits(shapes)
    (tmp_path / SINGLE).write_bytes(samples.safetensors_bytes(bits))
    assert {name: tensor.shape for name, tensor in check_weights(tmp_path).tensors.items()} == shapes


# GGUF


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, int]:
    """A right file, its bytes, and where its tensor data starts."""
    path = samples.Bench(tmp_path_factory.mktemp("bench")).gguf()
    return path, path.read_bytes(), open_gguf(path).data_start


@given(st.data())
def test_any_bytes_as_a_gguf(gguf: tuple[Path, bytes, int], data: st.DataObject) -> None:
    path, right, start = gguf
    plausible = st.binary(max_size=300).map((b"GGUF" + struct.pack("<I", 3)).__add__)
    raw = data.draw(st.one_of(st.binary(max_size=300), plausible, damaged(right, start)))
    path.write_bytes(raw)
    with one_line(len(raw)):
        open_gguf(path)


# Configs of models


@given(
    st.dictionaries(st.sampled_from([*RIGHT_CONFIG, "rope_scaling", "rope_theta", "block_size", "is_causal"]), VALUES)
)
def test_any_value_in_a_drafts_config(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**RIGHT_CONFIG, **changes}), encoding="utf-8")
    with one_line():
        read_draft_config(path)
    with one_line():
        flatten_config({**RIGHT_CONFIG, **changes})


PLACES = st.sampled_from(["top", "nested", "both"])


@given(
    st.fixed_dictionaries(dict.fromkeys(["rope_theta", "block_size", "mask_token_id", "target_layer_ids"], PLACES)),
    st.none() | st.sampled_from(["linear", "yarn", "dynamic"]),
    st.dictionaries(st.text(min_size=1, max_size=5).map("x_".__add__), st.integers() | st.text(max_size=5)),
)
def test_flattening_keeps_the_original_and_twice_is_once(
    places: dict[str, str], scaling: str | None, extra: dict[str, Any]
) -> None:
    given = {**copy.deepcopy(RIGHT_CONFIG), **extra}
    if scaling:
        given["rope_parameters"] |= {"rope_type": scaling, "factor": 2}
    if scaling == "yarn":
        given["rope_parameters"]["original_max_position_embeddings"] = 4096
    for key, place in places.items():
        table = given["rope_parameters" if key == "rope_theta" else "dflash_config"]
        if place != "nested":
            given[key] = table[key]
        if place == "top":
            del table[key]
    before = copy.deepcopy(given)
    flat = flatten_config(given)
    assert given == before
    assert (flat["rope_theta"], flat["block_size"]) == (10000000, 16)
    assert (flat["dflash_config"]["mask_token_id"], flat["dflash_config"]["target_layer_ids"]) == (25, [1, 3, 5])
    assert {key: flat[key] for key in given if key != "dflash_config"} == {
        key: value for key, value in given.items() if key != "dflash_config"
    }
    assert given["dflash_config"].items() <= flat["dflash_config"].items()
    assert json.dumps(flatten_config(flat)) == json.dumps(flat)


# Tokenizer files


TOKENS = st.dictionaries(st.integers(0, 30), st.text(min_size=1, max_size=4), min_size=1, max_size=12)
FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json")
CONFIGS = ("config.json", "generation_config.json", "chat_template.json")
TEXT_KEYS = st.sampled_from(
    [
        *("model", "added_tokens", "added_tokens_decoder", "chat_template", "normalizer", "text_config", "vocab_size"),
        *("eos_token", "eos_token_id", "extra_special_tokens", "additional_special_tokens"),
        "model_specific_special_tokens",
    ]
)


@given(TOKENS, st.data())
def test_files_that_agree_are_merged(tmp_path: Path, tokens: dict[int, str], data: st.DataObject) -> None:
    assume(len(set(tokens.values())) == len(tokens))
    plain, entries, decoder, added = (
        data.draw(st.sets(st.sampled_from(sorted(tokens)), min_size=least)) for least in (1, 0, 0, 0)
    )
    (tmp_path / "vocab.json").unlink(missing_ok=True)
    write = samples.write_json
    write(
        tmp_path / "tokenizer.json",
        {
            "model": {"vocab": {tokens[key]: key for key in plain}},
            "added_tokens": [{"id": key, "content": tokens[key]} for key in entries],
        },
    )
    write(
        tmp_path / "tokenizer_config.json",
        {"added_tokens_decoder": {str(key): {"content": tokens[key]} for key in decoder}},
    )
    write(tmp_path / "added_tokens.json", {tokens[key]: key for key in added})
    vocab = collect_vocab(tmp_path)
    known = plain | entries | decoder | added
    assert vocab.tokens == {key: tokens[key] for key in sorted(known)}
    assert list(vocab.tokens) == sorted(known)
    assert vocab.added == entries | decoder | added
    assert vocab.last == max(known)
    assert vocab.gaps == sorted(set(range(max(known))) - known)
    assert [check.detail for check in vocab.checks if not check.ok] == []
    other = data.draw(st.sampled_from(sorted(known)))
    write(tmp_path / "vocab.json", {tokens[other] + "'": other})
    assert {check.name for check in collect_vocab(tmp_path).checks if not check.ok} >= {"one string per id"}


@given(
    st.dictionaries(
        st.sampled_from(FILES + CONFIGS), st.dictionaries(TEXT_KEYS | st.text(max_size=3), VALUES, max_size=3)
    )
)
def test_any_values_in_tokenizer_files(tmp_path: Path, files: dict[str, dict[str, Any]]) -> None:
    folder = tmp_path / "target"
    for path in folder.glob("*"):
        path.unlink()
    folder.mkdir(exist_ok=True)
    samples.write_target(folder)
    for name, values in files.items():
        path = folder / name
        old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        path.write_text(json.dumps({**old, **values}), encoding="utf-8")
    with one_line():
        collect_vocab(folder)


@given(st.dictionaries(st.sampled_from(["type", "vocab", "merges"]), VALUES))
def test_any_values_in_the_model_of_a_tokenizer(tmp_path: Path, values: dict[str, Any]) -> None:
    model = {
        "vocab": {"a": 0},
        "merges": [],
        **{{"added_tokens": "merges"}.get(key, key): value for key, value in values.items()},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model}), encoding="utf-8")
    with one_line():
        collect_vocab(tmp_path)


STRINGS = st.lists(st.sampled_from(["<x>", "<y>", '<"\\>', "<é>"]), unique=True, max_size=3)
SETTINGS = st.dictionaries(st.text(max_size=6), VALUES, max_size=4)


@given(
    SETTINGS,
    st.sampled_from([V5_CLASS, LOADABLE_CLASS, "Qwen2Tokenizer"]),
    st.none() | STRINGS,
    st.permutations(range(6)),
    st.sampled_from([None, 0, 2, "\t"]),
    st.sampled_from([(", ", ": "), (",", ":"), (" ,\r\n", "\t: ")]),
    st.booleans(),
)
def test_an_edit_of_the_settings_changes_nothing_else(
    others: dict[str, Any],
    name: str,
    extra: list[str] | None,
    order: list[int],
    indent: Any,
    separators: tuple[str, str],
    ascii_only: bool,
) -> None:
    chosen = {**others, "tokenizer_class": name} | ({} if extra is None else {"extra_special_tokens": extra})
    before = dict(sorted(chosen.items(), key=lambda item: order[len(item[0]) % 6]))
    text = json.dumps(before, indent=indent, separators=separators, ensure_ascii=ascii_only)
    after, notes = edit_settings(text, Path("settings"))
    wanted = {
        "additional_special_tokens" if key == "extra_special_tokens" and extra is not None else key: value
        for key, value in before.items()
    }
    wanted["tokenizer_class"] = LOADABLE_CLASS if name == V5_CLASS else name
    assert after == json.dumps(wanted, indent=indent, separators=separators, ensure_ascii=ascii_only)
    assert len(notes) == (name == V5_CLASS) + (extra is not None)
    assert edit_settings(after, Path("settings")) == (after, [])


# The project's own files


GOOD = yaml.safe_load((config.ROOT / "config.yaml").read_text(encoding="utf-8"))
YAML_TEXTS = (
    st.text(max_size=40)
    | VALUES.map(yaml.safe_dump)
    | st.sampled_from(
        [
            "2026-99-99",
            "!!int x",
            "!!timestamp x",
            "!!float x",
            "&a [*a]",
            "a: &a {b: *a}",
            "{[1]: 2}",
            "[" * 50,
            "\x85",
            "? a",
        ]
    )
)


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value below a mapping."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield (*path, key)
        yield from places(value, (*path, key))


def changed(path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    """The project's config, changed at one place."""
    result = copy.deepcopy(GOOD)
    node: Any = result
    for key in path[:-1]:
        node = node[key]
    change(node, path[-1])
    return result


@given(st.sampled_from(sorted(places(GOOD), key=str)), VALUES | st.dates(), st.booleans())
def test_any_value_in_the_config(path: tuple[Any, ...], value: Any, beside: bool) -> None:
    def change(node: Any, key: Any) -> None:
        if beside and isinstance(node, dict):
            node[value if isinstance(value, int | float | str) else str(value)] = value
        else:
            node[key] = value

    with one_line():
        filled = config.validated(changed(path, change))
        for key, pair in filled["pairs"].items():
            assert isinstance(key, str)
            assert type(pair["expect"]["mask_token_id"]) is int


@given(YAML_TEXTS)
def test_any_text_as_config_or_lock(tmp_path: Path, text: str) -> None:
    path = tmp_path / "some.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with one_line():
        config.load(path)
    with one_line():
        lock.read(path)


ENTRY = {"repo": "o/n", "revision": "main", "commit": "a" * 40, "files": [{"path": "a", "size": 1, "git": "b" * 40}]}


@given(st.sampled_from([*ENTRY, "path", "size", "git", "sha256", "other"]), VALUES)
def test_any_value_in_a_lock(tmp_path: Path, key: str, value: Any) -> None:
    entry: Any = copy.deepcopy(ENTRY)
    (entry if key in entry else entry["files"][0])[key] = value
    path = tmp_path / "pair.yaml"
    path.write_text(yaml.safe_dump({"draft": entry}, allow_unicode=True), encoding="utf-8", errors="surrogatepass")
    pair = {"draft": {"repo": "o/n", "revision": "main"}}
    with one_line():
        locked = lock.lock(pair, path, frozen=True)["draft"]
        assert isinstance(locked["commit"], str)
        assert all(isinstance(file["path"], str) and type(file["size"]) is int for file in locked["files"])


@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,10}", fullmatch=True), st.binary(max_size=9), min_size=1
    )
)
def test_sums_are_read_as_they_are_written(tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]) -> None:
    assume(len({name.lower() for name in files} | {release.SUMS.lower()}) == len(files) + 1)
    folder = tmp_path_factory.mktemp("release")
    for name, content in files.items():
        (folder / name).write_bytes(content)
    release.close(folder, list(files), {})
    assert release.read_sums(folder) == {name: core.sha256_file(folder / name) for name in files}


@given(st.binary(max_size=200) | st.text("0a \n\r\u2028/.", max_size=100).map(str.encode))
def test_any_bytes_as_sums(tmp_path: Path, data: bytes) -> None:
    (tmp_path / release.SUMS).write_bytes(data)
    with one_line(len(data)):
        assert release.read_sums(tmp_path) == {}
