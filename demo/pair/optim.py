"""The optimizer of the tiny pair: Muon for matrices, AdamW for everything else.

torch's own Muon orthogonalises in bfloat16, which has no fast path on most CPUs; this one stays in float32 and treats
matrices of one shape together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from concurrent.futures import Executor

import torch
from torch import Tensor, nn

_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic iteration that drives singular values to about 1 in five steps."""


def orthogonalise(matrices: Tensor) -> Tensor:
    """Bring the singular values of each matrix of a stack [n, rows, columns] to about 1."""
    a, b, c = _NEWTON_SCHULZ
    tall = matrices.shape[1] > matrices.shape[2]  # the iteration squares the shorter side
    x = matrices.transpose(1, 2) if tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.transpose(1, 2)
        x = a * x + (b * square + c * square @ square) @ x
    return x.transpose(1, 2) if tall else x


class Muon:
    """Nesterov momentum whose step is orthogonalised, scaled so that rows move by about the same amount."""

    def __init__(self, matrices: Iterable[nn.Parameter], pool: Executor, momentum: float = 0.95) -> None:
        """Group the matrices by shape; groups are stepped by the threads of ``pool``."""
        self.momentum, self.pool = momentum, pool
        self.groups: dict[tuple[int, ...], list[nn.Parameter]] = {}
        for matrix in matrices:
            self.groups.setdefault(tuple(matrix.shape), []).append(matrix)
        self.buffers = {shape: torch.zeros(len(group), *shape) for shape, group in self.groups.items()}

    def step(self, rate: float) -> None:
        """Move every matrix by one step of size ``rate``."""
        list(self.pool.map(self._step, self.groups.items(), [rate] * len(self.groups)))

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _step(self, item: tuple[tuple[int, ...], list[nn.Parameter]], rate: float) -> None:
        shape, group = item
        gradient = torch.stack([torch.zeros(shape) if p.grad is None else p.grad for p in group])
        buffer = self.buffers[shape].mul_(self.momentum).add_(gradient)
        update = orthogonalise(gradient + self.momentum * buffer)
        update *= rate * math.sqrt(max(1.0, shape[0] / shape[1]))
        for parameter, change in zip(group, update, strict=True):
            parameter.sub_(change)


class Optimizer:
    """Muon and AdamW under one learning-rate schedule: short warm-up, plateau, linear decay to zero from half-way."""

    def __init__(self, model: nn.Module, steps: int, matrix_rate: float, other_rate: float, pool: Executor) -> None:
        """Split the parameters that need gradients: matrices of the layers go to Muon."""
        self.steps, self.matrix_rate, self.other_rate, self.done = steps, matrix_rate, other_rate, 0
        matrices: list[nn.Parameter] = []
        others: list[nn.Parameter] = []
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                # Embeddings and the two narrow gate projections are tables of rows rather than maps between spaces.
                small = "embed" in name or "in_proj_a" in name or "in_proj_b" in name
                (matrices if parameter.ndim == 2 and not small else others).append(parameter)
        self.muon = Muon(matrices, pool)
        self.adam = torch.optim.AdamW(others, lr=other_rate, betas=(0.9, 0.95), weight_decay=0.0)

    def step(self) -> None:
        """Apply the gradients and clear them."""
        scale = min(1.0, (self.done + 1) / 20, 2 * (1 - self.done / self.steps))
        for group in self.adam.param_groups:
            group["lr"] = self.other_rate * scale
        self.adam.step()
        self.muon.step(self.matrix_rate * scale)
        for group in self.muon.groups.values():
            for parameter in group:
                parameter.grad = None
        self.adam.zero_grad()
        self.done += 1
