"""Of a GGUF on the Hub only the first bytes are read, at the locked commit, whatever the Hub does."""

from pathlib import Path

import pytest

from demo.hub import FaultRule, HubServer
from scripts import gguf_remote, hub, target
from scripts.core import BuildError
from scripts.verify_gguf import open_gguf
from tests.served_samples import REPO, large, locked, rows, served, write_split


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "PAUSE", 0.01)


def test_only_the_first_bytes_of_a_large_file_are_read(at_hub: HubServer, tmp_path: Path) -> None:
    path = served(tmp_path / "repo", large)
    found = target.from_hub(locked(at_hub, tmp_path / "repo"), "Q8_0")
    asked = at_hub.log.entries(REPO, suffix=".gguf", cdn=True)
    mib = 1 << 20
    ranges = [(0, mib), (mib, 3 * mib), (3 * mib, 7 * mib)]
    assert [entry.range for entry in asked] == [f"bytes={begin}-{end - 1}" for begin, end in ranges]
    assert at_hub.log.bytes_for(REPO, ".gguf") == found.figures["bytes_read"] == 7 * mib
    assert path.stat().st_size == found.figures["file_bytes"] > 24_000_000
    assert found.values == open_gguf(path).values


def test_the_locked_commit_is_read_whatever_the_branch_does(at_hub: HubServer, tmp_path: Path) -> None:
    served(tmp_path / "repo")
    entry = locked(at_hub, tmp_path / "repo")
    (tmp_path / "repo" / "Served-Q8_0.gguf").unlink()
    served(tmp_path / "repo", rows(6))
    at_hub.commit_folder(REPO, tmp_path / "repo", "Change a token")
    assert target.from_hub(entry, "Q8_0").values["tokenizer.ggml.tokens"][6] == "\u0120a"


@pytest.mark.parametrize("holder", [1, 2])
def test_further_files_of_a_split_model_are_read_only_as_needed(holder: int, at_hub: HubServer, tmp_path: Path) -> None:
    first = write_split(tmp_path / "repo", 3, holder)
    found = target.from_hub(locked(at_hub, first.parent), "q8_0")
    assert found.embedding is not None
    assert (found.embedding.shape, found.figures["requests"], found.files) == ((30, 32), holder, 3)
    assert found.values["tokenizer.ggml.pre"] == "qwen35"
    asked = {entry.file for entry in at_hub.log.entries(REPO, suffix=".gguf")}
    assert asked == {f"Served-Q8_0-{number:05}-of-00003.gguf" for number in range(1, holder + 1)}


FILES = [
    "README.md",
    "UD/Model-UD-IQ2_M.gguf",
    "mmproj-Model-F16.gguf",
    "Model-mtp-Q2_K.gguf",
    "dflash-Model-Q3_K_M.gguf",
    "Model-Q4_K_M.gguf",
    "Model-Q6_K-00001-of-00002.gguf",
    "Model-Q6_K-00002-of-00002.gguf",
    "Model.Q8_0.gguf",
    "Model-DFlash-BF16.gguf",
]


@pytest.mark.parametrize(
    ("quant", "expected"),
    [
        ("Q4_K_M", ["Model-Q4_K_M.gguf"]),
        ("q8_0", ["Model.Q8_0.gguf"]),
        ("Q6_K", ["Model-Q6_K-00001-of-00002.gguf", "Model-Q6_K-00002-of-00002.gguf"]),
        ("IQ2_M", ["UD/Model-UD-IQ2_M.gguf"]),
        ("F16", ["Model-DFlash-BF16.gguf"]),
    ],
)
def test_the_file_is_the_one_that_llama_cpp_takes(quant: str, expected: list[str]) -> None:
    assert gguf_remote.choose(FILES, quant, "here") == expected


@pytest.mark.parametrize("quant", ["Q3_K_M", "Q4_K", "Q2_K", "Q8.0"])
def test_a_quant_that_is_not_there_names_those_that_are(quant: str) -> None:
    with pytest.raises(BuildError) as caught:
        gguf_remote.choose(FILES, quant, "here")
    known = "IQ2_M, Q4_K_M, Q6_K, Q8_0, BF16"
    assert str(caught.value) == f"target_gguf has no quant {quant} (here): use one of: {known}"


@pytest.mark.parametrize("files", [["README.md"], ["mmproj-F16.gguf", "imatrix.gguf"], ["M-Q8_0-00002-of-00002.gguf"]])
def test_a_repository_without_a_model(files: list[str]) -> None:
    with pytest.raises(BuildError, match=r"no GGUF of a model in the repository of target_gguf \(here\)"):
        gguf_remote.choose(files, "Q8_0", "here")


