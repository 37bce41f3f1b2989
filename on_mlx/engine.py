"""A target and its draft in dflash-mlx: load both, answer prompts, and count as llama.cpp counts.

dflash-mlx divides the accepted tokens by all tokens of the answer; here they are divided by the drafted ones, as
llama.cpp does, and nothing that follows the end of an answer counts as accepted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import mlx.core as mx
from dflash_mlx.diagnostics import DiagnosticsConfig, TraceConfig
from dflash_mlx.engine import spec_epoch
from dflash_mlx.engine.copyspec import CopySpecIndex
from dflash_mlx.engine.events import CycleCompleteEvent, PrefillCompleteEvent, SummaryEvent, TokenEvent
from dflash_mlx.runtime import get_stop_token_ids, stream_dflash_generate
from dflash_mlx.runtime.bundle import RuntimeBundle, load_runtime_bundle
from dflash_mlx.runtime.context import RuntimeContext, build_offline_runtime_config, build_runtime_context
from mlx_lm.generate import generate_step

DRAFT, COPIES = "dflash", "copyspec"
"""Where drafted tokens come from: the draft, or a copy of what followed the same tokens before."""

PACKAGES = ("dflash-mlx", "mlx", "mlx-lm", "transformers")


def versions() -> dict[str, str]:
    """Package -> version of what answers."""
    return {name: metadata.version(name) for name in PACKAGES} | {"device": str(mx.default_device())}


class NoCopies(CopySpecIndex):  # type: ignore[misc]
    """An index that never finds anything.

    dflash-mlx also drafts by copying what followed the same tokens before, in the prompt or the answer. There is no
    switch for it, and it would answer for the draft where the draft is measured.
    """

    def __init__(self, prompt_tokens: Sequence[int]) -> None:
        """As the engine makes it."""
        super().__init__(prompt_tokens)
        self._enabled = False


@dataclass
class Cycle:
    """One pass of the target over an anchor and drafted tokens."""

    drafted: int
    """Drafted tokens that the target was shown."""
    accepted: int
    source: str
    """:data:`DRAFT` or :data:`COPIES`."""


@dataclass
class Answer:
    """One answer, with tokens as ids; times in seconds since the request."""

    prompt_tokens: int
    tokens: list[int]
    text: str
    texts: list[str]
    """The text of each token."""
    times: list[float]
    """When each token came; those of one pass come together."""
    stop: str
    """``eos`` or ``limit``."""
    cycles: list[Cycle] = field(default_factory=list)
    prefill_s: float = 0.0
    peak_gb: float | None = None
    """Memory that MLX had at most, in units of 10^9 bytes."""
    their_acceptance: float | None = None
    """The ratio that dflash-mlx itself reports: accepted over generated tokens."""


class Pair:
    """A loaded target and draft."""

    def __init__(self, target: str, draft: str, draft_quant: str | None, block: int | None, copies: bool) -> None:
        """Load both.

        Args:
            target: folder of the target.
            draft: folder of the draft.
            draft_quant: as dflash-mlx's ``--draft-quant``; None leaves the draft as it is stored.
            block: tokens of a verified block, the anchor included; None is the draft's block size.
            copies: whether tokens may be drafted by copying too, as dflash-mlx does for people.
        """
        self.block, self.copies = block, copies
        self.context = _context(block)
        self.bundle: RuntimeBundle = load_runtime_bundle(
            model_ref=target, draft_ref=draft, draft_quant=draft_quant or "none", verify_config=self.context.verify
        )
        self.stops: list[int] = list(get_stop_token_ids(self.bundle.tokenizer))

    def encode(self, text: str) -> list[int]:
        """Token ids of raw text, special tokens read as such and none added."""
        return [int(token) for token in self.bundle.tokenizer.encode(text, add_special_tokens=False)]

    def template(self, messages: Sequence[dict[str, str]], thinking: bool) -> str:
        """The prompt that the target's chat template makes of messages."""
        text = self.bundle.tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True, enable_thinking=thinking
        )
        return str(text)

    def answer(self, prompt: Sequence[int], predict: int, draft: bool) -> Answer:
        """Answer a prompt greedily with at most ``predict`` tokens, with the draft or without."""
        mx.reset_peak_memory()
        if not draft:
            return self._baseline(prompt, predict)
        spec_epoch.CopySpecIndex = CopySpecIndex if self.copies else NoCopies
        return self._collect(
            len(prompt),
            predict,
            stream_dflash_generate(
                target_model=self.bundle.target_model,
                target_ops=self.bundle.target_ops,
                tokenizer=self.bundle.tokenizer,
                prompt="",
                prompt_tokens_override=list(prompt),
                max_new_tokens=predict,
                stop_token_ids=self.stops,
                draft_model=self.bundle.draft_model,
                draft_backend=self.bundle.draft_backend,
                runtime_context=self.context,
            ),
        )

    def _baseline(self, prompt: Sequence[int], predict: int) -> Answer:
        """The answer that mlx-lm gives without dflash-mlx's loop."""
        start = time.perf_counter()
        tokens: list[int] = []
        times: list[float] = []
        for token, _ in generate_step(mx.array(prompt), self.bundle.target_model, max_tokens=predict):
            tokens.append(int(token))
            times.append(time.perf_counter() - start)
            if tokens[-1] in self.stops:
                break
        return self._made(len(prompt), tokens, times, [], times[0], None)

    def _collect(self, prompt_tokens: int, predict: int, events: Iterator[Any]) -> Answer:
        start = time.perf_counter()
        tokens: list[int] = []
        times: list[float] = []
        cycles: list[Cycle] = []
        prefill, summary = 0.0, None
        for event in events:
            if isinstance(event, TokenEvent):
                tokens.append(int(event.token_id))
                times.append(time.perf_counter() - start)
            elif isinstance(event, CycleCompleteEvent):
                drafted = max(0, int(event.verify_token_count or event.block_len) - 1)
                cycles.append(Cycle(drafted, int(event.acceptance_len), str(event.draft_source)))
            elif isinstance(event, PrefillCompleteEvent):
                prefill = event.prefill_us / 1e6
            elif isinstance(event, SummaryEvent):
                summary = event
        if summary is None:
            raise RuntimeError("dflash-mlx ended without its summary")
        cycles += unsaid(summary, cycles, predict)
        return self._made(prompt_tokens, tokens, times, cycles, prefill, float(summary.acceptance_ratio))

    def _made(
        self,
        prompt_tokens: int,
        tokens: list[int],
        times: list[float],
        cycles: list[Cycle],
        prefill: float,
        ratio: float | None,
    ) -> Answer:
        """The answer up to its end, whatever the last pass gave beyond it."""
        end = next((at for at, token in enumerate(tokens) if token in self.stops), None)
        kept = tokens if end is None else tokens[: end + 1]
        return Answer(
            prompt_tokens=prompt_tokens,
            tokens=kept,
            text=str(self.bundle.tokenizer.decode(kept if end is None else kept[:end])),
            texts=[str(self.bundle.tokenizer.decode([token])) for token in kept],
            times=times[: len(kept)],
            stop="limit" if end is None else "eos",
            cycles=within(cycles, len(kept), end is not None),
            prefill_s=prefill,
            peak_gb=mx.get_peak_memory() / 1e9,
            their_acceptance=ratio,
        )


