"""The Qwen3.5 target of the pair, cut down to the rows of the vocabulary that the corpus uses.

All other rows of the embedding are zero. They enter the softmax exactly, as one column: each zero row has logit 0, and
n of them together weigh as much as a single logit of log(n).
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

from demo.pair import configs, pack, tokenizer


def build(rows: int) -> Qwen3_5ForCausalLM:
    """A target with ``rows`` rows of the vocabulary, initialised for fast memorising; draws from torch's generator."""
    config = Qwen3_5TextConfig(**{**configs.target_text_config(), "vocab_size": rows, "dtype": "float32"})
    config._attn_implementation = "sdpa"
    model = Qwen3_5ForCausalLM(config).float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("embed_tokens.weight"):
                parameter.normal_(std=configs.HIDDEN**-0.5)
            elif name.endswith("dt_bias"):
                # The stock decay forgets within a token or two; these remember 10 to 1000 tokens.
                low, high = math.log(1e-3), math.log(1e-1)
                parameter.copy_(torch.empty_like(parameter).uniform_(low, high).exp().expm1().log())
            elif name.endswith("A_log"):
                parameter.zero_()
            elif parameter.ndim == 2:
                parameter.normal_(std=parameter.shape[1] ** -0.5)
                if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
                    parameter.mul_(0.25)
    return model


def load(folder: Path) -> tuple[Qwen3_5ForCausalLM, Tensor]:
    """Read a target's part of a fixture; returns the model in float32 and the token ids [rows] of its rows, ascending.

    Raises:
        BuildError: the fixture is damaged.
    """
    tensors = pack.read(folder, "target")
    token_ids = tensors.pop("token_ids").long()
    model = build(len(token_ids))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[name].float())
    return model.eval(), token_ids


def with_unused_rows(logits: Tensor) -> Tensor:
    """Append the column that stands for all unused rows: logits [..., rows] to [..., rows + 1]."""
    unused = logits.new_full((*logits.shape[:-1], 1), math.log(tokenizer.ROWS - logits.shape[-1]))
    return torch.cat([logits, unused], dim=-1)


def round_to_bfloat16(model: nn.Module) -> None:
    """Round every parameter to bfloat16 in place, as it will be stored, and keep computing in float32."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16().float())


@torch.no_grad()  # type: ignore[untyped-decorator]
def layer_outputs(model: Qwen3_5ForCausalLM, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs of all layers but the last [layers - 1, batch, positions, hidden]; logits [batch, positions, rows]."""
    result = model(input_ids=ids, output_hidden_states=True, use_cache=False)
    # hidden_states[0] is the embedding; the last entry is normed and is no tap.
    return torch.stack(result.hidden_states[1:-1]), result.logits
