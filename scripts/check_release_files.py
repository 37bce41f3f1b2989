"""Whether a release holds the files it says it holds: the listing against SHA256SUMS and the manifest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from scripts.check_release_source import ASK, DAMAGED, OURS, Release
from scripts.core import BuildError, Progress
from scripts.release import SUMS
from scripts.verdict import Finding
from scripts.verify_gguf import GgufFile, open_gguf


def names(release: Release) -> Iterable[Finding]:
    """Every file is named by SHA256SUMS, and every name in it is a file."""
    listed, named = set(release.files), set(release.sums) | {SUMS}
    faults = [f"{path} is not in {SUMS}" for path in sorted(listed - named)]
    faults += [f"{path} is missing" for path in sorted(named - listed)]
    faults += [f"{path} is missing" for path in OURS if path not in listed | named]
    yield Finding("names", not faults, _list(faults) or f"{len(named)} files, all of {SUMS}", ASK)


def checksums(release: Release) -> Iterable[Finding]:
    """Every file has the sha256 that SHA256SUMS gives it."""
    faults, unread = [], []
    for path, wanted in release.sums.items():
        if path not in release.files:
            continue  # a missing name has its own finding
        have = release.sha256(path)
        if have is None:
            unread.append(path)
        elif have != wanted:
            faults.append(f"{path} is {have}, {SUMS} says {wanted}")
    compared = f"{len(release.sums) - len(unread)} of {len(release.sums)} files have theirs"
    if unread and not faults:
        compared = f"warning: {compared}; the GGUF files of a folder are not hashed without --full"
    yield Finding(SUMS, not faults, _list(faults) or compared, DAMAGED if faults else "")


def outputs(release: Release) -> Iterable[Finding]:
    """Every GGUF is one of the manifest's, with its size and sha256; another name of the same bytes is one too."""
    faults = []
    for path, output in release.outputs.items():
        file = release.files.get(path)
        if file is None:
            faults.append(f"{path} is missing")
            continue
        if file["size"] != output["bytes"]:
            faults.append(f"{path} has {file['size']} bytes, the manifest says {output['bytes']}")
        for source, have in (("the file", release.sha256(path)), (SUMS, release.sums.get(path))):
            if have not in (None, output["sha256"]):
                faults.append(f"{path}: sha256 of {source} {have}, of the manifest {output['sha256']}")
    known = {output["sha256"] for output in release.outputs.values()}
    others = [path for path in release.files if path.endswith(".gguf") and path not in release.outputs]
    faults += [f"{path} is not in the manifest" for path in others if release.sums.get(path) not in known]
    alias = f", {len(others)} more names of them" if others else ""
    detail = f"{len(release.outputs)} GGUF files with the manifest's sizes and sha256{alias}"
    yield Finding("manifest", not faults, _list(faults) or detail, ASK)


def every_byte(release: Release) -> Iterable[Finding]:
    """With ``--full``: every file and the data of every tensor are hashed."""
    if not release.full:
        return
    for path, output in release.outputs.items():
        if path not in release.files:
            continue
        try:
            file = open_gguf(release.local(path))
        except BuildError as error:
            yield Finding(f"every byte of {path}", False, error.what, DAMAGED)
            continue
        faults = _tensor_faults(file, output["tensor_sha256"], output["sha256"])
        detail = f"{file.size} bytes and {len(file.tensors)} tensors have the manifest's sha256"
        yield Finding(f"every byte of {path}", not faults, _list(faults) or detail, DAMAGED)


def _tensor_faults(file: GgufFile, tensors: dict[str, str], whole: str) -> list[str]:
    """What differs from the manifest, of the file and of each tensor's data, in one pass."""
    digest, at, faults = hashlib.sha256(), 0, []
    with Progress(f"hashing {file.path.name}", file.size) as progress:
        for tensor in sorted(file.tensors.values(), key=lambda tensor: tensor.begin):
            data = file.map_bytes(tensor.begin, tensor.end).data
            digest.update(file.map_bytes(at, tensor.begin).data)
            digest.update(data)
            have, wanted = hashlib.sha256(data).hexdigest(), tensors.get(tensor.name)
            if have != wanted:
                faults.append(f"{tensor.name} is {have}, the manifest says {wanted or 'nothing'}")
            at = tensor.end
            progress.set(at)
        digest.update(file.map_bytes(at, file.size).data)
    have = digest.hexdigest()
    return faults + [f"the file is {have}, the manifest says {whole}"] * (have != whole)


def _list(faults: Sequence[str]) -> str:
    """The first three faults, and how many there are."""
    return "; ".join(faults[:3]) + (f"; {len(faults)} in all" if len(faults) > 3 else "")
