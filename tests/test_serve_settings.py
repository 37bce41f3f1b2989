"""What a pair is served with: the config's word before the tuned value before the usual one, and the command of it."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import config
from scripts.core import BuildError
from scripts.serve_command import command, flags, listening
from scripts.serve_settings import Served, chosen_pair, draft_file, present, read_tuned, served, settings
from tests.errors_table import Said

RAW: dict[str, Any] = yaml.safe_load((config.ROOT / "config.yaml").read_text())
KEY = "qwopus3.5-9b-coder"
TUNED = {"for": "code-edit", "n_max": 6, "kv_type": "q8_0", "draft_quant": "Q8_0", "draft_kv_type": "bf16"}


def pair(serve: Mapping[str, Any] | None = None, **changed: Any) -> dict[str, Any]:
    """The project's pair as it is after checking, with keys of its own and only these of serving."""
    raw = copy.deepcopy(RAW)
    raw["pairs"][KEY] |= changed
    raw["pairs"][KEY]["serve"] = dict(serve or {})
    found: dict[str, Any] = config.validated(raw)["pairs"][KEY]
    return found


def test_the_usual_settings() -> None:
    usual = settings(pair(), {}, "config.yaml")
    assert (usual.n_max, usual.draft_quant, usual.kv_type, usual.draft_kv_type) == (15, "Q4_K_M", "f16", "f16")
    assert (usual.context, usual.checkpoints, usual.fit_target, usual.host, usual.port) == (
        *(4096, 2, 256),
        *("127.0.0.1", 8080),
    )
    assert (usual.gpu_layers, usual.threads, usual.parallel, usual.tuned_for) == (None, None, None, None)


@pytest.mark.parametrize(
    ("quants", "chosen"),
    [(["bf16", "Q8_0", "Q4_K_M"], "Q4_K_M"), (["bf16", "Q8_0"], "Q8_0"), (["bf16", "Q6_K"], "bf16")],
)
def test_the_usual_draft_is_the_smallest_proven_one(quants: list[str], chosen: str) -> None:
    assert settings(pair(quants=quants), {}, "config.yaml").draft_quant == chosen


def test_tuned_values_count_before_the_usual_ones() -> None:
    tuned = settings(pair(), TUNED, "config.yaml")
    assert (tuned.n_max, tuned.draft_quant, tuned.kv_type, tuned.draft_kv_type) == (6, "Q8_0", "q8_0", "bf16")
    assert tuned.tuned_for == "code-edit"


def test_what_is_written_in_the_config_counts_before_the_tuned_value_even_where_it_is_the_usual_one() -> None:
    mixed = settings(pair({"kv_type": "f16", "n_max": 15}), TUNED, "config.yaml")
    assert (mixed.n_max, mixed.draft_quant, mixed.kv_type, mixed.draft_kv_type) == (15, "Q8_0", "f16", "bf16")
    assert mixed.tuned_for == "code-edit"
    written = {"kv_type": "f16", "n_max": 15, "draft_quant": "Q4_K_M", "draft_kv_type": "f16"}
    assert settings(pair(written), TUNED, "config.yaml") == settings(pair(), {}, "config.yaml")


def test_more_drafted_tokens_than_the_block_has_are_refused(said: Said) -> None:
    for title, serve, tuned, where in (
        ("in the config", {"n_max": 16}, {}, "config.yaml, serve.n_max"),
        ("as tuned", {}, TUNED | {"n_max": 16}, "results/<pair>/serve.yaml"),
    ):
        with pytest.raises(BuildError) as caught:
            settings(pair(serve), tuned, "config.yaml")
        said(f"Serving: n_max of the block size, {title}", caught.value)
        assert caught.value.what == "n_max is 16: the draft's blocks have 16 tokens, and llama.cpp would clamp it to 15"
        assert (str(caught.value.where), caught.value.do) == (where, "give serve.n_max from 1 to 15")


def test_a_draft_that_the_pair_has_not_is_refused(said: Said) -> None:
    with pytest.raises(BuildError) as caught:
        settings(pair({"draft_quant": "Q5_K_M"}), {}, "config.yaml")
    said("Serving: a quant of the draft that the pair has not", caught.value)
    assert str(caught.value) == (
        "the draft has no quant Q5_K_M (config.yaml, serve.draft_quant): use one of its quants: bf16, Q8_0, Q4_K_M"
    )


