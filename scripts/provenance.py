"""Write provenance.intoto.json: an in-toto statement with the SLSA provenance of a release, from its manifest.

It says which files came out, sha256 by sha256, and of what they were built. Two builds of the same inputs give the same
bytes, so there is no time, path or machine in it. It is no signature; ``python -m scripts.sign`` makes one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1.provenance_pb2 import Provenance
from in_toto_attestation.v1.statement import Statement
from in_toto_attestation.v1.statement_pb2 import Statement as StatementMessage
from packageurl import PackageURL

from scripts import core
from scripts.core import BuildError
from scripts.release import PROVENANCE

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:dflash-drafts:release:1"
"""How to read the parameters: as keys of this project's config, of version 1."""
BUILDER = "urn:dflash-drafts:snakemake"
HUB = "https://huggingface.co"
"""Where inputs are named to be, whatever mirror they came through."""


def package_url(kind: str, name: str, version: str | None) -> str:
    """The package URL of a package or, of kind ``huggingface``, of a repository at a commit."""
    owner, _, short = name.rpartition("/")
    return PackageURL(kind, owner or None, short, version).to_string()


def file_digest(entry: Mapping[str, Any]) -> dict[str, str]:
    """The digest of a file of an input as the Hub vouches for it: sha256 of LFS files, git's blob id of others."""
    return {"sha256": entry["sha256"]} if "sha256" in entry else {"gitBlob": entry["git"]}


def llama_cpp(toolchain: Mapping[str, Any]) -> dict[str, Any]:
    """llama.cpp's source as it was pinned; of a checkout on the builder's machine only the commit is known."""
    commit = toolchain.get("commit")
    digest = {"gitCommit": commit} if commit else {}
    if toolchain["source"] == "pypi":
        uri = package_url("pypi", toolchain["package"], toolchain["version"])
        return {"name": "llama.cpp", "uri": uri, "digest": {"sha256": toolchain["archive_sha256"]}}
    uri = f"git+{toolchain['url']}@{commit}" if toolchain.get("url") else ""
    return {"name": "llama.cpp", **({"uri": uri} if uri else {}), **({"digest": digest} if digest else {})}


def dependencies(manifest: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Everything the build read or ran: input repositories at their commits, their files, llama.cpp, packages."""
    for role, entry in manifest["inputs"].items():
        where = f"{HUB}/{entry['repo']}"
        yield {"name": role, "uri": f"git+{where}@{entry['commit']}", "digest": {"gitCommit": entry["commit"]}}
        for file in entry["files"]:
            address = f"{where}/resolve/{entry['commit']}/{file['path']}"
            yield {"name": f"{role}/{file['path']}", "uri": address, "digest": file_digest(file)}
    if "served" in manifest:
        served = manifest["served"]
        uri = f"git+{HUB}/{served['repo']}@{served['commit']}"
        yield {"name": "target_gguf", "uri": uri, "digest": {"gitCommit": served["commit"]}}
    yield llama_cpp(manifest["toolchain"])
    for package, number in manifest["packages"].items():
        yield {"name": package, "uri": package_url("pypi", package, number)}


def statement(manifest: Mapping[str, Any], sums: Mapping[str, str], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The statement about the files ``sums``, name -> sha256, built as ``parameters`` of the config asked.

    Raises:
        BuildError: it does not follow the specifications of in-toto and SLSA.
    """
    toolchain = manifest["toolchain"]
    definition = {
        "buildType": BUILD_TYPE,
        "externalParameters": dict(parameters),
        "internalParameters": {
            "commands": manifest["commands"],
            **{key: toolchain[key] for key in ("architecture", "compiler", "flags") if toolchain.get(key)},
        },
        "resolvedDependencies": list(dependencies(manifest)),
    }
    builder = {"id": BUILDER, "version": {"snakemake": manifest["packages"]["snakemake"]}}
    made = {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": sums[name]}} for name in sorted(sums)],
        "predicateType": PREDICATE,
        "predicate": {"buildDefinition": definition, "runDetails": {"builder": builder}},
    }
    try:
        check(made)
    except ValueError as error:
        raise BuildError(f"no valid provenance: {error}", PROVENANCE, "mend what the manifest says of it") from error
    return made


def check(made: Mapping[str, Any]) -> None:
    """Check a statement with the definitions of in-toto and SLSA.

    Raises:
        ValueError: a field is missing, unknown or of the wrong kind.
    """
    try:
        Statement.copy_from_pb(json_format.ParseDict(made, StatementMessage())).validate()
        provenance = json_format.ParseDict(made["predicate"], Provenance())
    except json_format.ParseError as error:
        raise ValueError(str(error)) from error
    definition = provenance.build_definition
    if made["predicateType"] != PREDICATE or not (definition.build_type and definition.external_parameters):
        raise ValueError("no SLSA provenance with a build type and parameters")
    if not provenance.run_details.builder.id:
        raise ValueError("no builder is named")


def digests(folder: Path, names: Sequence[str], manifest: Mapping[str, Any]) -> dict[str, str]:
    """Name -> sha256 of some files of a release; those that the manifest has are not read again."""
    known = {
        output[key]: output["sha256"] for output in manifest["outputs"] for key in ("file", "sidecar") if key in output
    }
    return {name: known.get(name) or core.sha256_file(folder / name) for name in names}


def main(argv: list[str] | None = None) -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--manifest", required=True, type=Path, help="manifest.json of the release, in its folder")
    arguments.add_argument("--files", required=True, nargs="+", help="names of the release's files, this one apart")
    arguments.add_argument("--parameters", required=True, type=json.loads, help="JSON: what the config asked for")
    arguments.add_argument("--out", required=True, type=Path)
    return core.run(arguments, _step, argv)


def _step(options: argparse.Namespace) -> None:
    manifest = core.read_json(options.manifest)
    sums = digests(options.manifest.parent, options.files, manifest)
    core.write_json(options.out, statement(manifest, sums, options.parameters))


if __name__ == "__main__":
    sys.exit(main())
