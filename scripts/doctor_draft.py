"""What a draft's own header says: whether llama.cpp loads it, and runs it as it was trained.

llama.cpp has a default for nearly every key, so what is missing loads, and only shows as a draft that is rarely
accepted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from scripts.doctor_source import Model
from scripts.fit import EMBEDDING
from scripts.verdict import Finding
from scripts.verify_gguf import GgufTensor
from scripts.verify_metadata import ARCHITECTURE
from scripts.verify_tensors import BLOCK_NAMES, TOP_NAMES
from scripts.verify_types import histogram

FORK = "dflash-draft"
"""The architecture of forks that had DFlash before llama.cpp; some put a family before it."""

CONVERT = "convert the original draft again with upstream llama.cpp's convert_hf_to_gguf.py"
REQUIRED = (
    *("block_count", "context_length", "embedding_length", "feed_forward_length"),
    *("attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length"),
    *("attention.layer_norm_rms_epsilon", "rope.freq_base"),
)
"""Without these a draft does not load, or runs with llama.cpp's defaults; others have checks of their own."""

OWN = (EMBEDDING, "output.weight")
"""Embedding and head, which a draft borrows from its target."""

KINDS = {
    "markov_w1.weight": "a DSpark draft: it needs --spec-type draft-dspark",
    "selector_hidden.weight": "a DFlash2 draft: it needs llama.cpp b10658 or newer",
    "d2t": "a vocabulary of its own, mapped to the target's: not checked here",
}
"""Tensors that drafts of other kinds have, under the same architecture."""


class Draft:
    """A draft's header; what is missing, or of another kind, is None."""

    def __init__(self, model: Model) -> None:
        self.model, self.values, self.tensors = model, model.values, model.tensors
        self.fork = FORK in str(model.architecture)

    def get(self, key: str) -> Any:
        """The value of a key without its prefix; forks put their own before it."""
        family = self.model.architecture
        for prefix in (f"{ARCHITECTURE}.", f"{family}.", f"{family}.dflash."):
            if prefix + key in self.values:
                return self.values[prefix + key]
        return None

    def count(self, key: str) -> int | None:
        """A value that has to be a number of things."""
        value = self.get(key)
        return value if type(value) is int else None

    @property
    def mask(self) -> int | None:
        """The mask token's id, where llama.cpp looks for it."""
        value = self.values.get("tokenizer.ggml.mask_token_id")
        return value if type(value) is int else None

    @property
    def layers(self) -> list[int] | None:
        """``target_layers`` as they stand, where they are numbers."""
        value = self.get("target_layers")
        numbers = isinstance(value, list) and value and all(type(layer) is int for layer in value)
        return value if numbers else None

    @property
    def taps(self) -> list[int] | None:
        """The target's layers that the draft reads, counted from 0; the GGUF has one more, those of forks have not."""
        return self.layers and [layer - (not self.fork) for layer in self.layers]


def findings(draft: Draft) -> Iterable[Finding]:
    """Check the draft's metadata and tensors, without its target."""
    yield _architecture(draft)
    missing = [key for key in REQUIRED if draft.get(key) is None]
    detail = f"missing: {', '.join(missing)}" if missing else f"{len(REQUIRED)} of {len(REQUIRED)} are there"
    yield Finding("metadata keys", not missing, detail, CONVERT)
    yield _block_size(draft)
    yield _target_layers(draft)
    yield _window(draft)
    yield from _tensors(draft)
    yield _fc(draft)
    yield _own(draft)
    yield _types(draft.tensors)


def _architecture(draft: Draft) -> Finding:
    name, family = "architecture", draft.model.architecture
    if family == ARCHITECTURE:
        return Finding(name, True, ARCHITECTURE)
    if draft.fork:
        detail = f"{family!r} is a fork's: upstream llama.cpp says unknown model architecture"
        return Finding(name, False, detail, f"run it with the fork it was made for, or {CONVERT}")
    detail = "missing" if family is None else f"{family!r} is no DFlash draft"
    return Finding(name, False, detail, "name a draft whose general.architecture is dflash")


def _block_size(draft: Draft) -> Finding:
    name, size = "block size", draft.get("block_size")
    if size is None:
        return Finding(name, False, "missing: llama.cpp takes 16, whatever the draft was trained with", CONVERT)
    if type(size) is not int or size < 2:
        return Finding(name, False, f"is {size!r}: nothing can be drafted", CONVERT)
    return Finding(name, True, f"{size}: up to {size - 1} tokens are drafted at a time")


