"""Which files of a repository llama.cpp takes for `-hf REPO:TAG` and `-hfd REPO:TAG`, from their names alone.

Names with `dflash-` in them, spelt so, are sidecars: a draft beside a model, which `-hfd` finds and `-hf` passes over.
Builds before llama.cpp's pull requests 25811 and 25955 know no sidecars and take models only. Newer ones that find no
sidecar take a model and read from its metadata what kind of draft it is.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scripts import core, hub
from scripts.core import BuildError

NOT_MODELS = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
"""What llama.cpp looks for in a file's name, as it is spelt here, to tell that the file is no model."""

SIDECARS = {"draft-mtp": "mtp-", "draft-dspark": "dspark-", "draft-dflash": "dflash-", "draft-eagle3": "eagle3-"}
"""Kinds of drafts (`--spec-type`) and what is in their files' names, in the order in which they are looked for."""

DEFAULT_TAGS = ("Q4_K_M", "Q8_0")
"""What is taken, in this order, where no tag is given."""

PRESET = "preset.ini"
"""A file in a repository's root that is taken in place of every model."""

_SPLIT = re.compile(r"(.+)-([0-9]{5})-of-([0-9]{5})", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"[-.]([A-Z0-9_]+)$", re.IGNORECASE)


@dataclass(frozen=True)
class Draft:
    """What `-hfd` takes: files, and the kind of draft that follows from their names (None: metadata has to tell)."""

    files: list[str]
    spec_type: str | None


def sidecar_name(target: str, quant: str) -> str:
    """The name of a draft's file as a sidecar; ``target`` is the repository it drafts for."""
    return f"{SIDECARS['draft-dflash']}{target.rpartition('/')[2]}-{quant}.gguf"


def split_repo_tag(text: str) -> tuple[str, str]:
    """Repository and tag of ``owner/name[:tag]``; the tag is empty where there is none.

    Raises:
        BuildError: it is not of this form.
    """
    repo, _, tag = text.partition(":")
    if repo.count("/") != 1 or not all(repo.split("/")):
        raise BuildError(f"no repository: {text!r}", "REPO[:TAG]", "write it as owner/name or owner/name:TAG")
    return repo, tag.rpartition(":")[2]


def split(path: str) -> tuple[str, int, int]:
    """A GGUF's path without its ending and part number, and which part of how many it is (1 of 1 when it is whole)."""
    stem = path.removesuffix(".gguf")
    match = _SPLIT.fullmatch(stem) if stem != path else None
    return (match[1], int(match[2]), int(match[3])) if match else (stem, 1, 1)


def tag_of(path: str) -> str | None:
    """The quant that a file's name ends with, as llama.cpp reads it."""
    match = _TAG.search(split(path)[0])
    return match[1].upper() if match else None


def label(path: str) -> str:
    """The quant that a file's name ends with; the name without ending and part number where it has none."""
    return tag_of(path) or split(path)[0].rpartition("/")[2]


def is_model(path: str) -> bool:
    """Whether a file counts as a model, judged by its name."""
    name = path.rpartition("/")[2]
    return path.endswith(".gguf") and not any(part in name for part in NOT_MODELS)


def models(paths: Sequence[str]) -> list[str]:
    """The models among some files; of a split one, its first part."""
    return [path for path in paths if is_model(path) and split(path)[1] == 1]


def parts(path: str, paths: Sequence[str]) -> list[str]:
    """The parts among ``paths`` of the model that ``path`` is the first part of."""
    stem, _, count = split(path)
    return [other for other in paths if split(other)[::2] == (stem, count)] if count > 1 else [path]


def best_model(paths: Sequence[str], tag: str | None = None) -> str | None:
    """The first model whose path has the tag with a dot or a dash behind it, in any case of letters.

    Without a tag the default ones are tried, and then any model is taken. A tag is no pattern here; llama.cpp takes it
    for one, which makes a difference only for tags that no file has.
    """
    found = models(paths)
    for wanted in [tag] if tag else DEFAULT_TAGS:
        for path in found:
            if re.search(f"{re.escape(wanted)}[.-]", path, re.IGNORECASE):
                return path
    return found[0] if found and not tag else None


def best_sidecar(paths: Sequence[str], keyword: str, model: str | None, tag: str = "") -> str | None:
    """The sidecar that goes with a model and a tag: nearest folder, then exact tag, then nearest number of bits.

    A sidecar in a folder that the model is not in is passed over; without a model only those in the root count.
    """
    folder = (model or "").split("/")[:-1]
    bits = _bits(tag) if tag else _bits((model and tag_of(model)) or "")

    def ranked() -> Iterator[tuple[tuple[int, bool, int], str]]:
        for path in paths:
            above = path.split("/")[:-1]
            if path.endswith(".gguf") and keyword in path and above == folder[: len(above)]:
                exact = bool(tag) and f"-{tag}.".upper() in path.upper()
                yield (-len(above), not exact, abs(_bits(tag_of(path) or "") - bits)), path

    # of equals the first: the order of the listing decides
    best = min(ranked(), key=lambda item: item[0], default=None)
    return best[1] if best else None


def _bits(tag: str) -> int:
    """The first number in a quant's name: 4 of IQ4_XS, 16 of BF16; 0 where there is none."""
    match = re.search("[0-9]+", tag)
    return int(match[0]) if match else 0


def serve(paths: Sequence[str], tag: str = "") -> list[str]:
    """The files of `-hf REPO:TAG`; none where nothing fits, or where a preset is taken in place of a model."""
    path = None if PRESET in paths else best_model(paths, tag)
    return parts(path, paths) if path else []


def draft(paths: Sequence[str], tag: str = "", spec_type: str | None = None) -> Draft:
    """The files of `-hfd REPO:TAG`, with `--spec-type` or without."""
    if PRESET in paths:
        return Draft([], spec_type)
    model = best_model(paths, tag)
    kinds = SIDECARS if spec_type is None else {key: word for key, word in SIDECARS.items() if key == spec_type}
    for kind, keyword in kinds.items():
        if found := best_sidecar(paths, keyword, model, tag):
            return Draft([found], kind)
    return Draft(parts(model, paths) if model else [], spec_type)


def main(argv: list[str] | None = None) -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("repo", help="REPO[:TAG], as after -hf or -hfd")
    arguments.add_argument("--spec-type", choices=list(SIDECARS), help="as given to llama-server")
    return core.run(arguments, _step, argv)


def _step(options: argparse.Namespace) -> None:
    repo, tag = split_repo_tag(options.repo)
    paths = sorted(file.rfilename for file in hub.info(repo).siblings or [])
    taken = draft(paths, tag, options.spec_type)
    if not taken.files:
        known = ", ".join(path for path in paths if path.endswith(".gguf")) or "none"
        raise BuildError(f"no GGUF of {repo} fits {tag or 'the default tags'}", hub.page(repo), f"there are: {known}")
    print(f"-hf:  {', '.join(serve(paths, tag)) or 'nothing'}")
    print(f"-hfd: {', '.join(taken.files)} ({taken.spec_type or 'kind of draft as its metadata says'})")


if __name__ == "__main__":
    sys.exit(main())
