"""Figures of a measurement: medians and spread, acceptance, identity of outputs; loops are counted and left out.

What the words mean:

- decode tok/s: (tokens - 1) / time from the first token to the last, as llama-server counts. Tokens and times of all
  prompts of a workload are added up within a repeat; the median over repeats is given with the smallest and largest.
- acceptance: accepted / drafted tokens, as llama.cpp counts (other programs divide by all tokens of the answer).
- tokens per pass: predicted / (predicted - accepted), where the pass over the prompt, which gives the first token,
  counts as one. Without a draft it is 1.
- accepted per verify pass: accepted / (predicted - 1 - accepted): each pass after the prompt gives what was accepted
  and one token of the target's own.
- time to first token: seconds at the client from the request to the first token, the prompt included.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from scripts.bench_run import BASELINE, DFLASH, Measured, Request, Run
from scripts.core import BuildError
from scripts.llama_server import Answer

LEAST = 0.05
"""Acceptance below which something is wrong: a draft of another target, or its KV cache quantized in some builds."""

SHOWN = 5
"""Differing answers of a row that the report lists."""


def spread(values: Sequence[float]) -> dict[str, float] | None:
    """Median, smallest and largest of some figures; None where there are none."""
    if not values:
        return None
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


@dataclass(frozen=True)
class Drafted:
    """Tokens of some answers: predicted, drafted, accepted."""

    predicted: int
    drafted: int
    accepted: int
    answers: int

    @classmethod
    def of(cls, answers: Sequence[Answer]) -> Drafted:
        """Add up answers."""
        return cls(
            sum(answer.predicted_n for answer in answers),
            sum(answer.draft_n or 0 for answer in answers),
            sum(answer.draft_n_accepted or 0 for answer in answers),
            len(answers),
        )

    @property
    def acceptance(self) -> float | None:
        """Accepted over drafted tokens; None where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def per_pass(self) -> float | None:
        """Tokens a pass of the target, the pass over the prompt counted."""
        passes = self.predicted - self.accepted
        return self.predicted / passes if passes > 0 else None

    @property
    def accepted_per_verify(self) -> float | None:
        """Accepted tokens a pass after the one over the prompt."""
        passes = self.predicted - self.answers - self.accepted
        return self.accepted / passes if passes > 0 else None


def speed(answers: Sequence[Answer]) -> float | None:
    """Decoded tokens per second over some answers together; None for answers too short to be timed."""
    steps = sum(max(0, answer.predicted_n - 1) for answer in answers)
    milliseconds = sum(answer.predicted_ms for answer in answers if answer.predicted_n > 1)
    return 1000 * steps / milliseconds if steps and milliseconds > 0 else None


def first_difference(ours: Answer, theirs: Answer) -> dict[str, Any] | None:
    """Where two answers part: position (from 0), token id and text of both; None for equal ones.

    An answer that ended before the other has no id there.
    """
    if ours.tokens == theirs.tokens:
        return None
    shorter = min(len(ours.tokens), len(theirs.tokens))
    position = next((at for at in range(shorter) if ours.tokens[at] != theirs.tokens[at]), shorter)
    return {"position": position, BASELINE: _token(ours, position), DFLASH: _token(theirs, position)}


def _token(answer: Answer, position: int) -> dict[str, Any]:
    seen = 0
    for piece in answer.pieces:
        seen += len(piece.tokens)
        if seen > position:
            return {"id": answer.tokens[position], "text": piece.text}
    return {"id": None, "text": f"end of the answer ({answer.stop})"}


def rows(measured: Measured) -> list[dict[str, Any]]:
    """A row for each workload and format.

    Raises:
        BuildError: every single answer is a loop.
    """
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in measured.runs:
        groups.setdefault((run.request.workload, run.request.format), []).append(run)
    if measured.runs and all(run.loop for run in measured.runs):
        run = measured.runs[0]
        what = f"every one of {len(measured.runs)} answers is a loop, the first: {run.loop}"
        raise BuildError(what, run.request.workload, "check the target's file and this build of llama-server")
    return [_row(group) for group in groups.values()]


