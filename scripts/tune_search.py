"""Find the settings under which a draft decodes fastest on this machine, within a time budget.

First every n-max is tried on one prompt of each workload, then those close to the best on more prompts; after that the
other quants of the draft and the other KV cache types are tried with the n-max that won. A setting that is far from the
best of every workload is dropped early. What the budget did not allow is listed, never guessed.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from scripts import core
from scripts.bench_run import BASELINE, DFLASH, Measured
from scripts.bench_summary import Drafted, speed
from scripts.core import BuildError
from scripts.workloads import Workload

NEAR = 0.85
"""Share of the best speed of a workload that a setting has to reach to be measured again."""

FIRST, AGAIN = 1, 3
"""Prompts of a workload in the first round and in the second."""


@dataclass(frozen=True)
class Setting:
    """What is tried. ``n_max`` is in tokens a pass; None stands for the target alone."""

    n_max: int | None
    draft_quant: str
    kv_type: str
    draft_kv_type: str

    def __str__(self) -> str:
        """The setting in the words of the config."""
        if self.n_max is None:
            return f"no draft, KV {self.kv_type}"
        return f"n-max {self.n_max}, draft {self.draft_quant}, KV {self.kv_type}, draft KV {self.draft_kv_type}"

    @property
    def alone(self) -> Setting:
        """The target alone with the same KV cache: what this setting is compared with."""
        return dataclasses.replace(self, n_max=None)


@dataclass(frozen=True)
class Trial:
    """One setting on one workload: decoded tokens per second, accepted over drafted, tokens a pass.

    The figures are None where every answer was a loop or too short.
    """

    setting: Setting
    workload: str
    prompts: int
    speed: float | None
    acceptance: float | None
    tokens_per_pass: float | None
    loops: int


Measure = Callable[[Setting, Sequence[Workload]], Measured]
"""Starts a server with a setting (without a draft where n_max is None) and answers all prompts of the workloads."""


@dataclass
class Search:
    """The trials so far, and the time left."""

    measure: Measure
    workloads: Sequence[Workload]
    deadline: float
    """As of ``time.monotonic()``."""
    trials: list[Trial] = field(default_factory=list)
    untried: list[str] = field(default_factory=list)
    longest: dict[int, float] = field(default_factory=dict)
    """Seconds of the longest trial so far, by prompts a workload."""

    def attempt(self, setting: Setting, prompts: int, *, needed: bool = False) -> bool:
        """Measure a setting on the first ``prompts`` of every workload, if the time allows it or it is ``needed``."""
        if any(trial.setting == setting and trial.prompts >= prompts for trial in self.trials):
            return True
        if not needed and time.monotonic() + self._expected(prompts) > self.deadline:
            self.untried.append(f"{setting}, {prompts} prompts")
            return False
        started = time.monotonic()
        short = [dataclasses.replace(load, prompts=load.prompts[:prompts]) for load in self.workloads]
        measured = self.measure(setting, short)
        took = time.monotonic() - started
        self.longest[prompts] = max(took, self.longest.get(prompts, 0.0))
        for load in short:
            self.trials.append(trial(setting, load.name, prompts, measured))
        core.say(f"{setting}: {', '.join(_said(one) for one in self.trials[-len(short) :])}")
        return True

    def _expected(self, prompts: int) -> float:
        """Seconds that a trial is going to take: as the longest of its kind, or in proportion to another kind."""
        if prompts in self.longest:
            return self.longest[prompts]
        return max((took * prompts / count for count, took in self.longest.items()), default=0.0)

    def best(self, workload: str) -> Trial:
        """The fastest trial of a workload with a draft; of two trials of a setting the one on more prompts counts.

        Raises:
            BuildError: there is none with a speed.
        """
        found = [one for one in latest(self.trials) if one.workload == workload and one.setting.n_max is not None]
        timed = [one for one in found if one.speed is not None]
        if not timed:
            what = f"no setting could be timed on workload {workload}: every answer loops or is too short"
            raise BuildError(what, "tune", "raise bench.predict or take other workloads")
        return max(timed, key=lambda one: one.speed or 0.0)

    def near(self) -> list[Setting]:
        """The settings that are close to the best on at least one workload, the fastest first."""
        kept: dict[Setting, float] = {}
        for load in self.workloads:
            top = self.best(load.name).speed or 0.0
            for one in latest(self.trials):
                share = (one.speed or 0.0) / top
                if one.workload == load.name and one.setting.n_max is not None and share >= NEAR:
                    kept[one.setting] = max(share, kept.get(one.setting, 0.0))
        return sorted(kept, key=lambda setting: -kept[setting])


def _said(one: Trial) -> str:
    rate = "not timed" if one.speed is None else f"{one.speed:.1f} tok/s"
    accepted = "" if one.acceptance is None else f", acceptance {one.acceptance:.2f}"
    return f"{one.workload} {rate}{accepted}"


def latest(trials: Iterable[Trial]) -> list[Trial]:
    """For each setting and workload the trial on the most prompts."""
    kept: dict[tuple[Setting, str], Trial] = {}
    for one in trials:
        key = (one.setting, one.workload)
        if key not in kept or one.prompts >= kept[key].prompts:
            kept[key] = one
    return list(kept.values())


def trial(setting: Setting, workload: str, prompts: int, measured: Measured) -> Trial:
    """The figures of one workload; answers that are loops are left out."""
    side = BASELINE if setting.n_max is None else DFLASH
    runs = [run for run in measured.runs if run.side == side and run.request.workload == workload]
    answers = [run.answer for run in runs if not run.loop]
    drafted = Drafted.of(answers)
    return Trial(
        setting,
        workload,
        prompts,
        speed(answers),
        None if setting.n_max is None else drafted.acceptance,
        None if setting.n_max is None else drafted.per_pass,
        len(runs) - len(answers),
    )


def search(
    measure: Measure,
    workloads: Sequence[Workload],
    start: Setting,
    *,
    n_max: Sequence[int],
    draft_quants: Sequence[str],
    kv_types: Sequence[str],
    draft_kv_types: Sequence[str],
    budget: float,
) -> Search:
    """Try settings until all are known or ``budget`` seconds are over.

    Args:
        measure: measures one setting.
        workloads: what to measure on.
        start: the setting to begin with; of it only the first two trials are made whatever they take.
        n_max: values to try, each at most block size - 1.
        draft_quants: quants of the draft to try.
        kv_types: KV cache types of the target to try.
        draft_kv_types: KV cache types of the draft to try.
        budget: in seconds.
    """
    found = Search(measure, workloads, time.monotonic() + budget)
    found.attempt(start.alone, FIRST, needed=True)
    found.attempt(start, FIRST, needed=True)
    for value in n_max:
        found.attempt(dataclasses.replace(start, n_max=value), FIRST)
    again = min(AGAIN, max(len(load.prompts) for load in workloads))
    for setting in found.near():
        found.attempt(setting, again)
    found.attempt(start.alone, again)
    won = dict.fromkeys(found.best(load.name).setting for load in workloads)
    for setting, quant in product(won, draft_quants):
        found.attempt(dataclasses.replace(setting, draft_quant=quant), again)
    won = dict.fromkeys(found.best(load.name).setting for load in workloads)
    for setting, kv_type, draft_kv_type in product(won, kv_types, draft_kv_types):
        other = dataclasses.replace(setting, kv_type=kv_type, draft_kv_type=draft_kv_type)
        if found.attempt(other, again):
            found.attempt(other.alone, again)
    return found


def compared(trials: Sequence[Trial], one: Trial) -> Mapping[str, float | None]:
    """Speed of the target alone with the same KV cache on the same workload, and the ratio; None where unknown."""
    alone = [
        other.speed
        for other in latest(trials)
        if other.setting.n_max is None
        and other.setting.kv_type == one.setting.kv_type
        and other.workload == one.workload
        and other.speed
    ]
    if not alone or one.speed is None:
        return {"baseline": None, "ratio": None}
    return {"baseline": alone[0], "ratio": one.speed / alone[0]}