def test_tuned_settings_are_read(tmp_path: Path) -> None:
    assert read_tuned(tmp_path / "serve.yaml") == {}
    (tmp_path / "serve.yaml").write_text(yaml.safe_dump(TUNED))
    assert read_tuned(tmp_path / "serve.yaml") == TUNED


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("no YAML", "n_max: [", "cannot read the tuned settings"),
        ("no workload", "n_max: 4", "'for' is a required property"),
        ("another key", "{for: a, context: 9}", "Additional properties are not allowed"),
        ("a number that is none", "{for: a, n_max: 4.0}", "n_max: 4.0 is not of type 'integer'"),
        ("an unknown KV type", "{for: a, kv_type: q9}", "kv_type: 'q9' is not one of"),
    ],
)
def test_tuned_settings_that_tuning_did_not_write(
    name: str, text: str, message: str, tmp_path: Path, said: Said
) -> None:
    (tmp_path / "serve.yaml").write_text(text)
    with pytest.raises(BuildError, match="tune the pair again, or delete the file") as caught:
        read_tuned(tmp_path / "serve.yaml")
    if name != "no YAML":  # that one is worded by the parser
        said(f"Serving: tuned settings with {name}", caught.value)
    assert message in str(caught.value)


def test_the_pair_to_serve(said: Said) -> None:
    assert chosen_pair({"a": 1}, None) == chosen_pair({"a": 1, "b": 2}, "a") == "a"
    for title, pairs, named, what in (
        ("several pairs", {"a": 1, "b": 2}, None, "the config has 2 pairs"),
        ("a pair that is not there", {"a": 1}, "c", "no pair c"),
    ):
        with pytest.raises(BuildError, match=r"snakemake --cores 1 serve --config serve_pair=a") as caught:
            chosen_pair(pairs, named)
        said(f"Serving: {title}", caught.value)
        assert caught.value.what == what


MODES = {
    "Q4": {"quant": "Q4_K_M"},
    "other": {"repo": "demo-org/Other-GGUF", "quant": "Q8_0"},
    "file": {"path": "mine.gguf"},
    "empty": {},
}


def test_targets_on_the_hub(tmp_path: Path) -> None:
    hub = pair({"source": "hub", "modes": MODES})
    repo = RAW["pairs"][KEY]["target_gguf"]["repo"]
    assert served(hub, None, tmp_path, "c") == Served(repo=repo, quant="Q3_K_M")
    assert served(hub, "Q4", tmp_path, "c") == Served(repo=repo, quant="Q4_K_M")
    assert served(hub, "other", tmp_path, "c") == Served(repo="demo-org/Other-GGUF", quant="Q8_0")


def test_targets_on_this_machine(tmp_path: Path) -> None:
    local = pair({"modes": MODES})
    assert served(local, "file", tmp_path, "c") == Served(path=Path("mine.gguf"))
    for folder, names in (("target_gguf", ("A-00002-of-00002", "A-00001-of-00002")), ("target_gguf-Q4", ("B",))):
        (tmp_path / "source" / folder).mkdir(parents=True)
        for name in names:
            (tmp_path / "source" / folder / f"{name}.gguf").touch()
    (tmp_path / "source" / "target_gguf" / "A.json").touch()
    first = tmp_path / "source" / "target_gguf" / "A-00001-of-00002.gguf"
    assert served(local, None, tmp_path, "c") == Served(path=first)
    assert served(local, "Q4", tmp_path, "c") == Served(path=tmp_path / "source" / "target_gguf-Q4" / "B.gguf")
    assert served(pair(target_gguf={"path": "own.gguf"}), None, tmp_path, "c") == Served(path=Path("own.gguf"))


WRONG: list[tuple[str, dict[str, Any], str | None, str]] = [
    ("an unknown mode", pair({"modes": MODES}), "Q5", "there is no mode Q5 .*use one of: Q4, other, file, empty"),
    ("a mode where there is none", pair(), "Q5", "there is no mode Q5 .*name some in serve.modes"),
    ("a mode without a target", pair({"modes": MODES}), "empty", "no target to serve .*serve.modes.empty"),
    (
        "a file where the Hub is asked for",
        pair({"source": "hub", "modes": MODES}),
        "file",
        "serve.source is hub and the target is a file of this machine .*serve.modes.file",
    ),
    ("a target that was not fetched", pair(), None, "the target's Q3_K_M is not on this machine .*fetch it first"),
    ("a mode that was not fetched", pair({"modes": MODES}), "Q4", "Q4_K_M is not on this machine .*fetch it first"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "entry", "mode", "message"), WRONG, ids=[case[0] for case in WRONG])
