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

from scripts import core, hub
from scripts.core import BuildError, Check, Report
from scripts.draft_config import DraftConfig, read_draft_config
from scripts.gguf_remote import HubGgufs, choose, parts
from scripts.verify_gguf import GgufHeader, GgufTensor, open_gguf
from scripts.verify_vocab import MODEL, PRE, SPECIAL_KEYS, Vocabulary, read_vocabulary

APART, FROM = 128, 5
"""llama.cpp's own limits: how many tokens two vocabularies may differ by, and the first id whose text is compared."""

EMBEDDING = "token_embd.weight"
SHOWN = 3
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
    tokens = values.get("tokenizer.ggml.tokens")
    tokens = tokens if isinstance(tokens, list) else []
    parts_said = values.get("split.count") or 1  # 0 in a file that was put together again
    report = Report(
        checks=[
            Check("split.count", parts_said == served.files, f"{served.files} files, the GGUF says {parts_said}"),
            _equal("tokenizer.ggml.model", MODEL, values),
            _equal("tokenizer.ggml.pre", PRE, values),
            *(_added(kind, vocabulary, values) for kind in ("bos", "eos")),
            _count(len(vocabulary.tokens), len(tokens)),
            _texts(vocabulary.tokens, tokens),
            *_sizes(config, served),
        ]
    )
    report.figures = {
        **served.figures,
        "tokens": len(tokens),
        "draft_tokens": len(vocabulary.tokens),
        "compared_ids": max(0, min(len(tokens), len(vocabulary.tokens)) - FROM),
        "rows": served.embedding.shape[0] if served.embedding else None,
        "layers": _layers(values),
    }
    return report


def _said(value: Any) -> str:
    return "nothing" if value is None else repr(value)


def _equal(key: str, ours: Any, values: Mapping[str, Any]) -> Check:
    theirs = values.get(key)
    return Check(key, theirs == ours, f"draft {_said(ours)}, served target {_said(theirs)}")


def _added(kind: str, vocabulary: Vocabulary, values: Mapping[str, Any]) -> Check:
    """Whether bos or eos is put around a text, and which id where it is.

    Absent, both are false for the one pre-tokenizer that is accepted (llama.cpp, llama-vocab.cpp).
    """
    key = f"tokenizer.ggml.add_{kind}_token"
    theirs, ours = values.get(key, False), vocabulary.adds.get(kind, False)
    special = vocabulary.special_ids.get(kind)
    our_id, their_id = special[0] if special else None, values.get(SPECIAL_KEYS[kind])
    if theirs != ours or not ours:
        return Check(key, theirs == ours, f"draft {ours}, served target {theirs}")
    return Check(key, our_id == their_id, f"both add {kind}: draft id {_said(our_id)}, served target {_said(their_id)}")


def _count(ours: int, theirs: int) -> Check:
    apart = abs(ours - theirs)
    detail = f"draft {ours}, served target {theirs}"
    if apart > APART:
        detail += f": {apart} apart, llama.cpp allows {APART}; rows without a token (padding) count too"
    return Check("token count", bool(theirs) and apart <= APART, detail)


def _texts(ours: Sequence[str], theirs: Sequence[str]) -> Check:
    """The text of every id that both have, from llama.cpp's first on; the first three differences are shown."""
    rows = list(zip(ours, theirs, strict=False))[FROM:]
    different = [(number, *row) for number, row in enumerate(rows, FROM) if row[0] != row[1]]
    shown = [f"id {number} is {mine!r} in the draft, {yours!r} served" for number, mine, yours in different[:SHOWN]]
    more = f"; {len(different)} differ in all" if len(different) > SHOWN else ""
    return Check("token texts", not different, "; ".join(shown) + more or f"{len(rows)} equal from id {FROM} on")


def _layers(values: Mapping[str, Any]) -> int | None:
    """Layers that a draft can tap: without those that predict further tokens, which llama.cpp counts at the end."""
    family = values.get("general.architecture")
    blocks, extra = values.get(f"{family}.block_count"), values.get(f"{family}.nextn_predict_layers", 0)
    return blocks - extra if type(blocks) is int and type(extra) is int else None


def _sizes(config: DraftConfig, served: Served) -> list[Check]:
    """Mask row, hidden size and taps against the served target's embedding and layers."""
    family = served.values.get("general.architecture")
    rows, width = served.embedding.shape[-2:] if served.embedding and len(served.embedding.shape) > 1 else (None, None)
    layers, last = _layers(served.values), config.target_layer_ids[-1]
    said = f"draft {config.num_target_layers} with taps {list(config.target_layer_ids)}, served target {_said(layers)}"
    has = f"no {EMBEDDING}" if rows is None else f"an embedding of {rows} rows"
    return [
        Check(
            "mask row",
            rows is not None and config.mask_token_id < rows,
            f"mask token {config.mask_token_id}, the served target has {has}",
        ),
        _equal(f"{family}.embedding_length", config.hidden_size, served.values),
        Check(EMBEDDING, width == config.hidden_size, f"draft {config.hidden_size}, served target {_said(width)}"),
        Check("taps", layers is not None and last < layers, f"layers: {said}"),
        Check("target layers", layers == config.num_target_layers, said),
    ]


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
