"""The served target is compared with the draft: every mismatch alone has its message, and what fits passes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from demo.hub import HubServer
from scripts import target
from scripts.core import BuildError, Report, read_json
from scripts.draft_config import DraftConfig, read_draft_config
from scripts.verify_vocab import Vocabulary, read_vocabulary
from tests import verify_samples as samples
from tests.served_samples import REPO, Edit, embedding, large, locked, rows, served, write_split
from tests.verify_samples import Gguf, failures


@pytest.fixture
def draft(tmp_path: Path) -> DraftConfig:
    (tmp_path / "draft").mkdir()
    samples.write_json(tmp_path / "draft" / "config.json", samples.CONFIG)
    return read_draft_config(tmp_path / "draft" / "config.json")


@pytest.fixture
def vocabulary(tmp_path: Path) -> Vocabulary:
    samples.write_target(tmp_path / "target")
    return read_vocabulary(tmp_path / "target", samples.CONFIG["vocab_size"])


def pads(count: int) -> Edit:
    return lambda file: file.set(
        "tokenizer.ggml.tokens", [*file.values["tokenizer.ggml.tokens"], *(f"[PAD{30 + i}]" for i in range(count))]
    )


def layers(count: int, predicting: int | None = None) -> Edit:
    def edit(file: Gguf) -> None:
        file.set("qwen35.block_count", count)
        if predicting is not None:
            file.set("qwen35.nextn_predict_layers", predicting)

    return edit


def embedded(rows: int = 30, width: int = 32) -> Edit:
    return lambda file: file.tensors.update({"token_embd.weight": embedding(rows, width)})


TAPS = "with taps [1, 3, 5], served target"
WRONG: list[tuple[str, Edit, list[str]]] = [
    (
        "model",
        lambda file: file.set("tokenizer.ggml.model", "llama"),
        ["tokenizer.ggml.model: draft 'gpt2', served target 'llama'"],
    ),
    (
        "pre",
        lambda file: file.set("tokenizer.ggml.pre", "qwen2"),
        ["tokenizer.ggml.pre: draft 'qwen35', served target 'qwen2'"],
    ),
    (
        "no pre",
        lambda file: file.drop("tokenizer.ggml.pre"),
        ["tokenizer.ggml.pre: draft 'qwen35', served target nothing"],
    ),
    (
        "add_bos",
        lambda file: file.set("tokenizer.ggml.add_bos_token", True),
        ["tokenizer.ggml.add_bos_token: draft False, served target True"],
    ),
    (
        "add_eos",
        lambda file: file.set("tokenizer.ggml.add_eos_token", True),
        ["tokenizer.ggml.add_eos_token: draft False, served target True"],
    ),
    (
        "count",
        pads(129),
        [
            "token count: draft 30, served target 159: 129 apart, llama.cpp allows 128; "
            "rows without a token (padding) count too"
        ],
    ),
    (
        "no tokens",
        lambda file: file.drop("tokenizer.ggml.tokens"),
        ["token count: draft 30, served target 0"],
    ),
    ("one token", rows(6), ["token texts: id 6 is '\u0120a' in the draft, 'other6' served"]),
    (
        "four tokens",
        rows(5, 7, 8, 11),
        [
            "token texts: id 5 is '\u0120' in the draft, 'other5' served; "
            "id 7 is '<|endoftext|>' in the draft, 'other7' served; "
            "id 8 is '<|im_end|>' in the draft, 'other8' served; 4 differ in all"
        ],
    ),
    ("mask row", embedded(rows=25), ["mask row: mask token 25, the served target has an embedding of 25 rows"]),
    (
        "hidden",
        lambda file: file.set("qwen35.embedding_length", 64),
        ["qwen35.embedding_length: draft 32, served target 64"],
    ),
    ("row length", embedded(width=64), ["token_embd.weight: draft 32, served target 64"]),
    (
        "no embedding",
        lambda file: file.tensors.clear(),
        [
            "mask row: mask token 25, the served target has no token_embd.weight",
            "token_embd.weight: draft 32, served target nothing",
        ],
    ),
    ("layers", layers(9), [f"target layers: draft 8 {TAPS} 9"]),
    ("taps", layers(5), [f"taps: layers: draft 8 {TAPS} 5", f"target layers: draft 8 {TAPS} 5"]),
    (
        "no layers",
        lambda file: file.drop("qwen35.block_count"),
        [f"taps: layers: draft 8 {TAPS} nothing", f"target layers: draft 8 {TAPS} nothing"],
    ),
    ("parts", lambda file: file.set("split.count", 3), ["split.count: 1 files, the GGUF says 3"]),
]


@pytest.mark.parametrize(("edit", "messages"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_every_mismatch_is_named_and_no_other(
    edit: Edit, messages: list[str], draft: DraftConfig, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    report = target.check(draft, vocabulary, target.from_path(served(tmp_path, edit)))
    assert failures(report) == messages


FITS: list[tuple[str, Edit]] = [
    ("the same", samples.unchanged),
    ("128 tokens more", pads(128)),
    ("ids llama.cpp does not compare", rows(0, 1, 2, 3, 4)),
    ("a layer that predicts further tokens", layers(9, predicting=1)),
    ("a row more than the mask needs", embedded(rows=26)),
    ("adding of bos not given", lambda file: file.drop("tokenizer.ggml.add_bos_token")),
    ("adding of eos not given", lambda file: file.drop("tokenizer.ggml.add_eos_token")),
    ("another eos that is not added", lambda file: file.set("tokenizer.ggml.eos_token_id", 7)),
    ("once split, put together", lambda file: file.set("split.count", 0)),
]  # fmt: skip


@pytest.mark.parametrize("edit", [case[1] for case in FITS], ids=[case[0] for case in FITS])
def test_what_llama_cpp_takes_is_taken(edit: Edit, draft: DraftConfig, vocabulary: Vocabulary, tmp_path: Path) -> None:
    assert failures(target.check(draft, vocabulary, target.from_path(served(tmp_path, edit)))) == []


@pytest.mark.parametrize(("served_id", "said"), [(8, []), (7, ["7"]), (None, ["nothing"])])
@pytest.mark.parametrize("kind", ["bos", "eos"])
def test_an_id_counts_where_it_is_added(
    kind: str, served_id: int | None, said: list[str], draft: DraftConfig, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    def edit(file: Gguf) -> None:
        file.set(f"tokenizer.ggml.add_{kind}_token", True)
        file.values.pop(f"tokenizer.ggml.{kind}_token_id", None)
        if served_id is not None:
            file.set(f"tokenizer.ggml.{kind}_token_id", served_id)

    adding = replace(vocabulary, adds={kind: True}, special_ids={kind: (8, "config.json")})
    report = target.check(draft, adding, target.from_path(served(tmp_path, edit)))
    key = f"tokenizer.ggml.add_{kind}_token"
    assert failures(report) == [f"{key}: both add {kind}: draft id 8, served target {theirs}" for theirs in said]


def test_a_split_target_on_this_machine(draft: DraftConfig, vocabulary: Vocabulary, tmp_path: Path) -> None:
    report = target.check(draft, vocabulary, target.from_path(write_split(tmp_path / "repo", 3, 2)))
    assert failures(report) == []
    assert report.figures["files"] == [f"Served-Q8_0-{number:05}-of-00003.gguf" for number in (1, 2, 3)]
    (tmp_path / "repo" / "Served-Q8_0-00003-of-00003.gguf").unlink()
    with pytest.raises(BuildError, match=r"part 3 of 3 of Served-Q8_0\.gguf is missing"):
        target.from_path(tmp_path / "repo" / "Served-Q8_0-00001-of-00003.gguf")


def test_a_path_without_a_file_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.gguf", tmp_path / "none" / "none.gguf"):
        with pytest.raises(BuildError, match=r"cannot read the GGUF: No such file .*none\.gguf\): name a whole GGUF"):
            target.from_path(path)


def front(tmp_path: Path, entry: dict[str, Any] | None, options: dict[str, str]) -> int:
    inputs = {} if entry is None else {"target_gguf": entry}
    Report(figures={"inputs": inputs}).write(tmp_path / "lock.json")
    where = {"--lock": "lock.json", "--draft": "draft", "--target": "target", "--report": "target.json"}
    arguments = [part for option, name in where.items() for part in (option, str(tmp_path / name))]
    return target.main([*arguments, "--options", json.dumps(options)])


def test_the_front_writes_the_report_and_says_what_was_read(
    at_hub: HubServer,
    draft: DraftConfig,
    vocabulary: Vocabulary,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = served(tmp_path / "repo", large)
    options = {"repo": REPO, "quant": "Q8_0"}
    assert front(tmp_path, locked(at_hub, tmp_path / "repo"), options) == 0
    report = read_json(tmp_path / "target.json")
    expected: dict[str, Any] = {"ok": True, "repo": REPO, "quant": "Q8_0", "files": [path.name], "requests": 3}
    expected |= {"bytes_read": 7 << 20, "file_bytes": path.stat().st_size, "tokens": 30, "draft_tokens": 30}
    expected |= {"compared_ids": 25, "rows": 30, "layers": 8}
    assert {key: report[key] for key in expected} == expected
    assert len(report["commit"]) == 40
    said = "Served-Q8_0.gguf is served with this draft's vocabulary: 25 token texts equal; "
    assert capsys.readouterr().err == f"{said}7.3 MB of 24.2 MB read in 3 requests\n"
    assert front(tmp_path, None, {"path": str(path)}) == 0
    assert "4.2 MB of 24.2 MB read in 0 requests" in capsys.readouterr().err


def test_a_target_that_does_not_fit_leaves_no_report(
    at_hub: HubServer,
    draft: DraftConfig,
    vocabulary: Vocabulary,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    served(tmp_path / "repo", rows(6))
    entry = locked(at_hub, tmp_path / "repo")
    assert front(tmp_path, entry, {"repo": REPO, "quant": "Q8_0"}) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    where = f"{at_hub.endpoint}/{REPO}/blob/{entry['commit']}/Served-Q8_0.gguf"
    assert error == f"error: token texts: id 6 is '\u0120a' in the draft, 'other6' served ({where}): {target.FIX}"
    assert not (tmp_path / "target.json").exists()


def test_a_lock_of_before_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert front(tmp_path, None, {"repo": REPO, "quant": "Q8_0"}) == 1
    assert "error: the lock has no target_gguf" in capsys.readouterr().err


@pytest.mark.slow
def test_the_embedded_pairs_own_gguf(at_hub: HubServer, pair_repos: Path, tmp_path: Path) -> None:
    entry = locked(at_hub, pair_repos / "finetune-gguf")
    config = read_draft_config(pair_repos / "draft" / "config.json")
    vocabulary = read_vocabulary(pair_repos / "finetune", config.vocab_size)
    report = target.check(config, vocabulary, target.from_hub(entry, "Q8_0"))
    assert failures(report) == []
    figures = report.figures
    print({key: value for key, value in figures.items() if key != "commit"})
    assert (figures["compared_ids"], figures["rows"], figures["layers"]) == (248_315, 248_320, 8)
    assert at_hub.log.bytes_for(REPO, ".gguf") == figures["bytes_read"] < 12_000_000 < figures["file_bytes"] / 6
    base = read_vocabulary(pair_repos / "base", config.vocab_size)
    (message,) = failures(target.check(config, base, target.from_hub(entry, "Q4_K_M")))
    assert message.startswith("token texts: id 248070 is '[PAD248070]' in the draft, '<|audio_start|>' served; ")
    assert message.endswith("; 7 differ in all")
