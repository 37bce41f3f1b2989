"""Workload files: what is in the project's, and what is said about bad ones."""

from pathlib import Path

import pytest
import yaml

from demo.pair import corpus
from demo.pair import workloads as demo_workloads
from scripts import config, workloads
from scripts.core import BuildError
from tests.errors_table import Said

GENERIC = config.schema()["properties"]["bench"]["properties"]["workloads"]["default"]


def test_the_default_workloads_are_there_with_several_prompts_each() -> None:
    loaded = workloads.load_all(GENERIC)
    assert [one.name for one in loaded] == ["code-edit", "code-new", "prose"]
    assert all(len(one.prompts) >= 4 for one in loaded)
    assert any(prompt.system for one in loaded for prompt in one.prompts)


def test_a_workload_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert workloads.load(workloads.find(GENERIC[0])).name == "code-edit"
    own = tmp_path / GENERIC[0]
    own.parent.mkdir(parents=True)
    own.write_text("name: mine\ndescription: d\nprompts: [{id: a, user: b}]")
    assert workloads.load(workloads.find(GENERIC[0])).name == "mine"


def test_the_embedded_pairs_workloads_are_made_from_the_corpus() -> None:
    for name, text in demo_workloads.made().items():
        assert (demo_workloads.FOLDER / name).read_text() == text, "run `python -m demo.pair.workloads`"
    assert {path.name for path in demo_workloads.FOLDER.iterdir()} == set(demo_workloads.made())


def test_the_embedded_pairs_prompts_are_the_corpus_to_the_letter() -> None:
    samples = {sample.user: sample for sample in corpus.training_samples() + corpus.unseen_samples()}
    for name in demo_workloads.made():
        loaded = workloads.load(demo_workloads.FOLDER / name)
        for prompt in loaded.prompts:
            assert prompt.raw == samples[prompt.user].prompt
            assert samples[prompt.user].seen is (loaded.name != "unseen")


def test_a_prompt_as_messages_and_as_text() -> None:
    prompt = workloads.Prompt("a", "question", system="rules")
    assert [message["role"] for message in prompt.messages] == ["system", "user"]
    assert (prompt.text, workloads.Prompt("a", "question", raw="start").text) == ("question", "start")


def _workload(**changes: object) -> dict[str, object]:
    return {"name": "w", "description": "d", "prompts": [{"id": "a", "user": "u"}]} | changes


BAD = [
    ("an unknown key", _workload(title="t"), "the file: .*'title' was unexpected"),
    ("a misspelt key of a prompt", _workload(prompts=[{"id": "a", "user": "u", "sytem": "s"}]), "'sytem' was unexpe"),
    ("no prompts", _workload(prompts=[]), "prompts: .* should be non-empty"),
    ("an empty prompt", _workload(prompts=[{"id": "a", "user": " "}]), r"prompts\[0\]\.user: ' ' does not match"),
    ("a prompt without an id", _workload(prompts=[{"user": "u"}]), r"prompts\[0\]: 'id' is a required property"),
    ("one id twice", _workload(prompts=[{"id": "a", "user": "u"}] * 2), "two prompts have the id a"),
    ("a list", [], "the file: .* is not of type 'object'"),
]


@pytest.mark.parametrize(("given", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_a_bad_workload_is_one_line(given: object, message: str, tmp_path: Path, said: Said) -> None:
    path = tmp_path / "workload.yaml"
    path.write_text(yaml.safe_dump(given))
    with pytest.raises(BuildError, match=message) as caught:
        workloads.load(path)
    said("Measuring: a workload with {id}", caught.value)


def test_a_workload_that_is_missing_or_not_yaml(tmp_path: Path, said: Said) -> None:
    with pytest.raises(BuildError, match="cannot read the workload: No such file") as caught:
        workloads.load(tmp_path / "none.yaml")
    said("Measuring: a workload that is not there", caught.value)
    (tmp_path / "bad.yaml").write_text("prompts: [")
    with pytest.raises(BuildError, match="not valid YAML") as caught:
        workloads.load(tmp_path / "bad.yaml")
    said("Measuring: a workload that is not YAML", caught.value)


def test_two_workloads_with_one_name(tmp_path: Path, said: Said) -> None:
    for name in ("one.yaml", "two.yaml"):
        (tmp_path / name).write_text(yaml.safe_dump(_workload()))
    with pytest.raises(BuildError, match="two workloads have the name w") as caught:
        workloads.load_all([tmp_path / "one.yaml", tmp_path / "two.yaml"])
    said("Measuring: two workloads with one name", caught.value)


def test_the_front_says_what_is_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert workloads.main([str(workloads.find(GENERIC[2]))]) == 0
    assert "prose: 4 prompts: explain-tides" in capsys.readouterr().err
