"""One source distribution from a package index: found, downloaded with resume, checked, unpacked without running it."""

from __future__ import annotations

import gzip
import os
import ssl
import tarfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import urljoin

import httpx2
from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import Version

from scripts.core import BuildError, Progress, say, sha256_file, writing
from scripts.toolchain_cache import cache_root, locked
from scripts.toolchain_spec import WHERE, PypiSpec

ATTEMPTS = 5
"""Tries in a row that may bring nothing before a download is given up."""
WAIT = 1.0
"""Seconds before the second try; doubled for each further one."""

T = TypeVar("T")
_JSON = "application/vnd.pypi.simple.v1+json"


class _Again(Exception):
    """A try failed in a way that another may not."""


def fetch_archive(spec: PypiSpec) -> Path:
    """The package's ``.tar.gz`` in the cache, its sha256 checked; needs no network when it lies there already.

    The index is ``$PIP_INDEX_URL`` or PyPI. A dropped connection is resumed where it broke.

    Raises:
        BuildError: no such version, no network, or a sha256 other than the config's.
    """
    folder = cache_root() / "archives"
    archive = folder / f"{spec.package}-{spec.version}-{spec.sha256[:16]}.tar.gz"
    with locked(folder / f".{archive.name}.lock", archive.name), writing(archive):
        if archive.is_file():
            if sha256_file(archive, "checking the archive") == spec.sha256:
                return archive
            archive.unlink()
        part = archive.with_name(f"{archive.name}.part")
        with _client() as client:
            url = _find(client, spec)
            resumed = part.exists()
            _download(client, url, part, f"downloading {spec.package} {spec.version}")
            found = sha256_file(part, "checking the archive")
            if found != spec.sha256 and resumed:  # what an earlier run left may be what is wrong
                part.unlink()
                _download(client, url, part, f"downloading {spec.package} {spec.version}")
                found = sha256_file(part, "checking the archive")
        if found != spec.sha256:
            part.unlink()
            raise _wrong_hash(spec, found)
        part.replace(archive)
    return archive


def _wrong_hash(spec: PypiSpec, found: str) -> BuildError:
    what = f"sha256 of {spec.package} {spec.version} is {found}, the config says {spec.sha256}"
    return BuildError(what, WHERE, "correct version and sha256 together, or find out who changed the file")


