"""Figures of made-up measurements, checked by hand; tables and plots of them."""

import json
from pathlib import Path

import pytest

from scripts import bench, bench_plot, bench_run, bench_summary, core
from scripts.bench_run import BASELINE, DFLASH
from scripts.core import BuildError
from tests.bench_samples import answer, measured, request
from tests.errors_table import Said

TOKENS = list(range(101))


def test_medians_spread_and_ratio_over_repeats() -> None:
    times = {BASELINE: (1000, 2000, 500), DFLASH: (500, 250, 1000)}
    answers = {
        (side, "a", repeat + 1): answer(TOKENS, ms, *((100, 80) if side == DFLASH else ()))
        for side, all_ms in times.items()
        for repeat, ms in enumerate(all_ms)
    }
    (row,) = bench_summary.rows(measured(answers))
    # 100 tokens after the first, as the server counts.
    assert row["baseline_tokens_per_second"] == {"median": 100, "min": 50, "max": 200}
    assert row["dflash_tokens_per_second"] == {"median": 200, "min": 100, "max": 400}
    assert row["ratio"] == {"median": 2, "min": 0.5, "max": 8}
    assert row["baseline_first_token_s"] == {"median": 0.1, "min": 0.1, "max": 0.1}


def test_prompts_of_a_repeat_are_added_up_not_averaged() -> None:
    slow, fast = answer(list(range(11)), 1000), answer(TOKENS, 1000)
    assert bench_summary.speed([slow, fast]) == pytest.approx(110 / 2)
    assert bench_summary.speed([answer([1], 0.001)]) is None


def test_acceptance_and_tokens_per_pass() -> None:
    # As llama-server counted an answer of the embedded pair: 11 passes of 15 drafted tokens after the prompt's.
    drafted = bench_summary.Drafted.of([answer(list(range(164)), 1000, 165, 152)])
    assert drafted.acceptance == pytest.approx(152 / 165)
    assert drafted.per_pass == pytest.approx(164 / 12)
    assert drafted.accepted_per_verify == pytest.approx(152 / 11)
    nothing = bench_summary.Drafted.of([answer([1, 2, 3])])
    assert (nothing.acceptance, nothing.per_pass) == (None, 1)


def test_outputs_that_part_are_reported_with_position_ids_and_texts() -> None:
    other = [*TOKENS[:57], 500, *TOKENS[58:]]
    assert bench_summary.first_difference(answer(TOKENS), answer(TOKENS)) is None
    found = bench_summary.first_difference(answer(TOKENS), answer(other))
    assert found == {
        "position": 57,
        "baseline": {"id": 57, "text": "t57 "},
        "dflash": {"id": 500, "text": "t500 "},
    }
    shorter = bench_summary.first_difference(answer(TOKENS), answer(TOKENS[:40]))
    assert shorter is not None
    assert (shorter["position"], shorter["dflash"]) == (40, {"id": None, "text": "end of the answer (eos)"})


def test_a_difference_is_counted_and_warned_of_but_no_failure() -> None:
    answers = {
        (BASELINE, "a", 1): answer(TOKENS),
        (BASELINE, "b", 1): answer(TOKENS),
        (DFLASH, "a", 1): answer(TOKENS, 500, 100, 80),
        (DFLASH, "b", 1): answer([*TOKENS[:57], 500], 500, 100, 80),
    }
    (row,) = bench_summary.rows(measured(answers))
    assert (row["identical"], row["prompts"], row["prompts_measured"]) == (1, 2, 2)
    assert row["differences"][0]["prompt"] == "b"
    assert "1 of 2 outputs differ, b from token 57 on" in bench_summary.warnings([row], {})[0]


def test_answers_that_change_between_repeats_are_counted() -> None:
    answers = {(side, "a", repeat): answer(TOKENS, 500, 10, 5) for side in (BASELINE, DFLASH) for repeat in (1, 2)}
    answers[BASELINE, "a", 2] = answer(TOKENS[:50])
    (row,) = bench_summary.rows(measured(answers))
    assert row["changing_between_repeats"] == {BASELINE: 1, DFLASH: 0}
    assert row["identical"] == 0


def test_a_loop_with_high_acceptance_is_counted_and_kept_out() -> None:
    looping = answer([1, 2, 3] * 40, 100, 120, 118)
    answers = {
        (BASELINE, "good", 1): answer(TOKENS, 1000),
        (BASELINE, "loops", 1): answer([1, 2, 3] * 40, 1000),
        (DFLASH, "good", 1): answer(TOKENS, 1000, 100, 30),
        (DFLASH, "loops", 1): looping,
    }
    (row,) = bench_summary.rows(measured(answers))
    assert row["acceptance"] == pytest.approx(0.3)
    assert row["ratio"]["median"] == pytest.approx(1)
    assert (row["loops"], row["prompts_measured"]) == ({BASELINE: 1, DFLASH: 1}, 1)
    assert "12-token runs" in row["loop_reasons"]["loops"]
    assert any("2 answers loop" in warning for warning in bench_summary.warnings([row], {}))


