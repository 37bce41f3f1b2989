"""Compare a GGUF's weights with their source and hash them, in one pass over memory-mapped data.

One tensor is mapped at a time and dequantized in blocks of rows, so memory stays far below the file's size.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from scripts.core import Check, Progress
from scripts.draft_config import DraftConfig, expected_tensors
from scripts.safetensors_header import Weights, map_tensor
from scripts.verify_gguf import GgufFile, GgufTensor

BLOCK = 1 << 20
"""Weights compared at a time: 4 MB as float32."""

EXPONENT = np.uint16(0x7F80)
"""The exponent bits of BF16; all ones in infinite values and those that are no number."""

Array = npt.NDArray[Any]
Source = Callable[[str], Array]
"""Gives the source of a tensor by GGUF name: uint16 holds BF16 bits, float32 holds values; rows first."""

BLOCK_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
TOP_NAMES = {"fc": "fc", "hidden_norm": "enc.output_norm", "norm": "output_norm"}


@dataclass(frozen=True)
class Measured:
    """One tensor as found: sha256 of its data, relative error, differing values, and values that are no number.

    A tensor whose type is not :func:`readable` has its sha256 only; the other three are 0.
    """

    sha256: str
    error: float
    differing: int
    not_finite: int


def gguf_name(name: str) -> str:
    """The GGUF name of a draft's tensor: ``layers.3.mlp.up_proj.weight`` -> ``blk.3.ffn_up.weight``."""
    stem = name.removesuffix(".weight")
    if stem.startswith("layers."):
        _, layer, rest = stem.split(".", 2)
        return f"blk.{layer}.{BLOCK_NAMES[rest]}.weight"
    return f"{TOP_NAMES[stem]}.weight"


def structure_checks(file: GgufFile, config: DraftConfig) -> list[Check]:
    """Check that the GGUF has exactly the draft's tensors, by name, count and shape."""
    expected = {gguf_name(name): shape for name, shape in expected_tensors(config).items()}
    missing = [name for name in expected if name not in file.tensors]
    extra = [name for name in file.tensors if name not in expected]
    shapes = [
        f"{name} is {list(file.tensors[name].shape)}, not {list(shape)}"
        for name, shape in expected.items()
        if name in file.tensors and file.tensors[name].shape != shape
    ]
    count = f"{len(file.tensors)} tensors, {len(expected)} expected"
    names = [f"missing: {', '.join(missing[:3])}"] * bool(missing) + [f"not of a draft: {', '.join(extra[:3])}"] * bool(
        extra
    )
    return [
        Check("tensor count", len(file.tensors) == len(expected), count),
        Check("tensor names", not names, "; ".join(names) or "those of the config"),
        Check("tensor shapes", not shapes, "; ".join(shapes[:3]) or "those of the config"),
    ]


def from_weights(weights: Weights) -> Source:
    """The safetensors as source."""
    names = {gguf_name(name): name for name in weights.tensors}
    return lambda name: map_tensor(weights.tensors[names[name]])


def from_gguf(file: GgufFile) -> Source:
    """A bf16 GGUF as source; its matrices are BF16 and its norms F32."""

    def source(name: str) -> Array:
        tensor = file.tensors[name]
        kind = "<u2" if tensor.type == "BF16" else "<f4"
        return file.map_bytes(tensor.begin, tensor.end).view(kind).reshape(tensor.shape)

    return source


@cache
def readable(kind: str) -> bool:
    """Whether the values of a tensor type can be had: BF16 and F32, and all that the gguf package dequantizes."""
    number = gguf.GGMLQuantizationType.__members__.get(kind)
    if number is None:
        return False
    try:
        gguf.dequantize(np.zeros((1, gguf.GGML_QUANT_SIZES[number][1]), np.uint8), number)
    except NotImplementedError:
        return False
    return True


def widen(values: Array) -> npt.NDArray[np.float32]:
    """BF16 bits as float32 values, exactly; float32 values as they are."""
    if values.dtype == np.float32:
        return values
    return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)


def measure(file: GgufFile, source: Source, threads: int, label: str | None) -> tuple[dict[str, Measured], str]:
    """Compare all tensors with their source and hash them; returns them by name, and the file's sha256.

    The tensors must have their source's names and shapes, see :func:`structure_checks`.
    """
    whole = hashlib.sha256()
    measured: dict[str, Measured] = {}
    at = 0
    with (
        ThreadPoolExecutor(max_workers=threads) as pool,
        ThreadPoolExecutor(max_workers=1) as hasher,
        Progress(label, file.size) as progress,
    ):
        for tensor in sorted(file.tensors.values(), key=lambda tensor: tensor.begin):
            whole.update(file.map_bytes(at, tensor.begin).data)
            data = file.map_bytes(tensor.begin, tensor.end)
            hashed = hasher.submit(whole.update, data.data)
            measured[tensor.name] = _measure_tensor(data, tensor.type, source(tensor.name), pool)
            hashed.result()
            at = tensor.end
            progress.set(at)
        whole.update(file.map_bytes(at, file.size).data)
    return measured, whole.hexdigest()


