"""The embedded pair: a tiny Qwen3.5 target and a DFlash draft that truly drafts for it."""

from __future__ import annotations

from pathlib import Path

DRAFT_REPO = "tiny-lab/TinyQwen3.5-DFlash"
BASE_REPO = "tiny-lab/TinyQwen3.5"
FINETUNE_REPO = "tiny-coder/TinyQwen3.5-Coder"
GGUF_REPO = "tiny-coder/TinyQwen3.5-Coder-GGUF"

REPO_FOLDERS = {DRAFT_REPO: "draft", BASE_REPO: "base", FINETUNE_REPO: "finetune", GGUF_REPO: "finetune-gguf"}
"""Repo id to the folder that :mod:`demo.pair.materialise` writes it to."""

FIXTURE = Path(__file__).with_name("fixture")
"""The committed weights: rows of the tokens in use and all other tensors."""
