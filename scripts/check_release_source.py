"""A published release as it lies on the Hub or in a folder: its listing, its texts, its files' headers."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from huggingface_hub import ModelCard

from scripts import core, fetch, hub, lock
from scripts.core import BuildError
from scripts.gguf_remote import HubGgufs
from scripts.release import SUMS, sums_of
from scripts.verify_gguf import GgufHeader, open_gguf

MANIFEST, CARD = "manifest.json", "README.md"
OURS = (SUMS, MANIFEST, CARD)
"""What every release has beside its GGUF files."""

NOT_OURS = (".gitattributes",)
"""What the Hub itself puts into a repository."""

ASK = "ask its publisher, and do not use it until it is explained"
DAMAGED = "download it again; if it stays so, " + ASK

_REPO = re.compile(r"([\w.-]+/[\w.-]+)(?:@([^@]+))?")
_SHA256 = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_NUMBER = {"type": "integer", "minimum": 0}
_INPUT = {"type": "object", "required": ["repo"], "properties": {"repo": {"type": "string"}}}
_SCHEMA = {
    "type": "object",
    "required": ["name", "general", "inputs", "outputs"],
    "properties": {
        "name": {"type": "string"},
        "general": {"type": "object", "required": ["general.name", "general.license"]},
        "inputs": {"type": "object", "required": ["draft", "target"], "additionalProperties": _INPUT},
        "outputs": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["file", "quant", "bytes", "bpw", "sha256", "types", "tensors", "tensor_sha256"],
                "properties": {
                    "file": {"type": "string", "pattern": r"\.gguf$"},
                    "quant": {"type": "string"},
                    "bytes": _NUMBER,
                    "bpw": {"type": "number"},
                    "sha256": _SHA256,
                    "types": {"type": "object", "additionalProperties": _NUMBER},
                    "tensors": _NUMBER,
                    "tensor_sha256": {"type": "object", "additionalProperties": _SHA256},
                },
            },
        },
    },
}
"""What a manifest has to hold to be compared with; see :mod:`scripts.manifest` for all that it holds."""


class Release(ABC):
    """A release: ``files`` has size in bytes and ``sha256`` or ``git`` id of each, as far as they are known unread.

    ``full`` says that every byte is to be read; ``bytes_read`` counts what was, ``requests`` what the Hub was asked:
    its listing, each range and each file.
    """

    def __init__(self, where: str, files: Mapping[str, Mapping[str, Any]], *, full: bool) -> None:
        self.where, self.full = where, full
        self.files = {path: file for path, file in files.items() if path not in NOT_OURS}
        self.bytes_read = self.requests = 0
        self._local: dict[str, Path] = {}
        self._sha256: dict[str, str] = {path: file["sha256"] for path, file in self.files.items() if "sha256" in file}

    @abstractmethod
    def _get(self, path: str) -> Path:
        """The whole of a file, on this machine."""

    @abstractmethod
    def _read_header(self, path: str) -> GgufHeader:
        """The header of a GGUF whose other bytes are not to be read."""

    def local(self, path: str) -> Path:
        """The whole of a file, on this machine; got once."""
        if path not in self._local:
            self._local[path] = self._get(path)
            self.bytes_read += self.files[path]["size"]
        return self._local[path]

    def header(self, path: str) -> GgufHeader:
        """The header of a GGUF."""
        if not self.full:
            return self._read_header(path)
        try:
            return open_gguf(self.local(path))
        except BuildError as error:
            raise BuildError(error.what, error.where, DAMAGED) from error

    def sha256(self, path: str) -> str | None:
        """The sha256 of a file: the Hub's, or of its bytes; None of a GGUF whose bytes are not to be read."""
        if path not in self._sha256:
            if path.endswith(".gguf") and not self.full:
                return None
            self._sha256[path] = core.sha256_file(self.local(path), f"hashing {path}")
        return self._sha256[path]

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(file["size"] for file in self.files.values())

    def text(self, path: str) -> Path:
        """One of the release's own texts.

        Raises:
            BuildError: it is not there.
        """
        if path not in self.files:
            raise BuildError(f"there is no {path}", self.where, "name a release of this project")
        return self.local(path)

    @cached_property
    def sums(self) -> dict[str, str]:
        """File -> sha256, as SHA256SUMS has them."""
        path = self.text(SUMS)
        try:
            return sums_of(path, ASK)
        except BuildError as error:
            raise BuildError(error.what, self.where, ASK) from error

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The manifest, with at least what :data:`_SCHEMA` asks for."""
        path = self.text(MANIFEST)
        try:
            value = core.read_json(path)
            jsonschema.validate(value, _SCHEMA)
        except BuildError as error:
            raise BuildError(f"{MANIFEST} is {error.what}", self.where, ASK) from error
        except jsonschema.ValidationError as error:
            place = ".".join(str(part) for part in error.absolute_path) or MANIFEST
            raise BuildError(f"{MANIFEST}: {place}: {error.message[:200]}", self.where, ASK) from error
        return dict(value)

    @cached_property
    def outputs(self) -> dict[str, dict[str, Any]]:
        """The manifest's GGUF files by name."""
        return {output["file"]: output for output in self.manifest["outputs"]}

    @cached_property
    def card(self) -> ModelCard:
        """The model card."""
        path = self.text(CARD)
        try:
            return ModelCard(path.read_text(encoding="utf-8"))
        except (ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
            raise BuildError(f"{CARD} is no model card: {error}", self.where, ASK) from error


class HubRelease(Release):
    """A release on the Hub, at the commit that a revision is now."""

    def __init__(self, repo: str, revision: str, *, full: bool) -> None:
        self.entry = lock.resolve(repo, revision)
        self.repo, self.commit = repo, self.entry["commit"]
        files = {file["path"]: file for file in self.entry["files"]}
        super().__init__(f"{hub.page(repo)}/tree/{self.commit}", files, full=full)
        self.requests = 1

    def _get(self, path: str) -> Path:
        """The file in the Hub cache, compared with what the listing says of it."""
        self.requests += 1
        return fetch.checked(self.entry, self.files[path])

    def _read_header(self, path: str) -> GgufHeader:
        """The header, with HTTP Range."""
        source = HubGgufs(self.repo, self.commit, DAMAGED)
        try:
            return source.header(self.files[path])
        finally:
            self.requests += source.requests
            self.bytes_read += source.bytes_read


class FolderRelease(Release):
    """A release in a folder on this machine."""

    def __init__(self, folder: Path, *, full: bool) -> None:
        self.folder = folder
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        files = {path.relative_to(folder).as_posix(): {"size": path.stat().st_size} for path in paths}
        super().__init__(str(folder), files, full=full)

    def _get(self, path: str) -> Path:
        """The file itself."""
        return self.folder / path

    def _read_header(self, path: str) -> GgufHeader:
        """The header, of the file itself."""
        try:
            file = open_gguf(self.folder / path)
        except BuildError as error:
            raise BuildError(error.what, error.where, DAMAGED) from error
        self.bytes_read += file.data_start
        return file


def find(text: str, *, full: bool) -> Release:
    """The release that ``REPO[@REVISION]`` or a folder is.

    Raises:
        BuildError: it is neither, or the Hub said no.
    """
    if Path(text).is_dir():
        return FolderRelease(Path(text), full=full)
    match = _REPO.fullmatch(text)
    if match is None:
        raise BuildError(f"{text!r} names no release", "the command line", "write REPO, REPO@REVISION or a folder")
    return HubRelease(match[1], match[2] or "main", full=full)
