"""Answer prompts with a target and its draft in dflash-mlx, with the draft and without.

Standard input: ``{"target", "draft", "draft_quant", "block", "copies", "sides", "predict", "repeats", "prompts":
[{"workload", "id", "raw", "messages", "format"}]}``, sides of ``baseline`` and ``dflash``, the format as in
``bench.formats``. Standard output: ``{"versions", "block_size", "prompts": [{..., "text", "tokens", "thinking"}],
"answers": [{"prompt" (its number), "repeat", "side", ...Answer}]}``.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any

from on_mlx import said
from on_mlx.engine import Pair, versions

DFLASH = "dflash"
WARM_UP = 4
"""Tokens of the answers that are thrown away after loading."""


def prepared(pair: Pair, prompt: dict[str, Any]) -> dict[str, Any]:
    """A prompt with the text that is sent, and whether it lets the target think."""
    if prompt["format"] == "raw":
        text, thinking = prompt["raw"], "raw"
    else:
        on, off = (pair.template(prompt["messages"], switch) for switch in (True, False))
        text, thinking = (on, "on") if prompt["format"] == "chat-thinking" else (off, "off")
        thinking = "no switch" if on == off else thinking
    named = {key: prompt[key] for key in ("workload", "id", "format")}
    return {**named, "text": text, "ids": pair.encode(text), "thinking": thinking}


def answers(asked: dict[str, Any]) -> dict[str, Any]:
    """Do what is asked for; sides alternate by repeat, so that neither always comes first."""
    pair = Pair(asked["target"], asked["draft"], asked["draft_quant"], asked["block"], asked["copies"])
    prompts = [prepared(pair, prompt) for prompt in asked["prompts"]]
    given = []
    sides = list(asked["sides"])
    for side in sides:
        pair.answer(prompts[0]["ids"][:8], WARM_UP, side == DFLASH)
    for repeat in range(1, asked["repeats"] + 1):
        for side in sides if repeat % 2 else reversed(sides):
            for number, prompt in enumerate(prompts):
                answer = dataclasses.asdict(pair.answer(prompt["ids"], asked["predict"], side == DFLASH))
                given.append({"prompt": number, "repeat": repeat, "side": side, **answer})
                print(f"{side}, repeat {repeat}: {prompt['id']}", file=sys.stderr, flush=True)
    told = [{**prompt, "tokens": len(prompt.pop("ids"))} for prompt in prompts]
    return {
        "versions": versions(),
        "block_size": pair.bundle.draft_model.block_size,
        "prompts": told,
        "answers": given,
    }


if __name__ == "__main__":
    sys.exit(said(lambda: answers(json.load(sys.stdin))))
