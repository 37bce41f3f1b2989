"""The doctor on small drafts of every kind: what it says of odd headers, other converters, names and split files."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demo.hub import HubServer
from scripts import doctor, fit, resolve
from scripts.core import BuildError
from scripts.doctor_source import Place, draft_file, parse, read
from scripts.verdict import Finding
from tests import served_samples, verify_samples
from tests.errors_table import Said
from tests.served_samples import embedding
from tests.verify_samples import Gguf

NAME = "Draft-Q8_0.gguf"
WEIGHTS = verify_samples.random_bits(verify_samples.draft_shapes(verify_samples.CONFIG))
Edit = Callable[[Gguf], object]


def write(folder: Path, edit: Edit = verify_samples.unchanged, name: str = NAME) -> Path:
    """Write a draft that fits the sample target, and that target, each in a folder of its own; the draft's path."""
    built = verify_samples.right_gguf(WEIGHTS)
    edit(built)
    (folder / "draft").mkdir(parents=True, exist_ok=True)
    (folder / "target").mkdir(exist_ok=True)
    served_samples.served(folder / "target", sections)
    path = folder / "draft" / name
    path.unlink(missing_ok=True)  # a Hub may hold the same bytes
    return built.write(path)


def sections(file: Gguf) -> None:
    """Let the sample target rotate by sections, as that of a sample draft does."""
    file.set("qwen35.rope.dimension_sections", [3, 3, 2, 0])


def findings(folder: Path, edit: Edit = verify_samples.unchanged) -> list[Finding]:
    """What the doctor finds on a draft with an edit and the sample target."""
    draft = read(str(write(folder, edit)), draft_file, all_tensors=True)
    served = read(str(folder / "target"), resolve.best_model, all_tensors=False)
    return doctor.examine(draft, served)


def shown(found: list[Finding]) -> list[str]:
    """The findings that are not simply ok."""
    return [f"{one.verdict}: {one.name}: {one.detail}" for one in found if one.verdict != "ok"]


def test_a_right_pair_is_all_ok(tmp_path: Path) -> None:
    found = findings(tmp_path)
    assert shown(found) == []
    assert len({one.name for one in found}) == len(found) == 26


def rename(prefix: str) -> Edit:
    """Let a draft have keys and architecture as forks have them."""

    def edit(file: Gguf) -> None:
        values = {key.replace("dflash.", f"{prefix}.dflash."): value for key, value in file.values.items()}
        file.values = {**values, "general.architecture": prefix, f"{prefix}.dflash.target_layers": [1, 3, 5]}

    return edit


def old_mask(file: Gguf) -> None:
    """Let the mask stand where older builds put it."""
    file.drop("tokenizer.ggml.mask_token_id")
    file.set("dflash.mask_token_id", 25)


def tensor(name: str, rows: int = 30, kind: str = "F32") -> Edit:
    data = embedding(rows)[0]
    return lambda file: file.tensors.update({name: (data.astype(np.float16) if kind == "F16" else data, kind)})