def _target_layers(draft: Draft) -> Finding:
    name, value = "target layers", draft.get("target_layers")
    if draft.layers is None:
        said = "missing" if value is None else f"{value!r} is no list of layers"
        return Finding(name, False, f"{said}: llama.cpp does not load such a draft", CONVERT)
    if draft.layers != sorted(set(draft.layers)):
        return Finding(name, False, f"{draft.layers} are not ascending, each once", CONVERT)
    counted = "as they are" if draft.fork else "one more than in the original"
    return Finding(name, True, f"{draft.layers} ({counted})")


def _window(draft: Draft) -> Finding:
    """The window and the layers it holds for; llama.cpp reads the list wherever there is a window."""
    name = "window"
    size, pattern = draft.get("attention.sliding_window"), draft.get("attention.sliding_window_pattern")
    if not size:
        if pattern is None:
            return Finding(name, True, "none: every layer sees everything")
        return Finding(name, True, "warning: a pattern without a window: llama.cpp ignores it", CONVERT)
    fault = _pattern_fault(pattern, draft.count("block_count"))
    if type(size) is not int:
        fault = f"sliding_window is {size!r}"
    if fault:
        return Finding(name, False, fault, CONVERT)
    return Finding(name, True, f"{size} in {sum(pattern)} of {len(pattern)} layers")


def _pattern_fault(pattern: Any, layers: int | None) -> str | None:
    if pattern is None:
        return "sliding_window without sliding_window_pattern: llama.cpp does not load such a draft"
    if not isinstance(pattern, list):
        return f"sliding_window_pattern is {pattern!r}, not a list of true and false"
    if any(type(layer) is not bool for layer in pattern):
        kinds = ", ".join(sorted({type(layer).__name__ for layer in pattern}))
        return f"sliding_window_pattern is a list of {kinds}, not of true and false as the converter writes it"
    if len(pattern) != layers:
        return f"sliding_window_pattern has {len(pattern)} entries, the draft {layers} layers"
    return None


def _tensors(draft: Draft) -> Iterable[Finding]:
    name, count = "tensors", draft.count("block_count")
    if count is None or not 0 < count <= len(draft.tensors):
        yield Finding(name, False, f"{len(draft.tensors)} tensors for block_count {count}", CONVERT)
        return
    layers = [f"blk.{layer}.{part}.weight" for layer in range(count) for part in BLOCK_NAMES.values()]
    wanted = [f"{part}.weight" for part in TOP_NAMES.values()] + layers
    missing = [part for part in wanted if part not in draft.tensors]
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    detail = f"missing: {', '.join(missing[:3])}{more}" if missing else f"all {len(wanted)} of {count} layers are there"
    yield Finding(name, not missing, detail, CONVERT)
    other = [part for part in draft.tensors if part not in wanted and part not in OWN]
    if other:
        kind = next((text for part, text in KINDS.items() if part in draft.tensors), "unknown here")
        yield Finding(
            "other tensors", True, f"warning: {len(other)} beyond a DFlash draft's, as {sorted(other)[0]}: {kind}"
        )


def _fc(draft: Draft) -> Finding:
    """The matrix that joins the taps: as wide as they are together."""
    name, tensor = "fc.weight", draft.tensors.get("fc.weight")
    hidden, layers = draft.count("embedding_length"), draft.layers
    shape = list(tensor.shape) if tensor else None
    wanted = [hidden, hidden * len(layers)] if hidden and layers else None
    held = shape is not None and shape == wanted
    detail = f"{shape}" if held else f"is {shape}; embedding_length and target_layers give {wanted}"
    return Finding(name, held, detail, CONVERT)


def _own(draft: Draft) -> Finding:
    name, own = "own embedding", [part for part in OWN if part in draft.tensors]
    if not own:
        return Finding(name, True, "none, nor a head: the target's are used")
    size = sum(draft.tensors[part].end - draft.tensors[part].begin for part in own)
    detail = f"warning: {', '.join(own)} of {size} bytes are in the draft and used in place of the target's"
    return Finding(name, True, detail, f"older builds and forks leave them in; {CONVERT} to save the room")


def _types(tensors: Mapping[str, GgufTensor]) -> Finding:
    types = histogram(tensors.values())
    listed = ", ".join(f"{count} {kind}" for kind, count in types.items())
    if "F16" in types:
        detail = f"warning: {listed}: drafts trained in bf16 overflow in F16 and are then never accepted"
        return Finding("tensor types", True, detail, "use a bf16 file, or one quantized from it")
    return Finding("tensor types", bool(types), listed or "no tensors")
