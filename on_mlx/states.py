"""Run a draft over given inputs in dflash-mlx, without a target.

Standard input: ``{"draft", "draft_quant", "inputs", "outputs"}``, the last two safetensors files. For every case N the
inputs are ``N.features`` [positions, taps * hidden] and ``N.block`` [block, hidden]; the output is ``N`` [block,
hidden], the normed states that go to the target's head. Standard output: ``{"versions", "cases"}``, or ``{"error"}``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import mlx.core as mx
from dflash_mlx.runtime.loading import load_draft_bundle

from on_mlx import said
from on_mlx.engine import versions


def run(asked: dict[str, Any]) -> dict[str, Any]:
    """One pass of the draft for each case, in bf16, as it is served."""
    draft, _ = load_draft_bundle(asked["draft"], draft_quant=asked["draft_quant"])
    tensors = mx.load(asked["inputs"])
    cases = sorted({name.partition(".")[0] for name in tensors})
    states = {}
    for case in cases:
        block, features = (tensors[f"{case}.{part}"].astype(mx.bfloat16)[None] for part in ("block", "features"))
        states[case] = draft(noise_embedding=block, target_hidden=features)[0].astype(mx.float32)
    mx.save_safetensors(asked["outputs"], states)
    return {"versions": versions(), "cases": len(cases)}


if __name__ == "__main__":
    sys.exit(said(lambda: run(json.load(sys.stdin))))
