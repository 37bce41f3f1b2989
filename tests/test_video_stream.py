"""Captured streams as files, and the prompt that is captured: what is kept, and what is said of a damaged one."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from scripts import capture
from scripts.core import BuildError
from scripts.llama_server import Piece
from scripts.video_stream import Stream, check_pair, first_difference, read, write
from scripts.workloads import Prompt
from tests.errors_table import Said
from tests.video_samples import SETTINGS, baseline, dflash, written


def test_a_stream_is_read_as_it_was_written(tmp_path: Path) -> None:
    for made in (baseline(), dflash()):
        write(made, tmp_path / "stream.jsonl")
        assert read(tmp_path / "stream.jsonl") == made


def test_the_header_comes_first_and_every_part_has_a_line(tmp_path: Path) -> None:
    write(dflash(), tmp_path / "stream.jsonl")
    header, *pieces = [json.loads(line) for line in (tmp_path / "stream.jsonl").read_text().splitlines()]
    assert header["draft"] == "Draft-Q4_K_M.gguf"
    assert header["timings"]["draft_n_accepted"] == 12
    assert pieces[0] == {"at": 0.121, "text": "```", "tokens": [0]}
    assert len(pieces) == 16


def test_no_text_breaks_a_line(tmp_path: Path) -> None:
    odd = replace(baseline(), pieces=(Piece(0.1, "a\u2028b\x85c\r\n\ud83d", [1]),))
    write(odd, tmp_path / "stream.jsonl")
    assert read(tmp_path / "stream.jsonl") == odd


def _changed(line: int, text: str) -> Callable[[list[str]], list[str]]:
    return lambda lines: [*lines[: line - 1], text, *lines[line:]]


def _other_header(key: str, value: object) -> Callable[[list[str]], list[str]]:
    return lambda lines: [json.dumps(json.loads(lines[0]) | {key: value}), *lines[1:]]


DAMAGED = {
    "a stream with nothing in it": lambda lines: [],
    "a stream without a token": lambda lines: lines[:1],
    "a line of a stream that is no JSON": _changed(3, '{"at": 0.1, "text": "a'),
    "a header without the prompt": lambda lines: [lines[0].replace('"prompt"', '"promt"', 1), *lines[1:]],
    "a header with a number for the target": _other_header("target", 1),
    "a part of a stream without a time": _changed(3, '{"text": "a", "tokens": [1]}'),
    "a part of a stream with a negative time": _changed(2, '{"at": -0.1, "text": "a", "tokens": [1]}'),
    "a time before that of the line above": _changed(4, '{"at": 0.0, "text": "a", "tokens": [1]}'),
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_stream(tmp_path: Path, damage: Callable[[list[str]], list[str]], said: Said) -> None:
    path = tmp_path / "stream.jsonl"
    write(baseline(), path)
    path.write_text("".join(f"{line}\n" for line in damage(path.read_text().splitlines())))
    with pytest.raises(BuildError) as caught:
        read(path)
    said("Demo video: {id}", caught.value)


def test_a_stream_that_is_not_there(tmp_path: Path, said: Said) -> None:
    with pytest.raises(BuildError) as caught:
        read(tmp_path / "stream.jsonl")
    said("Demo video: a stream that is not there", caught.value)


def test_a_stream_that_is_no_text(tmp_path: Path, said: Said) -> None:
    (tmp_path / "stream.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(BuildError) as caught:
        read(tmp_path / "stream.jsonl")
    said("Demo video: a stream that is no text", caught.value)


NO_PAIR = {
    "streams of two prompts": (baseline(), replace(dflash(), prompt="another")),
    "streams of two targets": (baseline(), replace(dflash(), target="Other.gguf")),
    "a baseline with a draft": (dflash(), dflash()),
    "a stream of DFlash without a draft": (baseline(), baseline()),
    "a draft that never engaged": (
        baseline(),
        replace(dflash(), timings=replace(dflash().timings, draft_n=None, draft_n_accepted=None)),
    ),
}


@pytest.mark.parametrize("pair", NO_PAIR.values(), ids=NO_PAIR)
def test_streams_that_are_no_pair(tmp_path: Path, pair: tuple[Stream, Stream], said: Said) -> None:
    with pytest.raises(BuildError) as caught:
        check_pair(*pair, tmp_path / "video")
    said("Demo video: {id}", caught.value)


def test_two_streams_of_one_request_are_a_pair(tmp_path: Path) -> None:
    left, right = map(read, written(tmp_path, baseline(), dflash()))
    check_pair(left, right, tmp_path)


@pytest.mark.parametrize(
    ("left", "right", "index"),
    [([1, 2], [1, 2], None), ([1, 2], [1, 3], 1), ([1, 2], [1, 2, 3], 2), ([1], [], 0), ([], [], None)],
)
def test_the_first_difference(left: list[int], right: list[int], index: int | None) -> None:
    assert first_difference(left, right) == index


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    """A workload with two prompts."""
    path = tmp_path / "code.yaml"
    prompts = [
        {"id": "one", "user": "First.\nMore."},
        {"id": "two", "user": "Second.", "system": "Be brief.", "raw": "x ="},
    ]
    path.write_text(yaml.safe_dump({"name": "code", "description": "d", "prompts": prompts}))
    return path


def test_the_first_prompt_or_the_one_that_is_named(workload: Path) -> None:
    first, second = (capture.prompt_of([workload], "code", name) for name in (None, "two"))
    assert (first.text, first.messages) == ("First.\nMore.", [{"role": "user", "content": "First.\nMore."}])
    assert (second.text, second.messages[0]) == ("x =", {"role": "system", "content": "Be brief."})


def test_a_workload_that_nobody_named(workload: Path, said: Said) -> None:
    with pytest.raises(BuildError) as caught:
        capture.prompt_of([workload], "prose", None)
    said("Demo video: a workload that is not there", caught.value)


def test_a_prompt_that_the_workload_has_not(workload: Path, said: Said) -> None:
    with pytest.raises(BuildError) as caught:
        capture.prompt_of([workload], "code", "three")
    said("Demo video: a prompt that the workload has not", caught.value)


def test_a_missing_draft(tmp_path: Path, said: Said) -> None:
    for name in ("llama-server", "target.gguf"):
        (tmp_path / name).touch()
    paths = [tmp_path / name for name in ("llama-server", "target.gguf", "draft.gguf")]
    with pytest.raises(BuildError) as caught:
        logs = tmp_path / "one.log", tmp_path / "two.log"
        capture.capture_both(paths[0], paths[1], paths[2], SETTINGS, Prompt("one", "Hello"), "chat", 8, logs)
    said("Demo video: a draft that is not there", caught.value)
