"""Made-up answers and measurements: what a server could have said, with figures that can be checked by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scripts.bench_run import BASELINE, DFLASH, Measured, Request, Run
from scripts.llama_server import Answer, Piece

PROPS = {
    "model_path": "/models/Target-Q8_0.gguf",
    "chat_template": "{{ messages }}",
    "build_info": "b1-abc",
    "default_generation_settings": {"n_ctx": 4096},
}


def answer(
    tokens: Sequence[int], ms: float = 1000.0, drafted: int | None = None, accepted: int | None = None
) -> Answer:
    """An answer of these tokens, decoded in ``ms`` milliseconds, the first of them after 0.1 s."""
    pieces = [Piece(0.1 + at * ms / 1000 / len(tokens), f"t{token} ", [token]) for at, token in enumerate(tokens)]
    return Answer(
        text="".join(piece.text for piece in pieces),
        tokens=list(tokens),
        stop="eos",
        prompt_n=5,
        prompt_ms=100.0,
        predicted_n=len(tokens),
        predicted_ms=ms,
        draft_n=drafted,
        draft_n_accepted=accepted,
        first_token_s=0.1,
        pieces=pieces,
    )


def request(prompt: str, workload: str = "code-edit", format_: str = "chat") -> Request:
    return Request(workload, prompt, format_, "off", f"text of {prompt}", 5)


def measured(answers: Mapping[tuple[str, str, int], Answer], format_: str = "chat") -> Measured:
    """A measurement of answers by side, prompt and repeat."""
    runs = [Run(side, repeat, request(prompt, format_=format_), one) for (side, prompt, repeat), one in answers.items()]
    return Measured(runs, {}, {BASELINE: dict(PROPS), DFLASH: dict(PROPS)})


def acceptance(quant: str, counts: Mapping[tuple[str, str], tuple[int, int]], **answer_fields: Any) -> dict[str, Any]:
    """An acceptance report: (workload, prompt) -> drafted and accepted."""
    answers: list[dict[str, Any]] = [
        {
            "workload": workload,
            "format": "chat",
            "prompt": prompt,
            "predicted": 100,
            "drafted": drafted,
            "accepted": accepted,
            "loop": None,
            "tokens_sha256": "a",
        }
        | answer_fields
        for (workload, prompt), (drafted, accepted) in counts.items()
    ]
    drafted = sum(one["drafted"] for one in answers)
    return {
        "quant": quant,
        "conditions": {"target_sha256": ["b"], "predict": 100},
        "acceptance": sum(one["accepted"] for one in answers) / drafted if drafted else None,
        "answers": answers,
    }
