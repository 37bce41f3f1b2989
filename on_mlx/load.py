"""Load a draft in dflash-mlx and say what came of it.

Standard input: ``{"draft", "draft_quant"}``. Standard output: ``{"versions", "block_size", "mask_token_id", "taps",
"layers": [{"type", "sliding_window", "rope_theta", "rope_scale", "bits", "group_size"}]}``, or ``{"error"}``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from dflash_mlx.runtime.loading import load_draft_bundle

from on_mlx import said
from on_mlx.engine import versions


def describe(asked: dict[str, Any]) -> dict[str, Any]:
    """Load the draft and read back what it was made of."""
    draft, _ = load_draft_bundle(asked["draft"], draft_quant=asked["draft_quant"])
    layers = [
        {
            "type": kind,
            "sliding_window": layer.self_attn.sliding_window,
            "rope": type(layer.self_attn.rope).__name__,
            "bits": getattr(layer.self_attn.q_proj, "bits", None),
            "group_size": getattr(layer.self_attn.q_proj, "group_size", None),
        }
        for kind, layer in zip(draft.args.layer_types, draft.layers, strict=True)
    ]
    return {
        "versions": versions(),
        "block_size": draft.block_size,
        "mask_token_id": draft.mask_token_id,
        "target_layer_ids": list(draft.target_layer_ids),
        "rope_theta": draft.args.rope_theta,
        "layers": layers,
    }


if __name__ == "__main__":
    sys.exit(said(lambda: describe(json.load(sys.stdin))))