SET: list[tuple[str, Edit, list[str]]] = [
    ("a fork's", rename("dflash-draft"), ["fail: architecture: 'dflash-draft' is a fork's: upstream llama.cpp says"]),
    ("an older fork's", rename("qwen35-dflash-draft"), ["fail: architecture: 'qwen35-dflash-draft' is a fork's"]),
    ("no rope base", lambda file: file.drop("dflash.rope.freq_base"), ["fail: metadata keys: missing: rope.freq_base"]),
    ("block size 1", lambda file: file.set("dflash.block_size", 1), ["fail: block size: is 1: nothing can be drafted"]),
    (
        "taps not ascending",
        lambda file: file.set("dflash.target_layers", [2, 6, 4]),
        ["fail: target layers: [2, 6, 4] are not ascending"],
    ),
    (
        "taps from 0",
        lambda file: file.set("dflash.target_layers", [0, 4, 6]),
        ["fail: taps: layers: draft with taps [-1, 3, 5], served target 8"],
    ),
    (
        "one tap fewer",
        lambda file: file.set("dflash.target_layers", [2, 4]),
        ["fail: fc.weight: is [32, 96]; embedding_length and target_layers give [32, 64]"],
    ),
    (
        "a window without pattern",
        lambda file: file.drop("dflash.attention.sliding_window_pattern"),
        ["fail: window: sliding_window without sliding_window_pattern: llama.cpp does not load such a draft"],
    ),
    (
        "a pattern without window",
        lambda file: file.drop("dflash.attention.sliding_window"),
        ["warn: window: warning: a pattern without a window: llama.cpp ignores it"],
    ),
    (
        "a pattern that is a period",
        lambda file: file.set("dflash.attention.sliding_window_pattern", 2),
        ["fail: window: sliding_window_pattern is 2, not a list of true and false"],
    ),
    (
        "a pattern of fewer layers",
        lambda file: file.set("dflash.attention.sliding_window_pattern", [True]),
        ["fail: window: sliding_window_pattern has 1 entries, the draft 2 layers"],
    ),
    (
        "a mask where older builds had it",
        old_mask,
        [
            "fail: mask row: mask token missing, the served target has an embedding of 30 rows",
            "fail: mask token: tokenizer.ggml.mask_token_id is missing; dflash.mask_token_id is 25, which llama.cpp",
        ],
    ),
    (
        "a named mask",
        lambda file: file.set("tokenizer.ggml.mask_token_id", 9),
        ["warn: mask token: warning: id 9 is also '<think>'"],
    ),
    (
        "no rope sections",
        lambda file: file.drop("dflash.rope.dimension_sections"),
        ["warn: rope sections: warning: the target has [3, 3, 2, 0], the draft none"],
    ),
    (
        "the target's rope sections",
        lambda file: file.set("dflash.rope.dimension_sections", [3, 3, 2, 0]),
        ["fail: rope sections: is [3, 3, 2, 0]; heads of 16 give [8, 0, 0, 0]"],
    ),
    (
        "a tensor missing",
        lambda file: file.tensors.pop("blk.1.ffn_up.weight"),
        ["fail: tensors: missing: blk.1.ffn_up.weight"],
    ),
    (
        "embedding and head",
        lambda file: (tensor("token_embd.weight")(file), tensor("output.weight")(file)),
        ["warn: own embedding: warning: token_embd.weight, output.weight of 7680 bytes are in the draft"],
    ),
    (
        "a DSpark draft",
        tensor("markov_w1.weight"),
        ["warn: other tensors: warning: 1 beyond a DFlash draft's, as markov_w1.weight: a DSpark draft"],
    ),
    (
        "fp16",
        tensor("blk.0.ffn_up.weight", 64, "F16"),
        ["warn: tensor types: warning: 14 BF16, 10 F32, 1 F16: drafts trained in bf16 overflow in F16"],
    ),
    (
        "a target in the draft's place",
        lambda file: file.set("general.architecture", "qwen35"),
        ["fail: architecture: 'qwen35' is no DFlash draft"],
    ),
]


@pytest.mark.parametrize(("edit", "expected"), [case[1:] for case in SET], ids=[case[0] for case in SET])
def test_one_odd_thing_is_one_row(edit: Edit, expected: list[str], tmp_path: Path) -> None:
    found = shown(findings(tmp_path, edit))
    assert len(found) == len(expected), found
    for line, start in zip(found, expected, strict=True):
        assert line.startswith(start)


ODD: list[Any] = ["text", 0, 2**31, 1.5, [], [7, 7], ["text"], [1.5], True]


@pytest.mark.parametrize("role", ["draft", "target"])
def test_whatever_a_header_holds_there_is_a_table(role: str, tmp_path: Path) -> None:
    draft = read(str(write(tmp_path)), draft_file, all_tensors=True)
    target = read(str(tmp_path / "target"), resolve.best_model, all_tensors=False)
    right = (draft if role == "draft" else target).values
    for key in [*right, "qwen35.nextn_predict_layers", "split.count"]:
        others = {name: value for name, value in right.items() if name != key}
        for values in (others, *({**others, key: odd} for odd in ODD)):
            changed = replace(draft if role == "draft" else target, values=values)
            found = doctor.examine(*((changed, target) if role == "draft" else (draft, changed)))
            assert len(found) >= 25, (key, values.get(key))


def side(pre: str, **adds: bool) -> fit.Side:
    return fit.Side("gpt2", pre, ["a"] * 6, adds, {"bos": 3})


