"""What llama-server says in its log (``-v``) that it allocated, by model and kind, to be put beside the plan."""

from __future__ import annotations

import re
from collections.abc import Mapping

MIB = 1 << 20

FITTED = "fitting params to free memory took"
"""The last line of the search for what fits, in which models are loaded without their data."""

_SIZE = r"(?:=|is)\s+(\d+\.\d+) MiB"
_KINDS = {
    "weights": re.compile(rf"load_tensors:\s+(\S+) model buffer size {_SIZE}"),
    "KV cache": re.compile(rf"llama_kv_cache:\s+(\S+) KV buffer size {_SIZE}"),
    "recurrent state": re.compile(rf"llama_memory_recurrent:\s+(\S+) RS buffer size {_SIZE}"),
}
# The buffer grows with the first request; the largest is said at the end, the draft's first.
_COMPUTE = re.compile(rf"~llama_context:\s+(\S+) compute buffer size {_SIZE}")
_CHECKPOINT = re.compile(r"created context checkpoint .* n_tokens = (\d+), size = (\d+\.\d+) MiB")

Measured = Mapping[tuple[str, str], float]
"""Bytes by model (``target``, ``draft``) and kind, as the plan's items are named."""


def measured(text: str) -> Measured:
    """Read the log of a server that has ended.

    Args:
        text: the log; a server without a draft has the target alone.
    """
    lines = text.rpartition(FITTED)[2].splitlines()
    found: dict[tuple[str, str], float] = {}
    models = ["target", "draft"]
    model, begun = models[0], False
    for line in lines:
        if "llama_context: n_ctx " in line:
            begun = True
        for kind, pattern in _KINDS.items():
            if not (match := pattern.search(line)):
                continue
            # The next model is loaded once the one before has its context.
            if kind == "weights" and begun:
                model, begun = models[1], False
            found[model, kind] = found.get((model, kind), 0.0) + float(match[2]) * MIB
    ended: list[dict[str, float]] = [{}]
    for match in map(_COMPUTE.search, lines):
        if match and match[1] in ended[-1]:
            ended.append({})
        if match:
            ended[-1][match[1]] = float(match[2]) * MIB
    for name, buffers in zip(models, reversed(ended), strict=False):
        if buffers:
            found[name, "compute buffer"] = sum(buffers.values())
    return found


def checkpoints(text: str) -> list[tuple[int, float]]:
    """Each context checkpoint of a log: the tokens that it stands after, and its bytes."""
    return [(int(match[1]), float(match[2]) * MIB) for match in _CHECKPOINT.finditer(text)]