def test_a_missing_part_is_named() -> None:
    with pytest.raises(BuildError, match=r"part 2 of 3 of M-Q8_0\.gguf is missing"):
        gguf_remote.choose(["M-Q8_0-00001-of-00003.gguf", "M-Q8_0-00003-of-00003.gguf"], "Q8_0", "here")


@pytest.mark.parametrize(
    ("length", "message"),
    [(500, r"cut short"), (-40, r"cut short: \d+ B of tensor data are missing"), (3, "not a GGUF file")],
    ids=["header", "data", "nothing"],
)
def test_a_cut_file_is_named(length: int, message: str, at_hub: HubServer, tmp_path: Path) -> None:
    path = served(tmp_path / "repo")
    path.write_bytes(path.read_bytes()[:length])
    entry = locked(at_hub, tmp_path / "repo")
    where = f"{at_hub.endpoint}/{REPO}/blob/{entry['commit']}/{path.name}"
    with pytest.raises(BuildError, match=message) as caught:
        target.from_hub(entry, "Q8_0")
    assert str(caught.value).endswith(f"({where}): {gguf_remote.OTHER_FILE}")
    with pytest.raises(BuildError, match=rf"{message}.*: name a whole GGUF of the target in target_gguf\.path"):
        target.from_path(path)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            FaultRule("/cdn/", "body", body="GGUF" * 2_000_000),
            r"the Hub answers 200 and the whole file where bytes 0-\d+ of \d+ of Served-Q8_0\.gguf were asked for",
        ),
        (FaultRule("/cdn/", "short", times=9, after=500), r"Served-Q8_0\.gguf at .* short \(500 of \d+ bytes\)"),
        (FaultRule("/cdn/", "status", times=9, status=503), r"the Hub answered 503 for file Served-Q8_0\.gguf"),
        (FaultRule("/resolve/", "status", times=9, status=403), r"the Hub answered 403 for file Served-Q8_0\.gguf"),
        (FaultRule("/cdn/", "cut", times=9, after=500), r"the Hub cannot be reached for file Served-Q8_0\.gguf"),
    ],
    ids=["range ignored", "short", "overloaded", "forbidden", "cut"],
)  # fmt: skip
def test_a_lasting_fault_is_one_line_and_few_bytes(
    rule: FaultRule, message: str, at_hub: HubServer, tmp_path: Path
) -> None:
    served(tmp_path / "repo")
    entry = locked(at_hub, tmp_path / "repo")
    at_hub.break_with(rule)
    source = gguf_remote.HubGgufs(REPO, entry["commit"])
    (file,) = (file for file in entry["files"] if file["path"].endswith(".gguf"))
    with pytest.raises(BuildError, match=message) as caught:
        source.header(file)
    assert "\n" not in str(caught.value)
    assert source.bytes_read <= 4 * 500


@pytest.mark.parametrize(
    "rule",
    [
        FaultRule("/cdn/", "reset", after=500),
        FaultRule("/cdn/", "short", after=500),
        FaultRule("/cdn/", "status", status=503),
        FaultRule("/cdn/", "status", status=429, retry_after=1),
    ],
    ids=lambda rule: f"{rule.kind}-{rule.status}",
)
def test_a_passing_fault_is_overcome(rule: FaultRule, at_hub: HubServer, tmp_path: Path) -> None:
    path = served(tmp_path / "repo")
    entry = locked(at_hub, tmp_path / "repo")
    at_hub.break_with(rule)
    found = target.from_hub(entry, "Q8_0")
    assert found.values == open_gguf(path).values
    assert found.figures["requests"] == 2


def test_a_file_that_is_not_what_was_locked(at_hub: HubServer, tmp_path: Path) -> None:
    path = served(tmp_path / "repo")
    entry = locked(at_hub, tmp_path / "repo")
    size = path.stat().st_size
    entry["files"] = [{**file, "size": file["size"] + 1} for file in entry["files"]]
    with pytest.raises(BuildError, match=rf"answers with bytes 0-{size - 1}/{size} where bytes 0-{size} of {size + 1}"):
        target.from_hub(entry, "Q8_0")


def test_a_header_without_end_is_not_read_to_the_end(
    at_hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served(tmp_path / "repo", large)
    entry = locked(at_hub, tmp_path / "repo")
    monkeypatch.setattr(gguf_remote, "MOST", 2_000_000)
    with pytest.raises(BuildError, match=r"the GGUF's metadata runs over 2\.0 MB"):
        target.from_hub(entry, "Q8_0")
    assert at_hub.log.bytes_for(REPO, ".gguf") <= 3 << 20