def test_nothing_but_loops_fails(said: Said) -> None:
    loops = {(side, "a", 1): answer([5] * 40, 100, 40, 39) for side in (BASELINE, DFLASH)}
    with pytest.raises(BuildError, match="every one of 2 answers is a loop") as caught:
        bench_summary.rows(measured(loops))
    said("Measuring: a model that only repeats itself", caught.value)


def test_low_acceptance_is_warned_of() -> None:
    answers = {(BASELINE, "a", 1): answer(TOKENS), (DFLASH, "a", 1): answer(TOKENS, 1000, 1000, 10)}
    (row,) = bench_summary.rows(measured(answers))
    (warning,) = bench_summary.warnings([row], {"chat-thinking": "no switch"})[1:]
    assert "code-edit (chat): acceptance 0.010 is below 0.05" in warning


def test_a_draft_that_never_engaged_fails(said: Said) -> None:
    for answers in ([answer(TOKENS)], [answer(TOKENS, 1000, 0, 0)]):
        with pytest.raises(BuildError, match="the draft never engaged") as caught:
            bench_run.check_engaged(DFLASH, answers, "http://127.0.0.1:8081")
    said("Measuring: a draft that never engaged", caught.value)
    bench_run.check_engaged(DFLASH, [answer(TOKENS), answer(TOKENS, 1000, 15, 0)], "url")


def test_a_baseline_that_drafts_fails(said: Said) -> None:
    with pytest.raises(BuildError, match="the baseline drafts: 15 tokens") as caught:
        bench_run.check_engaged(BASELINE, [answer(TOKENS, 1000, 15, 3)], "http://127.0.0.1:8081")
    said("Measuring: a baseline that drafts", caught.value)


def test_two_targets_fail(said: Said) -> None:
    found = measured({}).props
    found[DFLASH]["model_path"] = "C:\\models\\Other.gguf"
    with pytest.raises(BuildError, match=r"different targets: Other\.gguf and Target-Q8_0\.gguf") as caught:
        bench_run.check_same_target(found, "http://127.0.0.1:8081")
    said("Measuring: two servers with different targets", caught.value)


def test_a_prompt_that_does_not_fit_fails(said: Said) -> None:
    with pytest.raises(BuildError, match="prompt a of 5 tokens and 4092 of an answer exceed 4096") as caught:
        bench_run.check_fits([request("a")], 4092, measured({}).props[DFLASH], "http://127.0.0.1:8081")
    said("Measuring: a prompt and answer longer than the context", caught.value)
    bench_run.check_fits([request("a")], 4091, measured({}).props[DFLASH], "url")


def test_the_order_alternates() -> None:
    assert bench_run.order(["B", "D"], 3) == [("B", 1), ("D", 1), ("D", 2), ("B", 2), ("B", 3), ("D", 3)]


def _sample() -> bench_run.Measured:
    answers = {}
    for repeat, ms in ((1, 1000.0), (2, 1200.0)):
        answers[BASELINE, "a", repeat] = answer(TOKENS, ms)
        answers[DFLASH, "a", repeat] = answer(TOKENS, ms / 3, 100, 80)
    found = measured(answers)
    loops = measured({(side, "b", 1): answer([5] * 40, 100, 40, 39) for side in (BASELINE, DFLASH)}, "raw")
    found.runs += loops.runs
    return found


def test_summary_raw_answers_table_and_plots_are_written(tmp_path: Path) -> None:
    settings = {"predict": 128, "repeats": 2, "formats": ["chat", "raw"]}
    report = bench.report_of(_sample(), settings, {"machine": None})
    assert report.ok
    bench.write(_sample(), report, "Title", 128, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"raw.jsonl", "table.md", "bench.png", "bench.svg"}
    lines = (tmp_path / "raw.jsonl").read_text().splitlines()
    assert len(lines) == 6
    first = json.loads(lines[0])
    assert first["request"]["n_predict"] == 128
    assert first["request"]["cache_prompt"] is False
    assert len(first["pieces"]) == first["predicted_n"] == 101
    table = (tmp_path / "table.md").read_text()
    assert "91.7 (83.3 to 100.0)" in table
    assert "| -" in table  # the row of loops has no figure
    report.write(tmp_path / "bench.json")
    assert core.read_json(tmp_path / "bench.json")["rows"][0]["acceptance"] == 0.8


def test_plots_have_the_same_bytes_every_time(tmp_path: Path) -> None:
    rows = bench_summary.rows(_sample())
    for name in ("one", "two"):
        bench_plot.save(bench_plot.draw(rows, "Title"), tmp_path / name)
    for kind in ("png", "svg"):
        one, two = ((tmp_path / f"{name}.{kind}").read_bytes() for name in ("one", "two"))
        assert one == two
        assert b"Date" not in one and b"<dc:date>" not in one
    bench_plot.save(bench_plot.draw(rows, "Another"), tmp_path / "two")
    assert (tmp_path / "one.svg").read_bytes() != (tmp_path / "two.svg").read_bytes()