def _measure_tensor(data: Array, kind: str, source: Array, pool: ThreadPoolExecutor) -> Measured:
    """Hash one tensor's bytes, and compare its blocks meanwhile."""
    rows = source.shape[0] if source.ndim > 1 else 1
    compared = pool.map(
        lambda pair: _compare(kind, *pair),
        _blocks(data.reshape(rows, -1), source.reshape(rows, -1)) if readable(kind) else (),
    )
    # hashlib and numpy both let other threads run meanwhile, so hashing costs little wall time.
    digest = hashlib.sha256(data.data)
    distance = norm = 0.0
    differing = bad = 0
    for block in compared:
        distance, norm = distance + block[0], norm + block[1]
        differing, bad = differing + block[2], bad + block[3]
    error = math.sqrt(distance / norm) if norm else (math.inf if distance else 0.0)
    return Measured(digest.hexdigest(), error, differing, bad)


def _blocks(data: Array, source: Array) -> Iterator[tuple[Array, Array]]:
    """Blocks of whole rows, of about :data:`BLOCK` weights."""
    step = max(1, BLOCK // source.shape[1])
    for row in range(0, len(source), step):
        yield data[row : row + step], source[row : row + step]


def _compare(kind: str, data: Array, source: Array) -> tuple[float, float, int, int]:
    """Squared distance and squared norm of a block, its differing values, and values that are no number.

    Values of BF16 and F32 are compared as bits: 0.0 and -0.0 differ, equal bits of any kind do not.
    """
    with np.errstate(all="ignore"):  # what overflows is counted, not warned about
        return _compare_values(kind, data, source)


def _compare_values(kind: str, data: Array, source: Array) -> tuple[float, float, int, int]:
    if kind == "BF16" and source.dtype == np.uint16:
        # Equal bits are equal values, and no bits are all ones in the exponent of a finite one: five times as fast.
        bits = np.ascontiguousarray(data).view("<u2")
        if np.array_equal(bits, source):
            return 0.0, 1.0, 0, int(np.count_nonzero((bits & EXPONENT) == EXPONENT))
    wanted = widen(source)
    if kind in ("BF16", "F32"):
        found = widen(np.ascontiguousarray(data).view("<u2" if kind == "BF16" else "<f4"))
        differing = int(np.count_nonzero(found.view(np.uint32) != wanted.view(np.uint32)))
        bad = found.size - int(np.count_nonzero(np.isfinite(found)))
        if not differing:
            return 0.0, 1.0, 0, bad
    else:
        found = gguf.dequantize(np.ascontiguousarray(data), gguf.GGMLQuantizationType[kind])
        differing, bad = 0, None
    wanted, found = wanted.reshape(-1), found.reshape(-1)
    norm = float(np.dot(wanted, wanted))
    gap = found - wanted
    distance = float(np.dot(gap, gap))
    if bad is None:
        # A value that is no number makes the distance none either, so only then are they counted.
        bad = 0 if math.isfinite(distance) else found.size - int(np.count_nonzero(np.isfinite(found)))
    return distance, norm, differing, bad


def exact_checks(measured: Mapping[str, Measured], tensors: Mapping[str, GgufTensor]) -> list[Check]:
    """Check that BF16 and F32 tensors carry the source's values bit for bit, all of them finite."""
    exact = {name: found for name, found in measured.items() if tensors[name].type in ("BF16", "F32")}
    wrong = [f"{name} differs in {found.differing} values" for name, found in exact.items() if found.differing]
    bad = [f"{name} has {found.not_finite}" for name, found in measured.items() if found.not_finite]
    unread = sorted({tensors[name].type for name in measured if not readable(tensors[name].type)})
    rest = f"warning: all but those of {', '.join(unread)}, which cannot be read" if unread else "all"
    return [
        Check("bit for bit", not wrong, "; ".join(wrong[:3]) or f"{len(exact)} tensors equal their source"),
        Check("finite weights", not bad, f"infinite or not a number: {'; '.join(bad[:3])}" if bad else rest),
    ]


def error_checks(
    measured: Mapping[str, Measured], tensors: Mapping[str, GgufTensor], limits: Mapping[str, float]
) -> list[Check]:
    """Check every quantized tensor's relative error against its type's limit; one check a type.

    Types that are not :func:`readable` pass with a detail that starts with ``warning:``.
    """
    checks = []
    for kind in sorted({tensors[name].type for name in measured} - {"BF16", "F32"}):
        if not readable(kind):
            why = f"no dequantizer for {kind} in gguf {version('gguf')}"
            checks.append(Check(f"relative error {kind}", True, f"warning: relative error not measured: {why}"))
            continue
        errors = {name: found.error for name, found in measured.items() if tensors[name].type == kind}
        # nan compares false with everything: it must sort as the worst and fail.
        worst = sorted(errors, key=lambda name: -errors[name] if errors[name] == errors[name] else -math.inf)
        limit = limits.get(kind)
        over = [name for name in worst if limit is None or not errors[name] <= limit]
        listed = ", ".join(f"{name} {errors[name]:.4f}" for name in (over or worst)[:3])
        bound = "no limit is known for it" if limit is None else f"limit {limit}"
        checks.append(Check(f"relative error {kind}", not over, f"{len(over)} of {len(worst)} over ({bound}): {listed}"
                            if over else f"worst {listed} ({bound})"))  # fmt: skip
    return checks