@pytest.mark.parametrize(
    ("ours", "theirs", "ok", "detail"),
    [
        (side("qwen35"), side("qwen35", bos=False), True, "draft False, served target False"),
        (side("qwen2"), side("qwen2", bos=True), False, "draft False, served target True"),
        (side("llama3"), side("llama3"), True, "draft False, served target False"),
        (side("llama3", bos=True), side("llama3", bos=True), True, "both add bos: draft id 3, served target 3"),
        (side("llama3"), side("llama3", bos=True), True, "warning: draft nothing, served target True; what an absent"),
    ],
)
def test_what_an_absent_addition_means(ours: fit.Side, theirs: fit.Side, ok: bool, detail: str) -> None:
    (found,) = (one for one in fit.vocabulary_checks(ours, theirs) if one.name == "tokenizer.ggml.add_bos_token")
    assert found.ok == ok
    assert found.detail.startswith(detail)


def test_a_draft_of_nothing_but_its_architecture(tmp_path: Path) -> None:
    def edit(file: Gguf) -> None:
        file.values = {"general.architecture": "dflash"}
        file.tensors = {}

    failing = [one.name for one in findings(tmp_path, edit) if not one.ok]
    assert {"metadata keys", "block size", "target layers", "tensors", "token count", "mask token"} <= set(failing)


def publish(server: HubServer, folder: Path, *names: str) -> None:
    """Put the sample draft on the Hub under these names, and the sample target."""
    for name in names:
        write(folder, name=name)
    (folder / "draft" / "README.md").write_text("# Draft")
    server.commit_folder("demo-org/draft", folder / "draft", "Add")
    server.commit_folder("demo-org/target", folder / "target", "Add")


def on_hub(pick: str) -> list[Finding]:
    draft = read(f"demo-org/draft{pick}", draft_file, all_tensors=True)
    return doctor.examine(draft, read("demo-org/target", resolve.best_model, all_tensors=False))