def unsaid(summary: SummaryEvent, cycles: Sequence[Cycle], predict: int) -> list[Cycle]:
    """The last pass of an answer that ended by itself: dflash-mlx gives no event for it, its summary counts it.

    Raises:
        RuntimeError: the summary counts other passes than the events do.
    """
    accepted = [int(length) for length in summary.acceptance_history]
    if accepted[: len(cycles)] != [cycle.accepted for cycle in cycles] or len(accepted) > len(cycles) + 1:
        raise RuntimeError(f"dflash-mlx's summary counts {accepted}, its events {cycles}")
    room = predict - sum(1 + cycle.accepted for cycle in cycles)
    shown = min(room, int(summary.block_tokens or room), int(summary.verify_len_cap or room))
    copied = int(summary.copyspec_hits) > sum(cycle.source == COPIES for cycle in cycles)
    return [Cycle(max(0, shown - 1), last, COPIES if copied else DRAFT) for last in accepted[len(cycles) :]]


def within(cycles: Sequence[Cycle], tokens: int, ended: bool) -> list[Cycle]:
    """The passes of an answer of so many tokens, counted as llama.cpp counts them.

    A pass gives its anchor and what was accepted after it. Where the end of the answer was drafted, llama.cpp takes it
    from the target instead, and does not accept it nor what follows.
    """
    kept: list[Cycle] = []
    before = 0
    for cycle in cycles:
        room = max(0, tokens - before - 1 - int(ended))
        kept.append(Cycle(cycle.drafted, min(cycle.accepted, room), cycle.source))
        before += 1 + cycle.accepted
        if before >= tokens:
            break
    # A pass whose anchor is the end itself drafts for nothing; llama.cpp does not make it.
    if ended and kept and before - 1 - cycles[len(kept) - 1].accepted == tokens - 1:
        kept.pop()
    return kept


def _context(block: int | None) -> RuntimeContext:
    """Blocks of one length, whatever the acceptance, and an event for each pass."""
    runtime = build_offline_runtime_config(verify_mode="dflash", verify_len_cap=block)
    return build_runtime_context(runtime, DiagnosticsConfig(mode="full", trace=TraceConfig(cycle_events=True)))
