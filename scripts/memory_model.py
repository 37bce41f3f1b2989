"""What llama-server allocates for a target and a DFlash draft, by arithmetic on their GGUF headers alone.

The formulas follow llama.cpp 0.5.0-dev (0c1e57098) and were compared with its log for the embedded pair and for files
of the 9B's shapes: 1 and 4 slots, contexts of 4096 and 32768, micro-batches of 128 and 512, 3 and 15 drafted tokens.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gguf

from scripts.core import BuildError
from scripts.verify_gguf import GgufHeader, GgufTensor

F32, F16 = 4, 2
"""Bytes of a value."""

EMBEDDING, HEAD = "token_embd.weight", "output.weight"

SLOTS = 4
"""Slots that llama-server opens where it is not told: they share one cache, but each has its recurrent states."""

CELLS = 256
"""llama.cpp rounds contexts and window caches up to a multiple of this."""

FIX = "name a GGUF that llama.cpp made of a whole model"


@dataclass(frozen=True)
class Sizes:
    """The server settings that memory depends on."""

    context: int
    """Tokens, over all slots."""
    kv_type: str = "f16"
    draft_kv_type: str = "f16"
    n_max: int = 0
    """Drafted tokens a pass; 0 without a draft."""
    checkpoints: int = 0
    """Context checkpoints a slot."""
    parallel: int | None = None
    """Slots; None leaves them to llama-server."""
    ubatch: int = 512
    """Tokens of one pass (`-ub`); llama-server's own default."""
    batch: int = 2048
    """Tokens of a batch (`-b`); llama-server's own default."""

    @property
    def slots(self) -> int:
        """Slots that the server opens."""
        return self.parallel or SLOTS

    @property
    def streams(self) -> int:
        """Caches side by side: slots that were asked for by number have one each."""
        return self.parallel or 1

    @property
    def cells(self) -> int:
        """Cells of one cache, in tokens."""
        return _padded(-(-_padded(self.context) // self.streams))


@dataclass(frozen=True)
class Item:
    """A thing that takes memory: whose it is, what, how many bytes, and whether a GPU has no part in it."""

    model: str
    what: str
    bytes: int
    host: bool = False


@dataclass(frozen=True)
class Model:
    """A model's header, its parts put together."""

    where: str
    values: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]

    @property
    def family(self) -> str:
        """Its architecture, with which most of its keys begin."""
        return str(self.values.get("general.architecture"))

    def number(self, key: str, default: int | None = None) -> int:
        """A whole number among its values.

        Raises:
            BuildError: it is not there and has no default, or is no such number.
        """
        found = self.values.get(f"{self.family}.{key}", default)
        if type(found) is not int or found < 0:
            raise BuildError(f"{self.family}.{key} is {found!r}", self.where, FIX)
        return found

    def per_layer(self, key: str) -> list[int]:
        """A number of each layer, whether it is written once or by layer."""
        found = self.values.get(f"{self.family}.{key}")
        if isinstance(found, list):
            if len(found) < self.layers or any(type(value) is not int for value in found):
                raise BuildError(f"{self.family}.{key} is {found!r:.80}", self.where, FIX)
            return found[: self.layers]
        return [self.number(key)] * self.layers

    @property
    def layers(self) -> int:
        """Layers that run; those that predict further tokens are left out, as llama.cpp does where it drafts."""
        return self.number("block_count") - self.number("nextn_predict_layers", 0)

    @property
    def hidden(self) -> int:
        """Length of an embedding."""
        return self.number("embedding_length")

    @property
    def taps(self) -> int:
        """Layers of the target that a draft reads."""
        return len(self.values.get(f"{self.family}.target_layers", []))

    @property
    def vocabulary(self) -> int | None:
        """Rows of its head; None for a draft that borrows the target's."""
        tensor = self.tensors.get(HEAD) or self.tensors.get(EMBEDDING)
        return tensor.shape[0] if tensor else None

    def recurrent(self) -> list[bool]:
        """Whether each layer keeps a recurrent state in place of keys and values."""
        if f"{self.family}.ssm.state_size" not in self.values:
            return [False] * self.layers
        said = self.values.get(f"{self.family}.attention.recurrent_layers")
        if isinstance(said, list) and len(said) >= self.layers:
            return [bool(value) for value in said[: self.layers]]
        every = self.number("full_attention_interval", 4)  # llama.cpp's own default
        return [(layer + 1) % every != 0 for layer in range(self.layers)]

    def windowed(self) -> list[bool]:
        """Whether each layer attends to a window only."""
        said = self.values.get(f"{self.family}.attention.sliding_window_pattern")
        if not self.window or not isinstance(said, list) or len(said) < self.layers:
            return [False] * self.layers
        return [bool(value) for value in said[: self.layers]]

    @property
    def window(self) -> int:
        """Tokens that a windowed layer sees; 0 where none is."""
        return self.number("attention.sliding_window", 0)

    @property
    def state(self) -> int:
        """Values of one layer's recurrent state, the delta net's."""
        return self.number("ssm.state_size") * self.number("ssm.inner_size")

    @property
    def channels(self) -> int:
        """Channels of one layer's convolution: queries, keys and values."""
        return self.number("ssm.inner_size") + 2 * self.number("ssm.group_count") * self.number("ssm.state_size")


def model(where: str, headers: Sequence[GgufHeader]) -> Model:
    """A model of the headers of all its files; the first has the values."""
    tensors = {name: tensor for header in headers for name, tensor in header.tensors.items()}
    return Model(where, headers[0].values, tensors)


def weights(whole: Model, gpu: bool, name: str) -> list[Item]:
    """The weights; a GPU leaves the embedding in the machine's memory, and has a copy of one that is the head too."""
    size = sum(tensor.end - tensor.begin for tensor in whole.tensors.values() if _runs(tensor.name, whole.layers))
    embedding = whole.tensors.get(EMBEDDING)
    if not gpu or embedding is None:
        return [Item(name, "weights", size)]
    held = embedding.end - embedding.begin
    on_gpu = size - held if HEAD in whole.tensors else size
    return [Item(name, "weights", on_gpu), Item(name, "embedding", held, host=True)]


def kv_cache(whole: Model, kv_type: str, sizes: Sizes) -> int:
    """Bytes of keys and values of all layers that attend.

    A windowed layer keeps the window of every slot and one micro-batch, not the context.
    """
    cells, window = sizes.cells, sizes.cells
    if any(whole.windowed()):
        sharing = sizes.slots if sizes.parallel is None else 1
        window = _padded(min(cells, whole.window * sharing + sizes.ubatch))
    per_cell = _layer_bytes(whole, kv_type)
    kept = [
        size * (window if windowed else cells)
        for size, windowed, recurrent in zip(per_cell, whole.windowed(), whole.recurrent(), strict=True)
        if not recurrent
    ]
    return sizes.streams * sum(kept)


def recurrent_row(whole: Model) -> int:
    """Bytes of one sequence's recurrent state, of all layers: what a context checkpoint stores of the target."""
    count = sum(whole.recurrent())
    if not count:
        return 0
    convolution = (whole.number("ssm.conv_kernel") - 1) * whole.channels
    return count * (convolution + whole.state) * F32


def recurrent_state(whole: Model, sizes: Sizes) -> int:
    """Bytes of the recurrent states: with a draft, every slot keeps one for each token that may be taken back."""
    return sizes.slots * (1 + sizes.n_max) * recurrent_row(whole)


def checkpoint(target: Model, draft: Model | None, sizes: Sizes, tokens: int | None = None) -> int:
    """Bytes of one context checkpoint after ``tokens`` (a full slot where absent).

    It stores the target's recurrent state and what the windowed layers of both hold.
    """
    tokens = sizes.cells if tokens is None else tokens
    total = recurrent_row(target)
    for whole, kv_type in ((target, sizes.kv_type), (draft, sizes.draft_kv_type)):
        if whole is not None:
            layers = zip(_layer_bytes(whole, kv_type), whole.windowed(), strict=True)
            total += min(tokens, whole.window) * sum(size for size, windowed in layers if windowed)
    return total


def target_compute(target: Model, draft: Model | None, sizes: Sizes) -> int:
    """Bytes of the target's compute buffer: what lives all along, and the largest of what comes one after another."""
    tokens, passed = sizes.ubatch, sizes.slots * (1 + sizes.n_max)
    row = tokens * target.hidden * F32
    mask = tokens * sizes.cells * F16
    # Every tapped layer's output is kept until the draft has it; without a draft there is one, the stream itself.
    kept = mask + max(1, draft.taps if draft else 0) * row
    phases = [
        min(tokens, passed) * _vocabulary(target) * F32 + 2 * row,
        2 * tokens * max(target.per_layer("feed_forward_length")) * F32 + 2 * row,
    ]
    if any(target.recurrent()):
        inner = target.number("ssm.inner_size")
        # The delta net's answer comes with a state for every token that may be taken back.
        answer = tokens * inner + passed * target.state
        phases.append((answer + tokens * (3 * target.channels + 2 * inner)) * F32)
    return kept + max(phases)


def draft_compute(target: Model, draft: Model, sizes: Sizes) -> int:
    """Bytes of the draft's compute buffer.

    llama.cpp counts a DFlash draft among the models with an encoder and so makes room for the logits of a whole
    micro-batch, twice since the sampler runs with it: with 248,320 tokens and 512 a pass that is 1.02 GB.
    """
    vocabulary, tokens = draft.vocabulary or _vocabulary(target), sizes.ubatch
    row = tokens * draft.hidden * F32
    logits = 2 * (tokens + 1) * vocabulary * F32 + 2 * row
    widest = max(draft.per_layer("feed_forward_length"))
    return max(logits, 2 * tokens * sizes.cells * F16 + 2 * tokens * widest * F32 + 2 * row)


def outputs(target: Model, draft: Model | None, sizes: Sizes) -> list[Item]:
    """What both contexts hand over in the machine's memory, at its largest.

    The target gives logits and, for a whole batch, the tapped layers' outputs; the draft gives logits, and from its
    sampler probabilities, candidates and the logits again.
    """
    passed, vocabulary = sizes.slots * (1 + sizes.n_max), _vocabulary(target)
    if draft is None:
        return [Item("target", "outputs", passed * vocabulary * F32, host=True)]
    taps = draft.taps * target.hidden * sizes.batch
    borrowed = draft.vocabulary or vocabulary
    return [
        Item("target", "outputs and taps", (passed * vocabulary + taps) * F32, host=True),
        Item("draft", "outputs", passed * (4 * borrowed + draft.hidden) * F32, host=True),
    ]


def items(target: Model, draft: Model | None, sizes: Sizes, gpu: bool) -> list[Item]:
    """All that the server allocates, by model and kind.

    Args:
        target: the target.
        draft: the draft, where one is used.
        sizes: the settings; ``n_max`` has to be 0 without a draft.
        gpu: whether the models lie on a GPU.
    """
    found = [
        *weights(target, gpu, "target"),
        Item("target", "KV cache", kv_cache(target, sizes.kv_type, sizes)),
        Item("target", "recurrent state", recurrent_state(target, sizes)),
        Item("target", "compute buffer", target_compute(target, draft, sizes)),
    ]
    if draft is not None:
        found += [
            *weights(draft, gpu, "draft"),
            Item("draft", "KV cache", kv_cache(draft, sizes.draft_kv_type, sizes)),
            Item("draft", "compute buffer", draft_compute(target, draft, sizes)),
        ]
    stored = sizes.slots * sizes.checkpoints * checkpoint(target, draft, sizes)
    found += [*outputs(target, draft, sizes), Item("both", "context checkpoints", stored, host=True)]
    return [item for item in found if item.bytes]


def kv_bytes(kv_type: str, values: int) -> int:
    """Bytes of that many values of a KV type, as the command line names it."""
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kv_type.upper()]]
    return int(math.ceil(values / block) * size)


def _layer_bytes(whole: Model, kv_type: str) -> list[int]:
    """Bytes of one token's keys and values, by layer."""
    heads = max(whole.per_layer("attention.head_count"))
    head = whole.hidden // heads if heads else 0
    keys, values = whole.number("attention.key_length", head), whole.number("attention.value_length", head)
    per_layer = whole.per_layer("attention.head_count_kv")
    return [kv_bytes(kv_type, keys * count) + kv_bytes(kv_type, values * count) for count in per_layer]


def _vocabulary(target: Model) -> int:
    rows = target.vocabulary
    if rows is None:
        raise BuildError(f"no {EMBEDDING} in the target", target.where, FIX)
    return rows


def _runs(name: str, layers: int) -> bool:
    """Whether a tensor is loaded: those of layers that predict further tokens are not."""
    found = re.match(r"blk\.(\d+)\.", name)
    return not found or int(found[1]) < layers


def _padded(tokens: int) -> int:
    return -(-tokens // CELLS) * CELLS