def _client() -> httpx2.Client:
    verify: ssl.SSLContext | bool = True  # the library itself honours SSL_CERT_FILE and SSL_CERT_DIR
    certificates = os.environ.get("PIP_CERT")
    if certificates and not (os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")):
        verify = ssl.create_default_context(cafile=certificates)
    return httpx2.Client(verify=verify, follow_redirects=True, timeout=60)


def _find(client: httpx2.Client, spec: PypiSpec) -> str:
    """The address of the version's source distribution, from the index's JSON."""
    index = os.environ.get("PIP_INDEX_URL") or "https://pypi.org/simple"
    if not index.startswith(("http://", "https://")):
        raise BuildError("the package index is no http address", "PIP_INDEX_URL", "give an https address or unset it")
    page = f"{index.rstrip('/')}/{spec.package}/"
    files = _persist(lambda: _listing(client, page, spec), _host(index))
    for base, entry in files:
        try:
            name, version = parse_sdist_filename(entry["filename"])
        except InvalidSdistFilename:
            continue
        if entry["filename"].endswith(".tar.gz") and (name, version) == (
            canonicalize_name(spec.package),
            Version(spec.version),
        ):
            announced = str(entry.get("hashes", {}).get("sha256", spec.sha256))
            if announced != spec.sha256:  # known before a byte of it is downloaded
                raise _wrong_hash(spec, announced)
            return urljoin(base, str(entry["url"]))
    raise BuildError(
        f"{spec.package} {spec.version} has no source distribution here", _host(index), "give a version that has one"
    )


def _listing(client: httpx2.Client, url: str, spec: PypiSpec) -> list[tuple[str, dict[str, Any]]]:
    response = client.get(url, headers={"Accept": _JSON})
    if response.status_code == 404:
        raise BuildError(f"no package {spec.package}", _host(url), f"correct package in {WHERE}")
    _usable(response)
    try:
        return [(str(response.url), entry) for entry in response.json()["files"]]
    except (ValueError, KeyError, TypeError) as error:
        do = "set PIP_INDEX_URL to an index that speaks the simple API as JSON (PEP 691)"
        raise BuildError("the package index did not answer with JSON", _host(url), do) from error


def _usable(response: httpx2.Response) -> None:
    if response.status_code in (408, 425, 429) or response.status_code >= 500:
        raise _Again(f"HTTP {response.status_code}")
    if response.status_code not in (200, 206):
        where = _host(str(response.url))
        raise BuildError(f"HTTP {response.status_code}", where, "check the package index and its credentials")


def _host(url: str) -> str:
    return httpx2.URL(url).host  # an address may carry credentials


def _persist(attempt: Callable[[], T], where: str, so_far: Callable[[], int] = lambda: 0) -> T:
    """Try until it works; give up after :data:`ATTEMPTS` tries in a row that brought nothing more."""
    failures = 0
    while True:
        before = so_far()
        try:
            return attempt()
        except (httpx2.TransportError, _Again) as error:
            failures = 1 if so_far() > before else failures + 1
            reason = " ".join(str(error).split()) or type(error).__name__
            if failures >= ATTEMPTS:
                do = "check the network, the proxy and SSL_CERT_FILE, then run again: it goes on where it stopped"
                raise BuildError(f"no download after {ATTEMPTS} tries: {reason}", where, do) from error
            say(f"connection to {where} failed ({reason}): trying again")
            time.sleep(WAIT * 2 ** (failures - 1))


def _download(client: httpx2.Client, url: str, part: Path, label: str) -> None:
    _persist(lambda: _transfer(client, url, part, label), _host(url), lambda: _size(part))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _transfer(client: httpx2.Client, url: str, part: Path, label: str) -> None:
    """Fetch what ``part`` still lacks, or all of it from a server that knows no ranges."""
    have = _size(part)
    # any other encoding would make the bytes, and the offsets of a range, those of another file
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with client.stream("GET", url, headers=headers) as response:
        if response.status_code == 416:
            if response.headers.get("Content-Range") == f"bytes */{have}":
                return  # all of it was there
            part.unlink(missing_ok=True)
            raise _Again("the server refused to resume")
        _usable(response)
        if response.status_code == 200:
            have = 0
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            part.unlink(missing_ok=True)
            raise _Again("the server sent another range")
        total = have + int(response.headers.get("Content-Length", 0))
        with part.open("ab" if have else "wb") as stream, Progress(label, total) as progress:
            progress.add(have)
            for chunk in response.iter_raw():
                stream.write(chunk)
                progress.add(len(chunk))


def unpack(archive: Path, destination: Path) -> Path:
    """Unpack the parts of a source distribution that are used; nothing of it is executed.

    Returns the folder with ``CHANGELOG.md`` and ``vendor/llama.cpp``. Repository metadata (``.git``) is left
    out: git would obey the settings in it.

    Raises:
        BuildError: not a tar archive, cut short, or with a member that leads out of the folder.
    """
    roots: set[str] = set()

    def wanted(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
        safe = tarfile.data_filter(member, path)
        root, *inner = PurePosixPath(safe.name).parts or ("",)
        roots.add(root)
        used = inner[:2] == ["vendor", "llama.cpp"] or inner == ["CHANGELOG.md"]
        return safe if used and ".git" not in inner else None

    try:
        with tarfile.open(archive, "r:gz") as tar:
            tar.extractall(destination, filter=wanted)  # noqa: S202  (the filter is stricter than "data")
    except tarfile.FilterError as error:
        raise BuildError(f"refused to unpack: {error}", archive, "do not use this archive") from error
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise BuildError(f"not a tar.gz archive: {error}", archive, f"correct version and sha256 in {WHERE}") from error
    if len(roots) != 1:
        raise BuildError(f"{len(roots)} folders at the top, not one", archive, "give a source distribution")
    return destination / roots.pop()