NAMES: list[tuple[str, tuple[str, ...], str, str, str]] = [
    ("ordinary", (NAME,), ":Q8_0", "ok", f"-hfd demo-org/draft:Q8_0 --spec-type draft-dflash takes {NAME}"),
    ("no quant", (NAME,), "", "ok", f"-hfd demo-org/draft --spec-type draft-dflash takes {NAME}"),
    ("sidecar", ("dflash-X-Q8_0.gguf",), ":Q8_0", "ok", "-hfd demo-org/draft:Q8_0 takes dflash-X-Q8_0.gguf, a sidecar"),
    ("nearest", ("dflash-X-Q8_0.gguf",), ":Q6_K", "warn", "takes dflash-X-Q8_0.gguf, the nearest to Q6_K"),
    ("renamed", ("Draft_Q8_0_end.gguf",), ":Q8_0", "fail", "takes nothing; Draft_Q8_0_end.gguf was looked at"),
    ("by name", ("Draft_Q8_0.v2.gguf",), ":Draft_Q8_0.v2.gguf", "ok", "demo-org/draft:V2 --spec-type draft-dflash"),
    ("by a name not found", ("mtp-Q8_0.gguf",), ":mtp-Q8_0.gguf", "warn", "takes nothing, not mtp-Q8_0.gguf; give"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("names", "pick", "verdict", "detail"), [case[1:] for case in NAMES], ids=[case[0] for case in NAMES]
)
def test_names_on_the_hub(
    names: tuple[str, ...], pick: str, verdict: str, detail: str, at_hub: HubServer, tmp_path: Path
) -> None:
    publish(at_hub, tmp_path, *names)
    (found,) = (one for one in on_hub(pick) if one.name == "draft file")
    assert found.verdict == verdict
    assert detail in found.detail


def test_what_lies_beside_a_draft_can_lead_astray(at_hub: HubServer, tmp_path: Path) -> None:
    publish(at_hub, tmp_path, NAME, "mtp-X-Q8_0.gguf")
    detail = "warning: without --spec-type draft-dflash llama.cpp takes mtp-X-Q8_0.gguf in the draft's place"
    assert shown(on_hub(":Q8_0")) == [f"warn: draft repository: {detail}"]
    (tmp_path / "draft" / "preset.ini").write_text("")
    publish(at_hub, tmp_path)
    assert shown(on_hub(f":{NAME}"))[1].startswith("fail: draft repository: preset.ini in the root")


def test_a_revision_is_read(at_hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish(at_hub, tmp_path, NAME)
    first = at_hub.repo("demo-org/draft").resolve("main").id
    write(tmp_path, lambda file: file.drop("dflash.block_size"))
    publish_again = at_hub.commit_folder("demo-org/draft", tmp_path / "draft", "Break it").id
    arguments = ["--target", "demo-org/target:Q8_0", "--json", str(tmp_path / "found.json")]
    assert doctor.main(["--draft", f"demo-org/draft@{first}:Q8_0", *arguments]) == 0
    assert doctor.main(["--draft", f"demo-org/draft@{publish_again}:Q8_0", *arguments]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: does not work: block size: missing: llama.cpp takes 16, whatever the draft was")
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["ok"], found["counts"]["fail"], found["draft"]["commit"]) == (False, 1, publish_again)
    assert [check["name"] for check in found["checks"] if not check["ok"]] == ["block size"]


def test_a_split_sidecar_is_refused(tmp_path: Path) -> None:
    for number in (1, 2):
        name = f"dflash-X-Q8_0-{number:05}-of-00002.gguf"
        write(tmp_path, lambda file: file.set("split.count", 2), name=name)
    draft = read(str(tmp_path / "draft" / "dflash-X-Q8_0-00001-of-00002.gguf"), draft_file, all_tensors=True)
    target = read(str(tmp_path / "target"), resolve.best_model, all_tensors=False)
    (found,) = (one for one in doctor.examine(draft, target) if one.name == "draft split")
    assert (found.ok, found.detail) == (False, "a sidecar in 2 files, llama.cpp takes one")


def test_names_are_repositories_or_paths(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").touch()
    assert parse("owner/name") == Place(repo="owner/name")
    assert parse("owner/na.me@refs/pr/1:Q8_0") == Place(repo="owner/na.me", revision="refs/pr/1", pick="Q8_0")
    assert parse("owner/name:sub/a.gguf").file == "sub/a.gguf"
    assert parse(str(tmp_path / "a.gguf")) == Place(path=tmp_path, pick="a.gguf")
    assert parse(f"{tmp_path}:Q8_0") == Place(path=tmp_path, pick="Q8_0")
    assert parse(str(tmp_path)) == Place(path=tmp_path)


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("owner", "a name that is none"),
        ("./none.gguf", "a file that is not there"),
        ("demo-org/draft:Q6_K", "a quant that is not there"),
        ("demo-org/draft:a.gguf", "a file that the repository has not"),
        ("demo-org/empty", "a repository without a GGUF"),
        ("demo-org/cut:Q8_0", "a file that is cut short"),
        ("demo-org/parts:Q8_0", "a part that is missing"),
    ],
)
def test_what_cannot_be_looked_at_is_named(
    name: str, title: str, at_hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], said: Said
) -> None:
    publish(at_hub, tmp_path, NAME)
    content = (tmp_path / "draft" / NAME).read_bytes()
    for repo, file, size in (
        ("empty", "README.md", 100),
        ("cut", NAME, 3000),
        ("parts", "X-Q8_0-00001-of-00002.gguf", len(content)),
    ):
        (tmp_path / repo).mkdir()
        (tmp_path / repo / file).write_bytes(content[:size])
        at_hub.commit_folder(f"demo-org/{repo}", tmp_path / repo, "Add")
    assert doctor.main(["--draft", name, "--target", "demo-org/target"]) == 1
    said(f"Doctor: {title}", capsys.readouterr().err.splitlines()[-1])


def test_a_table_shows_what_a_file_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def edit(file: Gguf) -> None:
        file.change_row("tokenizer.ggml.tokens", 7, "<|a|>\x1b[31m\n| b |")

    draft = read(str(write(tmp_path, edit)), draft_file, all_tensors=True)
    with pytest.raises(BuildError):
        doctor.diagnose(draft, read(str(tmp_path / "target"), resolve.best_model, all_tensors=False))
    out = capsys.readouterr().out
    assert "\x1b" not in out
    (line,) = (line for line in out.splitlines() if "token texts" in line and line.startswith("|"))
    assert line.replace("\\|", "").count("|") == 4
