"""Write sbom.cdx.json: the bill of materials of a release in CycloneDX 1.6, with a model card for machines.

The library knows no model cards; that part is added to what it writes, and the whole is checked against the schema.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from scripts import core
from scripts.core import BuildError
from scripts.provenance import package_url
from scripts.release import BILL

MODEL = ComponentType.MACHINE_LEARNING_MODEL


def _release(manifest: Mapping[str, Any]) -> Component:
    general = manifest["general"]
    return Component(
        type=MODEL,
        name=manifest["name"],
        bom_ref=manifest["name"],
        licenses=[LicenseFactory().make_from_string(general["general.license"])],
        tags=general["general.tags"],
    )


def _file(output: Mapping[str, Any]) -> Component:
    names = {"sidecar": output.get("sidecar"), "quant": output["quant"], "bytes": output["bytes"], "bpw": output["bpw"]}
    return Component(
        type=MODEL,
        name=output["file"],
        bom_ref=output["file"],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=output["sha256"])],
        properties=[Property(name=key, value=str(value)) for key, value in names.items() if value is not None],
    )


def _inputs(manifest: Mapping[str, Any]) -> Iterable[Component]:
    """The input repositories; a hash of a whole repository there is none but its commit, which the version is."""
    for role, entry in manifest["inputs"].items():
        url = package_url("huggingface", entry["repo"], entry["commit"])
        files = [
            Component(
                type=ComponentType.FILE,
                name=file["path"],
                bom_ref=f"{role}/{file['path']}",
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=file["sha256"])] if "sha256" in file else None,
                properties=[Property(name="git blob", value=file["git"])] if "git" in file else None,
            )
            for file in entry["files"]
        ]
        owner, _, name = entry["repo"].rpartition("/")
        yield Component(
            type=MODEL,
            group=owner,
            name=name,
            version=entry["commit"],
            bom_ref=role,
            purl=PackageURL.from_string(url),
            components=files,
            properties=[Property(name="role", value=role)],
        )


def _tools(manifest: Mapping[str, Any]) -> Iterable[Component]:
    toolchain = manifest["toolchain"]
    archive = toolchain.get("archive_sha256")
    yield Component(
        type=ComponentType.APPLICATION,
        name="llama.cpp",
        version=toolchain.get("commit"),
        bom_ref="llama.cpp",
        purl=PackageURL.from_string(package_url("pypi", toolchain["package"], toolchain["version"]))
        if toolchain["source"] == "pypi"
        else None,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=archive)] if archive else None,
    )
    for package, number in manifest["packages"].items():
        url = PackageURL.from_string(package_url("pypi", package, number))
        yield Component(type=ComponentType.LIBRARY, name=package, version=number, bom_ref=url.to_string(), purl=url)


def model_card(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The release as a CycloneDX model card."""
    target = manifest["inputs"]["target"]["repo"]
    return {
        "modelParameters": {
            "task": "text-generation",
            "architectureFamily": "speculative-decoding draft",
            "modelArchitecture": "dflash",
            "inputs": [{"format": "text"}],
            "outputs": [{"format": "text"}],
        },
        "considerations": {
            "useCases": [f"draft model for speculative decoding of {target} with llama.cpp"],
            "technicalLimitations": [
                "not a standalone model: it borrows token embeddings and output head of the target",
                f"made for the vocabulary of {target}",
            ],
        },
    }


def bill(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The bill of materials of the release that a manifest is about.

    Raises:
        BuildError: it does not follow the schema.
    """
    release, files = _release(manifest), [_file(output) for output in manifest["outputs"]]
    inputs, tools = list(_inputs(manifest)), list(_tools(manifest))
    bom = Bom(components=[*files, *inputs, *tools])
    bom.metadata.component = release
    bom.register_dependency(release, files)
    for file in files:
        bom.register_dependency(file, [*inputs, *tools])
    made: dict[str, Any] = json.loads(JsonV1Dot6(bom).output_as_string())
    # Drawn anew every time; the same inputs are to give the same bytes.
    made.pop("serialNumber")
    made["metadata"].pop("timestamp")
    made["metadata"]["component"]["modelCard"] = model_card(manifest)
    check(json.dumps(made))
    return made


def check(text: str) -> None:
    """Check a bill of materials against the CycloneDX schema, unknown keys included.

    Raises:
        BuildError: it does not follow it.
    """
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if error is not None:
        said = getattr(error.data, "message", str(error))
        raise BuildError(f"no valid CycloneDX: {said}", BILL, "mend what the manifest says of it")


def main(argv: list[str] | None = None) -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--manifest", required=True, type=Path, help="manifest.json of the release")
    arguments.add_argument("--out", required=True, type=Path)
    return core.run(arguments, _step, argv)


def _step(options: argparse.Namespace) -> None:
    core.write_json(options.out, bill(core.read_json(options.manifest)))


if __name__ == "__main__":
    sys.exit(main())
