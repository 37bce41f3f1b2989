"""The corpus as tensors over the rows of the vocabulary that it uses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from demo.pair import configs, corpus, tokenizer
from scripts import core


@dataclass(frozen=True)
class Encoded:
    """A sample as row numbers: ``ids`` [positions] of prompt and answer, answer from position ``start`` on."""

    sample: corpus.Sample
    ids: Tensor
    start: int


@dataclass(frozen=True)
class Data:
    """All samples, and the vocabulary ids [rows] of the rows in use, ascending; the mask is one of them."""

    samples: list[Encoded]
    token_ids: Tensor

    @property
    def mask_row(self) -> int:
        """The row of the mask token."""
        return int((self.token_ids == configs.MASK_TOKEN).nonzero().item())

    def of_kind(self, kind: str) -> list[int]:
        """Indices of the samples that are trained on, of one kind."""
        return [i for i, encoded in enumerate(self.samples) if encoded.sample.seen and encoded.sample.kind == kind]


def load(tokenizer_folder: Path) -> Data:
    """Encode the whole corpus, unseen prompts too, with the finetune's tokenizer.

    Raises:
        BuildError: a prompt and its answer merge to other tokens than they are on their own.
    """
    reader = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))

    def encode(text: str) -> list[int]:
        ids: list[int] = reader.encode(text, add_special_tokens=False).ids
        return ids

    encoded = []
    for sample in corpus.training_samples() + corpus.unseen_samples():
        prompt, answer = encode(sample.prompt), encode(sample.answer)
        if encode(sample.prompt + sample.answer) != prompt + answer:
            raise core.BuildError("tokens straddle prompt and answer", sample.name, "change the template")
        encoded.append((sample, prompt, answer))
    used = {configs.MASK_TOKEN, tokenizer.PADDING, *(token for _, p, a in encoded for token in p + a)}
    token_ids = torch.tensor(sorted(used))
    row = {token: index for index, token in enumerate(token_ids.tolist())}
    samples = [Encoded(s, torch.tensor([row[token] for token in p + a]), len(p)) for s, p, a in encoded]
    return Data(samples, token_ids)


def batch(samples: list[Encoded], fill: int) -> tuple[Tensor, Tensor]:
    """Pad samples on the right with row ``fill``: ids [batch, positions], and which positions are answer (bool)."""
    longest = max(len(encoded.ids) for encoded in samples)
    ids = torch.full((len(samples), longest), fill)
    answer = torch.zeros(len(samples), longest, dtype=torch.bool)
    for line, encoded in enumerate(samples):
        ids[line, : len(encoded.ids)] = encoded.ids
        answer[line, encoded.start : len(encoded.ids)] = True
    return ids, answer
