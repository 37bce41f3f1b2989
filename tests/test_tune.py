"""The search for the best settings: what it tries, drops and recommends, by speeds that are made up."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

from scripts import tune, tune_search
from scripts.bench_run import BASELINE, DFLASH, Measured, Request, Run
from scripts.core import BuildError
from scripts.llama_server import Answer
from scripts.tune_search import Search, Setting
from scripts.workloads import Prompt, Workload
from tests.errors_table import Said
from tests.video_samples import SETTINGS

LOADS = [Workload(name, "made up", tuple(Prompt(f"p{n}", "text") for n in range(4))) for name in ("edit", "new")]
START = Setting(15, "Q4_K_M", "f16", "f16")
VALUES = [1, 2, 3, 4, 6, 8, 12, 15]
Speed = Callable[[Setting, str], float]


def peak(at: int, drop: float = 0.1) -> Callable[[int], float]:
    return lambda n_max: 100 * (1 - drop * abs(n_max - at) / at)


EDIT, NEW = peak(15), peak(4, 0.3)


def speeds(setting: Setting, workload: str) -> float:
    """Long drafts win on edits, short ones on new code; Q8_0 and a q8_0 cache are a little slower."""
    if setting.n_max is None:
        return 50.0
    rate = (EDIT if workload == "edit" else NEW)(setting.n_max)
    return rate * (0.97 if setting.draft_quant == "Q8_0" else 1) * (0.9 if setting.kv_type == "q8_0" else 1)


class Machine:
    """Answers as a server of the given speeds would, and remembers what was asked."""

    def __init__(self, speed: Speed = speeds, seconds: float = 0.0, text: Callable[[int], str] = str) -> None:
        self.speed, self.seconds, self.text = speed, seconds, text
        self.asked: list[tuple[Setting, int]] = []

    def __call__(self, setting: Setting, loads: Sequence[Workload]) -> Measured:
        time.sleep(self.seconds)
        self.asked.append((setting, len(loads[0].prompts)))
        side = BASELINE if setting.n_max is None else DFLASH
        runs = [
            Run(side, 1, Request(load.name, prompt.id, "raw", "raw", "text", 1), self.answer(setting, load.name))
            for load in loads
            for prompt in load.prompts
        ]
        return Measured(runs=runs)

    def answer(self, setting: Setting, workload: str) -> Answer:
        rate = self.speed(setting, workload)
        drafted = None if setting.n_max is None else 100
        text = "".join(self.text(n) for n in range(101))
        return Answer(text, list(range(101)), "limit", 1, 1.0, 101, 100_000 / rate, drafted, drafted and 80, 0.1)


def found(machine: Machine, budget: float = 100, values: Sequence[int] = VALUES) -> Search:
    return tune_search.search(
        machine,
        LOADS,
        START,
        n_max=values,
        draft_quants=["Q4_K_M", "Q8_0"],
        kv_types=["f16", "q8_0"],
        draft_kv_types=["f16"],
        budget=budget,
    )


def test_each_workload_has_its_own_best() -> None:
    result = found(Machine())
    assert result.best("edit").setting == START
    assert result.best("new").setting.n_max == 4
    assert tune.recommend(result, "new") == {
        "for": "new",
        "n_max": 4,
        "draft_quant": "Q4_K_M",
        "kv_type": "f16",
        "draft_kv_type": "f16",
    }
    assert not result.untried


def test_losers_are_dropped_early() -> None:
    machine = Machine(lambda setting, load: 100.0 if setting.n_max in (8, 15) else 50.0)
    found(machine)
    first = {setting.n_max for setting, prompts in machine.asked if prompts == tune_search.FIRST}
    again = {setting.n_max for setting, prompts in machine.asked if prompts == tune_search.AGAIN}
    assert first == {*VALUES, None}
    assert again == {8, 15, None}


def test_nothing_is_measured_twice() -> None:
    machine = Machine()
    found(machine)
    assert len(machine.asked) == len(set(machine.asked))


def test_each_kv_type_is_compared_with_its_own_baseline() -> None:
    result = found(Machine())
    quantized = next(one for one in result.trials if one.setting.kv_type == "q8_0" and one.setting.n_max == 15)
    assert tune_search.compared(result.trials, quantized)["baseline"] == pytest.approx(50)
    alone = [one for one in result.trials if one.setting.n_max is None]
    assert {one.setting.kv_type for one in alone} == {"f16", "q8_0"}


def test_the_budget_holds_and_what_it_left_out_is_said() -> None:
    machine = Machine(seconds=0.05)
    started = time.monotonic()
    result = found(machine, budget=0.25)
    assert time.monotonic() - started < 0.5
    assert result.untried
    assert {setting.n_max for setting, _ in machine.asked} >= {None, 15}
    assert any("the budget left" in warning for warning in tune.warnings(result))


def test_a_machine_on_which_no_draft_pays_is_said_so() -> None:
    result = found(Machine(lambda setting, load: 50.0 if setting.n_max is None else 25.0))
    assert "edit: the target alone is faster than with any draft setting (0.50x at best)" in tune.warnings(result)


def test_answers_that_are_all_loops_have_no_best(said: Said) -> None:
    with pytest.raises(BuildError, match="no setting could be timed on workload edit") as caught:
        found(Machine(text=lambda _: "/"))
    said("Tune: every answer is a loop", caught.value)


def test_what_is_written(tmp_path: Path) -> None:
    result = found(Machine())
    report = tune.write(result, "edit", tmp_path / "tune", tmp_path / "serve.yaml")
    assert yaml.safe_load((tmp_path / "serve.yaml").read_text()) == report.figures["recommended"]
    assert {path.name for path in (tmp_path / "tune").iterdir()} == {"trials.jsonl", "tune.png", "tune.svg"}
    pictures = [(tmp_path / "tune" / f"tune.{kind}").read_bytes() for kind in ("png", "svg")]
    tune.write(result, "edit", tmp_path / "again", tmp_path / "serve.yaml")
    assert [(tmp_path / "again" / f"tune.{kind}").read_bytes() for kind in ("png", "svg")] == pictures
    assert list(tune.table(result)["n-max"]) == [15, 4]
    assert report.figures["best"]["edit"]["acceptance"] == pytest.approx(0.8)


def test_a_block_that_is_shorter_than_every_n_max(tmp_path: Path, said: Said) -> None:
    bench = {"workloads": ["workflow/workloads/prose.yaml"], "formats": ["chat"], "predict": 8}
    tuning = {"n_max": [8, 15], "kv_types": ["f16"], "draft_kv_types": ["f16"], "budget": 10}
    with pytest.raises(BuildError, match=r"no n_max in \[8, 15\] is below the block size 8") as caught:
        tune.tune(tmp_path, tmp_path, {}, settings=SETTINGS, block_size=8, bench=bench, tuning=tuning)
    said("Tune: every n-max exceeds the block", caught.value)