def _row(group: Sequence[Run]) -> dict[str, Any]:
    request = group[0].request
    loops = [run for run in group if run.loop]
    # A prompt that loops on either side is left out on both: the rest stays a comparison of the same prompts.
    looping = {run.request for run in loops}
    kept = [run for run in group if run.request not in looping]
    prompts = list(dict.fromkeys(run.request for run in group))
    drafted = Drafted.of([run.answer for run in kept if run.side == DFLASH])
    by_repeat = [_speeds(kept, repeat) for repeat in sorted({run.repeat for run in kept})]
    times = {side: [run.answer.first_token_s for run in kept if run.side == side] for side in (BASELINE, DFLASH)}
    return {
        "workload": request.workload,
        "format": request.format,
        "thinking": request.thinking,
        "prompts": len(prompts),
        "prompts_measured": len(prompts) - len(looping),
        "prompt_tokens": [request.tokens for request in prompts],
        "predicted": drafted.predicted,
        "baseline_tokens_per_second": spread([one[BASELINE] for one in by_repeat if BASELINE in one]),
        "dflash_tokens_per_second": spread([one[DFLASH] for one in by_repeat if DFLASH in one]),
        "ratio": spread([one[DFLASH] / one[BASELINE] for one in by_repeat if len(one) == 2]),
        "drafted": drafted.drafted,
        "accepted": drafted.accepted,
        "acceptance": drafted.acceptance,
        "tokens_per_pass": drafted.per_pass,
        "accepted_per_verify_pass": drafted.accepted_per_verify,
        "baseline_first_token_s": spread(times[BASELINE]),
        "dflash_first_token_s": spread(times[DFLASH]),
        **_identity(group, prompts),
        "loops": {side: sum(run.side == side for run in loops) for side in (BASELINE, DFLASH)},
        "loop_reasons": {run.request.prompt: run.loop for run in loops},
    }


def _speeds(runs: Sequence[Run], repeat: int) -> dict[str, float]:
    found = {
        side: speed([run.answer for run in runs if run.side == side and run.repeat == repeat])
        for side in (BASELINE, DFLASH)
    }
    return {side: value for side, value in found.items() if value is not None}


def _identity(group: Sequence[Run], prompts: Sequence[Request]) -> dict[str, Any]:
    """Whether both sides say the same, and whether each says the same in every repeat; loops are not left out."""
    answers = {(run.side, run.repeat, run.request): run.answer for run in group}
    repeats = sorted({run.repeat for run in group})
    differences = list(_differences(answers, prompts, repeats))
    changing = {
        side: sum(len({tuple(answers[side, repeat, request].tokens) for repeat in repeats}) > 1 for request in prompts)
        for side in (BASELINE, DFLASH)
    }
    return {
        "identical": len(prompts) - len({one["prompt"] for one in differences}),
        "differences": differences[:SHOWN],
        "changing_between_repeats": changing,
    }


def _differences(
    answers: dict[tuple[str, int, Request], Answer], prompts: Sequence[Request], repeats: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """The first repeat in which the two sides differ, for every prompt in which they do."""
    for request in prompts:
        for repeat in repeats:
            found = first_difference(answers[BASELINE, repeat, request], answers[DFLASH, repeat, request])
            if found:
                yield {"prompt": request.prompt, "repeat": repeat, **found}
                break


def warnings(found: Sequence[dict[str, Any]], skipped: dict[str, str]) -> list[str]:
    """What a reader of the figures has to know."""
    said = [f"{name} is left out: {why}" for name, why in skipped.items()]
    for row in found:
        where = f"{row['workload']} ({row['format']})"
        if row["acceptance"] is None:
            said.append(f"{where}: nothing was drafted, no figure for it")
        elif row["acceptance"] < LEAST:
            said.append(
                f"{where}: acceptance {row['acceptance']:.3f} is below {LEAST}: the draft may be another "
                "target's, or its KV cache quantized"
            )
        if looping := sum(row["loops"].values()):
            said.append(f"{where}: {looping} answers loop; their prompts are not in its figures")
        if row["identical"] < row["prompts"]:
            first = row["differences"][0]
            said.append(
                f"{where}: {row['prompts'] - row['identical']} of {row['prompts']} outputs differ, "
                f"{first['prompt']} from token {first['position']} on"
            )
    return said


def table(found: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """The rows as people read them."""
    return pd.DataFrame(
        {
            "workload": row["workload"],
            "format": row["format"],
            "thinking": row["thinking"],
            "baseline tok/s": _shown(row["baseline_tokens_per_second"], 1),
            "DFlash tok/s": _shown(row["dflash_tokens_per_second"], 1),
            "ratio": _shown(row["ratio"], 2),
            "acceptance": _number(row["acceptance"], 3),
            "tokens/pass": _number(row["tokens_per_pass"], 2),
            "first token, s": f"{_middle(row['baseline_first_token_s'])} / {_middle(row['dflash_first_token_s'])}",
            "same output": f"{row['identical']} of {row['prompts']}",
            "loops": sum(row["loops"].values()),
        }
        for row in found
    )


def markdown(found: Sequence[dict[str, Any]]) -> str:
    """The table as Markdown, figures as they are rounded there."""
    return str(table(found).to_markdown(index=False, disable_numparse=True))


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _middle(value: dict[str, float] | None) -> str:
    return _number(None if value is None else value["median"], 2)


def _shown(value: dict[str, float] | None, digits: int) -> str:
    if value is None:
        return "-"
    median, least, most = (f"{value[key]:.{digits}f}" for key in ("median", "min", "max"))
    return median if least == most else f"{median} ({least} to {most})"
