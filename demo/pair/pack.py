"""The committed form of the weights: safetensors, compressed with xz and cut into parts of about a megabyte."""

from __future__ import annotations

import hashlib
import lzma
from pathlib import Path

import safetensors.torch
from torch import Tensor

from scripts import core

PART_BYTES = 1_300_000
"""The size of a part, in bytes."""


def write(folder: Path, stem: str, tensors: dict[str, Tensor]) -> None:
    """Write tensors as ``<stem>.safetensors.xz.00``, ``.01``, ... and their sha256 as ``<stem>.sha256``.

    The same tensors give the same bytes with the same liblzma; the sha256 is that of the uncompressed file.
    """
    data = safetensors.torch.save(dict(sorted(tensors.items())))
    packed = lzma.compress(data, format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC64, preset=9)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"{stem}.safetensors.xz.*"):
        old.unlink()
    for index, start in enumerate(range(0, len(packed), PART_BYTES)):
        with core.atomic(folder / f"{stem}.safetensors.xz.{index:02d}") as temporary:
            temporary.write_bytes(packed[start : start + PART_BYTES])
    with core.atomic(folder / f"{stem}.sha256") as temporary:
        temporary.write_text(f"{hashlib.sha256(data).hexdigest()}  {stem}.safetensors\n", encoding="utf-8")


def read(folder: Path, stem: str) -> dict[str, Tensor]:
    """Read what :func:`write` wrote.

    Raises:
        BuildError: parts are missing or are not what was written.
    """
    parts = sorted(folder.glob(f"{stem}.safetensors.xz.*"))
    checksum = folder / f"{stem}.sha256"
    restore = "restore the folder from version control"
    if not parts or not checksum.exists():
        raise core.BuildError("the weights of the embedded pair are missing", folder / stem, restore)
    try:
        data = lzma.decompress(b"".join(part.read_bytes() for part in parts))
    except (lzma.LZMAError, EOFError) as error:
        raise core.BuildError(f"the weights cannot be unpacked: {error}", folder / stem, restore) from error
    if hashlib.sha256(data).hexdigest() != checksum.read_text(encoding="utf-8").split()[0]:
        raise core.BuildError("the weights differ from their sha256", folder / stem, restore)
    tensors: dict[str, Tensor] = safetensors.torch.load(data)
    return tensors
