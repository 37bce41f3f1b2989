"""The gate: a quant that loses acceptance does not pass."""

from pathlib import Path
from typing import Any

import pytest

from scripts import core, gate
from scripts.core import BuildError
from tests.bench_samples import acceptance
from tests.errors_table import Said

BF16 = acceptance("bf16", {("code-edit", "a"): (1000, 800), ("code-new", "b"): (1000, 430)})


def _files(folder: Path, *reports: dict[str, Any]) -> list[Path]:
    paths = [folder / f"acceptance-{report['quant']}.json" for report in reports]
    for path, report in zip(paths, reports, strict=True):
        core.write_json(path, report)
    return paths


def _run(folder: Path, margin: float, *reports: dict[str, Any]) -> tuple[int, Path]:
    reference, *others = map(str, _files(folder, *reports))
    report = folder / "gate.json"
    arguments = ["--reference", reference, "--quants", *others, "--margin", str(margin), "--report", str(report)]
    return gate.main(arguments), report


def test_a_quant_within_the_margin_passes(tmp_path: Path) -> None:
    q8 = acceptance("Q8_0", {("code-edit", "a"): (1000, 810), ("code-new", "b"): (1000, 380)}, tokens_sha256="c")
    code, report = _run(tmp_path, 0.05, BF16, q8)
    assert code == 0
    figures = core.read_json(report)
    assert figures["ok"] is True
    assert [(row["workload"], row["acceptance"], row["accepted"]) for row in figures["rows"]] == [
        ("code-edit", 0.81, 810),
        ("code-new", 0.38, 380),
    ]
    assert figures["rows"][0]["same_answers"] == 0
    assert figures["acceptance"]["bf16"] == pytest.approx(0.615)


def test_from_043_to_028_fails_and_says_quant_workload_and_both_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], said: Said
) -> None:
    q4 = acceptance("Q4_K_M", {("code-edit", "a"): (1000, 800), ("code-new", "b"): (1000, 280)})
    code, report = _run(tmp_path, 0.05, BF16, q4)
    assert (code, report.exists()) == (1, False)
    (error,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert "Q4_K_M on code-new (chat): acceptance 0.280, bf16 has 0.430, margin 0.05" in error
    said("Measuring: a quant that loses acceptance", error)


def test_what_one_workload_gains_does_not_pay_for_another() -> None:
    q4 = acceptance("Q4_K_M", {("code-edit", "a"): (1000, 1000), ("code-new", "b"): (1000, 370)})
    assert q4["acceptance"] > BF16["acceptance"]
    failed = [check.name for check in gate.compare(BF16, [q4], 0.05).checks if not check.ok]
    assert failed == ["Q4_K_M on code-new (chat)"]


def test_prompts_that_loop_with_either_file_are_left_out() -> None:
    loops = acceptance("Q8_0", {("code-edit", "a"): (1000, 990), ("code-edit", "b"): (1000, 200)})
    loops["answers"][0]["loop"] = "80 times '/'"
    reference = acceptance("bf16", {("code-edit", "a"): (1000, 800), ("code-edit", "b"): (1000, 500)})
    report = gate.compare(reference, [loops], 0.05)
    (row,) = report.figures["rows"]
    assert (row["acceptance"], row["reference_acceptance"], row["loops"]) == (0.2, 0.5, 1)
    assert not report.ok


def test_a_file_below_the_floor_fails_even_without_a_margin(said: Said) -> None:
    broken = acceptance("bf16", {("code-edit", "a"): (1000, 10)})
    report = gate.compare(broken, [acceptance("Q8_0", {("code-edit", "a"): (1000, 10)})], 0.05)
    assert [check.name for check in report.checks if not check.ok] == ["bf16: floor", "Q8_0: floor"]
    with pytest.raises(BuildError, match=r"bf16: floor: acceptance 0\.010 over all, floor 0\.05") as caught:
        report.settle("the gate", "see the draft")
    said("Measuring: a draft that is hardly ever right", caught.value)


def test_a_quant_that_never_drafts_fails() -> None:
    silent = acceptance("Q8_0", {("code-edit", "a"): (0, 0), ("code-new", "b"): (0, 0)})
    failed = [check.name for check in gate.compare(BF16, [silent], 0.05).checks if not check.ok]
    assert failed == ["Q8_0: floor", "Q8_0 on code-edit (chat)", "Q8_0 on code-new (chat)"]


def test_a_pair_of_bf16_alone_is_held_to_the_floor(tmp_path: Path) -> None:
    assert _run(tmp_path, 0.05, BF16)[0] == 0


def test_other_conditions_are_no_comparison(said: Said) -> None:
    other = acceptance("Q8_0", {("code-edit", "a"): (1000, 800), ("code-new", "b"): (1000, 430)})
    other["conditions"]["predict"] = 50
    with pytest.raises(BuildError, match="bf16 and Q8_0 were measured with other predict") as caught:
        gate.compare(BF16, [other], 0.05)
    said("Measuring: acceptance measured under other conditions", caught.value)


def test_other_prompts_are_no_comparison(said: Said) -> None:
    with pytest.raises(BuildError, match="bf16 and Q8_0 were measured on other prompts") as caught:
        gate.compare(BF16, [acceptance("Q8_0", {("code-edit", "a"): (1000, 800)})], 0.05)
    said("Measuring: acceptance measured on other prompts", caught.value)
