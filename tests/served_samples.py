"""Small served targets for the tests of their headers: right by construction, to be doctored and put on a local Hub."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from demo.hub import HubServer
from scripts import lock
from tests import verify_samples as samples
from tests.verify_samples import Gguf

REPO = "demo-org/Served-GGUF"
Edit = Callable[[Gguf], object]


def embedding(rows: int = 30, width: int = 32) -> tuple[samples.Array, str]:
    return np.zeros((rows, width), np.float32), "F32"


def right() -> Gguf:
    """A served target that fits the sample draft: its metadata written out by hand, and an embedding."""
    tokenizer = {key: value for key, value in samples.right_gguf({}).values.items() if key.startswith("tokenizer.")}
    del tokenizer["tokenizer.ggml.mask_token_id"]
    values = {"general.architecture": "qwen35", "qwen35.block_count": 8, "qwen35.embedding_length": 32}
    return Gguf({**values, **tokenizer}, {"token_embd.weight": embedding()})


def served(folder: Path, edit: Edit = samples.unchanged, name: str = "Served-Q8_0.gguf") -> Path:
    built = right()
    edit(built)
    folder.mkdir(exist_ok=True)
    return built.write(folder / name)


def rows(*changed: int) -> Edit:
    def edit(file: Gguf) -> None:
        for row in changed:
            file.change_row("tokenizer.ggml.tokens", row, f"other{row}")

    return edit


def large(file: Gguf) -> None:
    """A header of more than 4 MB before 20 MB of data."""
    file.set("tokenizer.chat_template", "x" * 4_200_000)
    file.tensors["blk.0.ffn_up.weight"] = (np.zeros((5000, 1000), np.float32), "F32")


def locked(server: HubServer, folder: Path) -> dict[str, Any]:
    server.commit_folder(REPO, folder, "Add files")
    entry: dict[str, Any] = lock.resolve(REPO, "main")
    server.log.clear()
    return entry


def write_split(folder: Path, count: int, holder: int) -> Path:
    """A split model without data in its first file and the embedding in file ``holder``; returns the first."""
    first = right()
    tensors = dict(first.tensors)
    for number in range(1, count + 1):
        file = first if number == 1 else Gguf({"general.architecture": "qwen35"})
        file.set("split.count", count)
        file.tensors = tensors if number == holder else {f"blk.{number}.w": embedding()} if number > 1 else {}
        folder.mkdir(exist_ok=True)
        file.write(folder / f"Served-Q8_0-{number:05}-of-{count:05}.gguf")
    return folder / f"Served-Q8_0-00001-of-{count:05}.gguf"
