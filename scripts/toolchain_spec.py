"""What the config says about llama.cpp: three kinds of source, their short id and the compiler flags.

Nothing here touches the disk, the network or a compiler: the workflow needs ids while it is parsed.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from packaging.utils import InvalidName, canonicalize_name
from packaging.version import InvalidVersion, Version

from scripts.core import BuildError

Program = Literal["llama-quantize", "llama-server"]
PROGRAMS: tuple[Program, ...] = ("llama-quantize", "llama-server")
"""The programs a build knows; each is a CMake target of its own."""

WHERE = "llama_cpp in the config"
MINIMUM = "llama.cpp with DFlash drafts (PR #22105)"

_COMMON = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DGGML_NATIVE=OFF",
    "-DGGML_OPENMP=OFF",
    "-DGGML_CCACHE=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_BUILD_COMMIT=<commit>",
    "-DLLAMA_BUILD_NUMBER=0",
    # ggml asks git for a commit and would find any repository that happens to lie around the cache
    "-DGIT_EXE=0",
)
# Fused multiply-add is left out because compilers place it differently, and then a quantized file differs too.
_COMPILE = ("-ffp-contract=off", "-ffile-prefix-map=<source>=llama.cpp", "-ffile-prefix-map=<build>=build")
_ARM = "armv8.2-a+dotprod+fp16"


@dataclass(frozen=True)
class PypiSpec:
    """A source distribution of the package index whose ``vendor/llama.cpp`` is the tree."""

    package: str
    version: str
    sha256: str


@dataclass(frozen=True)
class GitSpec:
    """One commit (40 hex digits) of a repository; ``url`` may be a path."""

    url: str
    commit: str


@dataclass(frozen=True)
class PathSpec:
    """A checkout and a build that exist already (absolute paths); nothing is fetched or compiled."""

    dir: Path
    build: Path


Spec = PypiSpec | GitSpec | PathSpec

_KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "pypi": (("package", "version", "sha256"), ()),
    "git": (("url", "commit"), ()),
    "path": (("dir",), ("build",)),
}


def parse_spec(mapping: object) -> Spec:
    """Turn the config value ``llama_cpp`` into a spec.

    Raises:
        BuildError: not a mapping, an unknown source, a missing, unknown or malformed key.
    """
    if not isinstance(mapping, Mapping):
        raise BuildError(f"not a mapping: {mapping!r}", WHERE, "give source: pypi, git or path and its keys")
    source = mapping.get("source")
    if not isinstance(source, str) or source not in _KEYS:
        raise BuildError(f"source is {source!r}", WHERE, "use one of pypi, git, path")
    required, optional = _KEYS[source]
    missing = [key for key in required if key not in mapping]
    if missing:
        raise BuildError(f"source {source} lacks {', '.join(missing)}", WHERE, "add what is missing")
    unknown = sorted(str(key) for key in mapping if key not in ("source", *required, *optional))
    if unknown:
        known = ", ".join((*required, *optional))
        raise BuildError(f"source {source} has no key {', '.join(unknown)}", WHERE, f"its keys are {known}")
    text = {key: _text(mapping, key) for key in (*required, *optional) if key in mapping}
    if source == "pypi":
        return PypiSpec(_package(text["package"]), _version(text["version"]), _hex(text, "sha256", 64))
    if source == "git":
        if text["url"].startswith("-"):
            raise BuildError(f"url is {text['url']!r}", WHERE, "give the address or path of a git repository")
        return GitSpec(text["url"], _hex(text, "commit", 40))
    folder = _absolute(text["dir"])
    return PathSpec(folder, _absolute(text["build"]) if "build" in text else folder / "build")


def _text(mapping: Mapping[Any, Any], key: str) -> str:
    value = mapping[key]
    if not isinstance(value, str) or not value.strip():
        raise BuildError(f"{key} is {value!r}, not text", WHERE, f"write {key} in quotes")
    return value.strip()


def _package(value: str) -> str:
    try:
        return str(canonicalize_name(value, validate=True))
    except InvalidName as error:
        raise BuildError(f"package is {value!r}", WHERE, "give a package name, e.g. llama-cpp-python") from error


def _version(value: str) -> str:
    try:
        return str(Version(value))
    except InvalidVersion as error:
        raise BuildError(f"version is {value!r}", WHERE, "give one exact version, e.g. 0.3.36") from error


def _hex(text: Mapping[str, str], key: str, digits: int) -> str:
    value = text[key].lower()
    if not re.fullmatch(f"[0-9a-f]{{{digits}}}", value):
        raise BuildError(f"{key} is {text[key]!r}", WHERE, f"give all {digits} hex digits")
    return value


def _absolute(value: str) -> Path:
    return Path(os.path.abspath(Path(value).expanduser()))  # noqa: PTH100  (resolve() would ask the disk)


def source_key(spec: Spec) -> str:
    """16 hex digits that stand for the content of the source; a git commit is the same at any address."""
    match spec:
        case PypiSpec(package, version, sha256):
            parts = ["pypi", package, version, sha256]
        case GitSpec(_, commit):
            parts = ["git", commit]
        case PathSpec(folder, build):
            parts = ["path", str(folder), str(build)]
    return digest(parts)[:16]


def digest(parts: object) -> str:
    """The sha256 of a value's ``repr``, as hex: for cache keys and ids, where only equality counts."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def toolchain_id(spec: Spec) -> str:
    """The folder name under ``results/toolchain``, e.g. ``llama-cpp-python-0.3.36-<12 hex>``.

    Equal specs on machines of one architecture have equal ids; other flags give another id.

    Raises:
        BuildError: there are no fixed compiler flags for this architecture.
    """
    match spec:
        case PypiSpec(package, version, _):
            name = f"{package}-{version}"
        case GitSpec(_, commit):
            name = f"git-{commit[:12]}"
        case PathSpec():
            return f"path-{source_key(spec)[:12]}"
    return f"{name}-{digest([source_key(spec), build_flags()])[:12]}"


def architecture(machine: str | None = None) -> str:
    """The machine's architecture under one name each: ``x86_64`` or ``arm64``; others as they are."""
    name = (machine or platform.machine()).lower()
    return {"amd64": "x86_64", "aarch64": "arm64"}.get(name, name)


def build_flags(machine: str | None = None) -> list[str]:
    """CMake arguments of every build, with ``<source>``, ``<build>`` and ``<commit>`` still to be filled in.

    A fixed baseline per architecture, so that a binary runs on other machines and rounds the same on all.

    Raises:
        BuildError: no baseline is known for this architecture.
    """
    match architecture(machine):
        case "x86_64":
            march, extra = ["-march=x86-64-v3"], []
        case "arm64":
            # ggml adds -march to its CPU backend alone, and needs it there to choose its kernels
            march, extra = [], [f"-DGGML_CPU_ARM_ARCH={_ARM}"]
        case other:
            raise BuildError(
                f"no fixed compiler flags for {other}", WHERE, "build llama.cpp yourself and use source: path"
            )
    joined = " ".join([*march, *_COMPILE])
    return [*_COMMON, *extra, f"-DCMAKE_C_FLAGS={joined}", f"-DCMAKE_CXX_FLAGS={joined}"]


def describe(spec: Spec) -> str:
    """The source as a person names it, for messages."""
    match spec:
        case PypiSpec(package, version, _):
            return f"{package} {version}"
        case GitSpec(_, commit):
            return f"llama.cpp commit {commit[:12]}"
        case PathSpec():
            return "llama.cpp of a local checkout"
