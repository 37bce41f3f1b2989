"""Whether what a release says for machines fits it: the subjects of its provenance, the files of its bill."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from scripts import core
from scripts.check_release_source import ASK, Release
from scripts.core import BuildError
from scripts.release import BILL, PROVENANCE
from scripts.verdict import Finding


def provenance(release: Release) -> Iterable[Finding]:
    """The statement is about exactly the files of SHA256SUMS, itself apart, with their sha256."""
    if PROVENANCE not in release.files:
        yield Finding("provenance", True, f"warning: there is no {PROVENANCE}", ASK)
        return
    statement = _read(release, PROVENANCE)
    subjects = {str(one.get("name")): one.get("digest", {}).get("sha256") for one in statement.get("subject", [])}
    wanted = {name: sha256 for name, sha256 in release.sums.items() if name != PROVENANCE}
    odd = sorted(name for name in subjects.keys() | wanted.keys() if subjects.get(name) != wanted.get(name))
    detail = f"{', '.join(odd[:3])}: not as in SHA256SUMS" if odd else f"{len(subjects)} subjects, those of SHA256SUMS"
    yield Finding("provenance", not odd, detail, ASK)
    named = {one.get("uri") for one in _dependencies(statement)}
    missing = [
        f"{entry['repo']} at {entry['commit'][:12]}"
        for entry in release.manifest["inputs"].values()
        if not any(entry["repo"] in str(uri) and entry["commit"] in str(uri) for uri in named)
    ]
    detail = f"does not name {', '.join(missing)}" if missing else "the manifest's inputs at their commits"
    yield Finding("provenance inputs", not missing, detail, ASK)


def bill_of_materials(release: Release) -> Iterable[Finding]:
    """The bill names every GGUF file with the manifest's sha256."""
    if BILL not in release.files:
        yield Finding("bill of materials", True, f"warning: there is no {BILL}", ASK)
        return
    found = dict(_hashes(_read(release, BILL)))
    odd = [path for path, output in release.outputs.items() if found.get(path) != output["sha256"]]
    detail = (
        f"{', '.join(odd)}: not the manifest's" if odd else f"{len(release.outputs)} GGUF files, the manifest's sha256"
    )
    yield Finding("bill of materials", not odd, detail, ASK)


def _read(release: Release, path: str) -> Mapping[str, Any]:
    value = core.read_json(release.text(path))
    if not isinstance(value, dict):
        raise BuildError(f"{path} holds no object", release.where, ASK)
    return value


def _dependencies(statement: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    definition = statement.get("predicate", {}).get("buildDefinition", {})
    return [one for one in definition.get("resolvedDependencies", []) if isinstance(one, dict)]


def _hashes(node: Any) -> Iterable[tuple[str, str]]:
    """Name and sha256 of every component, at any depth."""
    if isinstance(node, dict):
        for one in node.get("hashes", []):
            if one.get("alg") == "SHA-256":
                yield str(node.get("name")), str(one.get("content"))
        for value in node.values():
            yield from _hashes(value)
    elif isinstance(node, list):
        for value in node:
            yield from _hashes(value)
