"""A small but complete set of reports, as the steps leave them, and the release folder made from it."""

import hashlib
from pathlib import Path
from typing import Any

from scripts import card, core, manifest, release

NAME = "Tiny-DFlash"
QUANTS = ("bf16", "Q8_0", "Q4_K_M")
OPTIONS: dict[str, Any] = {
    "block_size": 16,
    "publish": {"repo": "demo-org/Tiny-GGUF"},
    "target_gguf": {"repo": "owner/Target-GGUF", "quant": "Q8_0"},
    "serve": {"n_max": 15, "context": 4096, "kv_type": "q8_0", "checkpoints": 2, "fit_target": 256},
    "pictures": [],
    "mlx": None,
}


def ok(**figures: Any) -> dict[str, Any]:
    """A report whose one check held."""
    return {"ok": True, "checks": [{"name": "a check", "ok": True, "detail": "held"}], **figures}


def gguf(folder: Path, quant: str) -> dict[str, Any]:
    """A file with the quant's name in it and the verify report of it."""
    path = folder / f"{NAME}-{quant}.gguf"
    path.write_bytes(f"GGUF {quant}".encode() * 50)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    figures = {"file": path.name, "quant": quant, "bytes": path.stat().st_size, "bpw": 8.5, "sha256": digest}
    return ok(**figures, types={"F32": 1}, tensors=1, tensor_sha256={"fc.weight": digest})


def build(folder: Path, *, sidecar: bool = False) -> dict[str, Any]:
    """Write the GGUF files into ``folder`` and return the manifest over them."""
    folder.mkdir(parents=True, exist_ok=True)
    fetched = {
        role: ok(repo=f"owner/{role}", revision="main", commit=str(index) * 40, files=[])
        for index, role in enumerate(("draft", "target", "base"))
    }
    fields = {
        "general.name": NAME,
        "general.license": "apache-2.0",
        "general.tags": ["dflash", "speculative-decoding", "draft-model"],
    }
    vocabulary = ok(vocab_size=248320, padding_rows=243, mask_token={"id": 248077, "string": None})
    toolchain = ok(id="llama-1", commit="0c1e57098", compiler="c++ 12", flags=["-DGGML_NATIVE=OFF"])
    steps = {"convert": ok(general=fields), "vocab": vocabulary, "lock": ok(inputs={}), "tokenizer": ok()}
    verified = [gguf(folder, quant) for quant in QUANTS]
    return manifest.manifest("tiny", NAME, fetched, toolchain, steps, verified, sidecar=sidecar)


def closed(folder: Path, *, sidecar: bool = False) -> Path:
    """A closed release folder."""
    made = build(folder, sidecar=sidecar)
    for output in made["outputs"]:
        if sidecar:
            core.symlink(folder / output["file"], folder / output["sidecar"])
    core.write_json(folder / "manifest.json", made)
    (folder / "README.md").write_text(card.render(made, OPTIONS))
    known = {output["file"]: output["sha256"] for output in made["outputs"]}
    known |= {output["sidecar"]: output["sha256"] for output in made["outputs"] if sidecar}
    release.close(folder, [*known, "README.md", "manifest.json"], known)
    return folder
