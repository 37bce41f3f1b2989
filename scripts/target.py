"""Compare the draft's vocabulary with the target as it is served, by the header of the published GGUF alone.

llama.cpp borrows embeddings and head from the served target and does not compare the two when it drafts with DFlash: a
target of another tokenizer, width or depth loads, and is quietly slow. Only metadata and tensor table are read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from scripts import core, fit, hub
from scripts.core import BuildError, Report
from scripts.draft_config import DraftConfig, read_draft_config
from scripts.fit import EMBEDDING
from scripts.gguf_remote import HubGgufs, choose, parts
from scripts.verify_gguf import GgufHeader, GgufTensor, open_gguf
from scripts.verify_vocab import Vocabulary, read_vocabulary

FIX = "name in target_gguf a GGUF made from the target's repository, or correct target"

File = TypeVar("File")


@dataclass(frozen=True)
class Served:
    """A target as it is served: metadata of its first file, the embedding's row of the tensor table, where it lies."""

    where: str
    values: Mapping[str, Any]
    embedding: GgufTensor | None
    files: int
    figures: Mapping[str, Any]


def read(files: Sequence[File], header: Callable[[File], GgufHeader]) -> tuple[GgufHeader, GgufTensor | None]:
    """The header of a model's first file, and its embedding from whichever file has it; no file is opened in vain."""
    first = found = header(files[0])
    for file in files[1:]:
        if EMBEDDING in found.tensors:
            break
        found = header(file)
    return first, found.tensors.get(EMBEDDING)


def from_hub(entry: Mapping[str, Any], quant: str) -> Served:
    """The target that llama.cpp would serve from a locked repository for a quant.

    Raises:
        BuildError: no such quant, a file that is no whole GGUF, or the Hub said no.
    """
    repo, commit = entry["repo"], entry["commit"]
    known = {file["path"]: file for file in entry["files"]}
    chosen = [known[path] for path in choose(list(known), quant, hub.page(repo))]
    source = HubGgufs(repo, commit)
    first, embedding = read(chosen, source.header)
    figures = {
        "repo": repo,
        "commit": commit,
        "quant": quant,
        "files": [file["path"] for file in chosen],
        "file_bytes": sum(file["size"] for file in chosen),
        "bytes_read": source.bytes_read,
        "requests": source.requests,
    }
    where = f"{hub.page(repo)}/blob/{commit}/{chosen[0]['path']}"
    return Served(where, first.values, embedding, len(chosen), figures)


def from_path(path: Path) -> Served:
    """A target on this machine; of a split one, the first file.

    Raises:
        BuildError: the file or a part is missing, or it is no whole GGUF.
    """
    names = [other.name for other in path.parent.glob("*.gguf")] if path.parent.is_dir() else []
    chosen = [path.parent / name for name in parts(path.name, names, str(path))] if path.name in names else [path]
    opened = []

    def header(file: Path) -> GgufHeader:
        try:
            opened.append(open_gguf(file))
        except BuildError as error:
            raise BuildError(error.what, error.where, "name a whole GGUF of the target in target_gguf.path") from error
        return opened[-1]

    first, embedding = read(chosen, header)
    figures = {
        "files": [file.name for file in chosen],
        "file_bytes": sum(file.stat().st_size for file in chosen),
        "bytes_read": sum(one.data_start for one in opened),
        "requests": 0,
    }
    return Served(str(path), first.values, embedding, len(chosen), figures)


def check(config: DraftConfig, vocabulary: Vocabulary, served: Served) -> Report:
    """Compare what the draft is built with and what it will be served with; failing checks are in the report.

    Args:
        config: the draft's config.
        vocabulary: what the prepared target's files say, with as many rows as the draft's config calls for.
        served: the served target.
    """
    values = served.values
    theirs = fit.from_header(values)
    needs = fit.Needs(config.hidden_size, config.mask_token_id, config.target_layer_ids, config.num_target_layers)
    report = Report(
        checks=[
            fit.parts_check(values, served.files),
            *fit.vocabulary_checks(fit.from_files(vocabulary), theirs),
            *fit.size_checks(needs, values, served.embedding),
        ]
    )
    report.figures = {
        **served.figures,
        "tokens": len(theirs.tokens),
        "draft_tokens": len(vocabulary.tokens),
        "compared_ids": max(0, min(len(theirs.tokens), len(vocabulary.tokens)) - fit.FROM),
        "rows": served.embedding.shape[0] if served.embedding else None,
        "layers": fit.layers(values),
    }
    return report


def main(argv: list[str] | None = None) -> int:
    """Command-line front; the report is written only when every check held."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--lock", type=Path, required=True, help="report of the lock step")
    arguments.add_argument("--draft", type=Path, required=True, help="folder with the draft's config.json")
    arguments.add_argument("--target", type=Path, required=True, help="the prepared target folder")
    arguments.add_argument(
        "--options", type=json.loads, required=True, help='JSON: {"repo", "quant"} or {"path"}, as in the config'
    )
    arguments.add_argument("--report", type=Path, required=True, help="where the JSON report goes")
    return core.run(arguments, _step, argv)


def _step(options: argparse.Namespace) -> None:
    if "path" in options.options:
        served = from_path(Path(options.options["path"]))
    else:
        locked = core.read_json(options.lock)["inputs"]
        if "target_gguf" not in locked:
            raise BuildError("the lock has no target_gguf", options.lock, "lock the pair again")
        served = from_hub(locked["target_gguf"], options.options["quant"])
    config = read_draft_config(options.draft / "config.json")
    report = check(config, read_vocabulary(options.target, config.vocab_size), served)
    report.settle(served.where, FIX)
    report.write(options.report)
    figures = report.figures
    name, read_, size = figures["files"][0], core.human(figures["bytes_read"]), core.human(figures["file_bytes"])
    core.say(
        f"{name} is served with this draft's vocabulary: {figures['compared_ids']} token texts equal; "
        f"{read_} of {size} read in {figures['requests']} requests"
    )


if __name__ == "__main__":
    sys.exit(main())
