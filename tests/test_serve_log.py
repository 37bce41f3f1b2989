"""Which lines of a llama-server's log are harmless, and which mean that the draft does not work."""

from pathlib import Path

import pytest

from scripts import serve_log
from scripts.serve_log import Finding, judge
from tests.errors_table import Said

UNMEASURED = (
    "W operator(): failed to measure the memory of the extra model, fitting without it: failed to create context"
)
OLDER = "common_init: failed to measure draft model memory"
MISSING = "gguf_init_from_file: failed to open GGUF file 'draft.gguf' (No such file or directory)"
CLAMPED = "W dflash: requested draft size (n_max=16, n_min=0) exceeds the trained block size 16 -- clamping to 15"
GOOD = "slot print_timing: draft acceptance = 0.91000 (   91 accepted /   100 generated), mean len = 10.10"
BAD = "slot print_timing: draft acceptance = 0.01000 (    1 accepted /   100 generated), mean len =  1.01"


@pytest.mark.parametrize("line", [UNMEASURED, OLDER])
def test_a_draft_that_was_not_measured_is_harmless(line: str) -> None:
    (found,) = judge([line, GOOD, line])
    assert not found.harmful
    assert "not counted" in found.text


@pytest.mark.parametrize("line", [UNMEASURED, OLDER])
def test_the_same_line_of_a_draft_that_is_not_there_is_not(line: str) -> None:
    assert judge([line, MISSING, MISSING]) == [Finding(True, "a model is not there: draft.gguf")]
    assert judge(["E load: failed to load draft model, 'd.gguf'"]) == [Finding(True, "a model is not there: d.gguf")]


def test_low_acceptance_counts_over_all_answers() -> None:
    assert judge([GOOD, BAD]) == []
    (found,) = judge([BAD, BAD])
    assert found.harmful
    assert found.text.startswith("acceptance is 0.010: ")


def test_what_was_clamped_or_switched_off_is_said() -> None:
    lines = [CLAMPED, "W srv load_model: speculative decoding not supported by this context"]
    assert [finding.text for finding in judge(lines)] == [
        "n_max 16 is more than the draft can, 15 is used",
        "the server runs without the draft",
    ]
    assert judge(["I all is well"]) == []


def test_the_front(tmp_path: Path, capsys: pytest.CaptureFixture[str], said: Said) -> None:
    log = tmp_path / "server.log"
    assert serve_log.main([str(log)]) == 1
    assert "cannot read the log: No such file" in capsys.readouterr().err
    log.write_text(f"{UNMEASURED}\n{GOOD}\n")
    assert serve_log.main([str(log)]) == 0
    assert capsys.readouterr().err.startswith("note: the draft was not counted")
    log.write_text(f"{UNMEASURED}\n{MISSING}\n")
    assert serve_log.main([str(log)]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"error: a model is not there: draft.gguf ({log})")
    said("Serving: a log that names a missing model", error)