def test_targets_that_cannot_be_served(
    name: str, entry: dict[str, Any], mode: str | None, message: str, tmp_path: Path, said: Said
) -> None:
    with pytest.raises(BuildError, match=message) as caught:
        served(entry, mode, tmp_path / "results", "config.yaml")
    said(f"Serving: {name}", caught.value)


def test_a_pair_without_a_target_cannot_be_served(tmp_path: Path) -> None:
    bare = pair()
    del bare["target_gguf"]
    with pytest.raises(BuildError, match=r"no target to serve \(config.yaml, target_gguf\)"):
        served(bare, None, tmp_path, "config.yaml")


def test_a_model_is_there_with_all_its_parts(tmp_path: Path, said: Said) -> None:
    whole, first = tmp_path / "whole.gguf", tmp_path / "split-00001-of-00002.gguf"
    whole.touch()
    present(whole, "draft", "build it")
    with pytest.raises(BuildError) as caught:
        present(tmp_path / "none.gguf", "draft", "build it first")
    said("Serving: a draft that was not built", caught.value)
    assert str(caught.value) == f"the draft is not there ({tmp_path}/none.gguf): build it first"
    first.touch()
    with pytest.raises(BuildError, match=r"part 2 of 2 of split\.gguf is missing"):
        present(first, "target", "build it")


BINARY, TARGET, DRAFT = Path("bin/llama-server"), Path("t.gguf"), Path("d.gguf")
COMMON = "--no-mmproj -fa on --jinja -ctxcp 2 -fitt 256 -c 4096 -ctk f16 -ctv f16"


def test_the_command_with_local_files() -> None:
    usual = settings(pair(), {}, "config.yaml")
    assert " ".join(command(usual, TARGET, DRAFT, BINARY)) == (
        "bin/llama-server -m t.gguf -md d.gguf --spec-type draft-dflash --spec-draft-n-max 15 "
        f"{COMMON} -ctkd f16 -ctvd f16"
    )
    assert listening(usual) == ["--host", "127.0.0.1", "--port", "8080"]


def test_the_baseline_has_the_same_flags_without_those_of_the_draft() -> None:
    full = settings(pair({"gpu_layers": 99, "threads": 3, "parallel": 1, "kv_type": "q8_0"}), {}, "config.yaml")
    alone = command(full, TARGET, None, BINARY)
    assert alone == f"bin/llama-server -m t.gguf {COMMON} -ngl 99 -t 3 -np 1".replace("f16", "q8_0").split()
    both = command(full, TARGET, DRAFT, BINARY)
    more = [
        "-md",
        "d.gguf",
        "--spec-type",
        "draft-dflash",
        "--spec-draft-n-max",
        "15",
        "-ctkd",
        "f16",
        "-ctvd",
        "f16",
        "-ngld",
        "99",
    ]
    assert sorted(both) == sorted([*alone, *more])


def test_the_command_with_both_models_on_the_hub() -> None:
    usual = replace(settings(pair(), {}, "config.yaml"), n_max=4)
    assert " ".join(command(usual, "a/T-GGUF:Q3_K_M", "b/D-GGUF:Q4_K_M", BINARY)) == (
        "bin/llama-server -hf a/T-GGUF:Q3_K_M -hfd b/D-GGUF:Q4_K_M --spec-type draft-dflash --spec-draft-n-max 4 "
        f"{COMMON} -ctkd f16 -ctvd f16"
    )
    with pytest.raises(BuildError, match="one model is a file, the other is on the Hub"):
        command(usual, "a/T-GGUF:Q3_K_M", DRAFT, BINARY)


def test_the_flags_of_a_command() -> None:
    assert flags(["-m", "a-b.gguf", "--no-mmproj", "-c", "4096", "--seed", "-1"]) == [
        "-m",
        "--no-mmproj",
        "-c",
        "--seed",
    ]


def test_where_a_pairs_draft_lies() -> None:
    path = draft_file(pair(), "Q8_0", Path("results/x"))
    assert path == Path("results/x/gguf/Qwopus3.5-9B-Coder-DFlash-Q8_0.gguf")
