"""Download one locked input through the Hub cache, check every file and put it in results/<pair>/source/<role>/.

From the draft: weights, config, README and license. From a target: its config and tokenizer files only, never a byte
of its weights. huggingface_hub checks sizes, not checksums, so every file is hashed here and compared with the lock.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2
from huggingface_hub import hf_hub_download

from scripts import core, hub
from scripts.core import BuildError, Report
from scripts.safetensors_header import check_weights, read_index

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"

DRAFT_TEXTS = ("config.json", "README.md", "LICENSE*")
TOKENIZER_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)
"""What is taken of a target, by exact name: a new file type of a repository is never fetched unasked."""

NEEDED = {"draft": ("config.json",), "target": ("config.json", "tokenizer.json", "tokenizer_config.json")}
"""What a repository has to have; a base, or a target for MLX, has to have what a target has."""

COPIED = 1 << 20
"""Files below this many bytes are copied from the cache: Snakemake touches its outputs, and the config is one."""

PICKLES = ("mask_embedding.pt",)
"""Files that the converter would load into the draft, as pickles; a draft that needs one is refused."""


def select(role: str, paths: Sequence[str], where: str) -> list[str]:
    """The files of a repository that one role needs, sorted; shards of an index are added by :func:`fetch`.

    Raises:
        BuildError: a file that the role cannot do without is not there, or the draft needs a pickle.
    """
    patterns = DRAFT_TEXTS if role == "draft" else TOKENIZER_FILES
    tops = [path for path in paths if "/" not in path]  # "*" of a pattern would match a slash
    chosen = [path for path in tops if any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)]
    for name in NEEDED["draft" if role == "draft" else "target"]:
        if name not in chosen:
            raise BuildError(
                f"the {role} has no {name}", where, f"name a repository of a {role} in transformers' layout"
            )
    if role == "draft":
        for name in PICKLES:
            if name in paths:
                raise BuildError(f"the draft needs {name}, a pickle", where, "use a draft in safetensors only")
        weights = INDEX if INDEX in paths else WEIGHTS
        if weights not in paths:
            raise BuildError(f"the draft has no {WEIGHTS}", where, "use a draft whose weights are safetensors")
        chosen.append(weights)
    return sorted(chosen)


def fetch(entry: Mapping[str, Any], role: str, out: Path) -> Report:
    """Download and check the files of one locked input, then link them into ``out``.

    A file that is in the Hub cache already is not downloaded again, but hashed again; one that fails its checksum is
    fetched once more. ``out`` holds exactly the selected files afterwards.

    Raises:
        BuildError: a file is missing, does not have its checksum, or is not what a draft's weights have to be.
    """
    known = {file["path"]: file for file in entry["files"]}
    where = f"{hub.page(entry['repo'])}/tree/{entry['commit']}"
    paths = select(role, list(known), where)
    report = Report(figures={key: entry[key] for key in ("repo", "revision", "commit")})
    files: list[dict[str, Any]] = []
    out.mkdir(parents=True, exist_ok=True)
    while paths:
        path = paths.pop(0)
        cached = checked(entry, known[path])
        core.link_or_copy(cached, out / path, copied_below=COPIED)
        files.append(known[path])
        if path == INDEX:
            paths += _shards(out / path, known, where)
    for stray in sorted(out.rglob("*")):
        if stray.is_file() and stray.relative_to(out).as_posix() not in {file["path"] for file in files}:
            stray.unlink()
    report.check("checksums", True, f"{len(files)} files match the sha256 or git blob id of commit {entry['commit']}")
    if role == "draft":
        check_weights(out)
        report.check("weights", True, "safetensors headers parse, end where the file ends, every tensor is BF16")
    report.figures.update(bytes=sum(file["size"] for file in files), files=sorted(files, key=lambda file: file["path"]))
    return report


def _shards(index: Path, known: Mapping[str, Any], where: str) -> list[str]:
    """The shard files that an index names."""
    shards = sorted(set(read_index(index).values()))
    for shard in shards:
        if shard not in known:
            raise BuildError(f"shard {shard} is in the index but not in the repository", where, "use a complete draft")
    return shards


def checked(entry: Mapping[str, Any], file: Mapping[str, Any]) -> Path:
    """The cached copy of one file, its checksum verified; a wrong one is dropped and fetched once more."""
    found = ""
    for attempt in range(2):
        cached = _download(entry, file["path"], force=attempt > 0)
        found = wrong(cached, file)
        if not found:
            return cached
        core.say(f"{file['path']}: {found}{'; fetching it again' if attempt == 0 else ''}")
        cached.resolve().unlink(missing_ok=True)
    raise BuildError(
        f"{file['path']} of {entry['repo']} is not what the Hub vouches for: {found}",
        hub.page(entry["repo"]),
        "run again; if it stays so, the file on the Hub or the way to it is damaged",
    )


def wrong(path: Path, file: Mapping[str, Any]) -> str:
    """What is wrong with a file against its lock entry ({path, size, sha256 or git}); empty when nothing is."""
    size = path.stat().st_size
    if size != file["size"]:
        return f"{size} bytes instead of {file['size']}"
    if "sha256" in file:
        kind, have = "sha256", core.sha256_file(path, f"checking {file['path']}")
    else:
        kind, have = "git", core.git_blob_id(path)
    return "" if have == file[kind] else f"{kind} {have} instead of {file[kind]}"


def _download(entry: Mapping[str, Any], path: str, *, force: bool) -> Path:
    """One file through the Hub cache; partial downloads resume."""
    with hub.explained(entry["repo"], f"file {path} at {entry['commit']}"):
        return Path(
            # a transfer that stalls is taken up again by the client, five times without a byte
            hub.persistent(httpx2.TimeoutException)(
                hf_hub_download,
                entry["repo"],
                path,
                revision=entry["commit"],
                force_download=force,
                library_name=hub.LIBRARY,
                tqdm_class=hub.Bytes,
            )
        )


def main() -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--lock", required=True, type=Path, help="report of the lock step")
    arguments.add_argument("--role", required=True, choices=("draft", "target", "base", "mlx_target"))
    arguments.add_argument("--out", required=True, type=Path, help="folder to put the files in")
    arguments.add_argument("--report", required=True, type=Path)
    return core.run(arguments, _step)


def _step(options: argparse.Namespace) -> None:
    entry = core.read_json(options.lock)["inputs"][options.role]
    fetch(entry, options.role, options.out).write(options.report)


if __name__ == "__main__":
    sys.exit(main())
