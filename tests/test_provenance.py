"""What a release was made of, for machines: valid by the libraries of the formats, and the same bytes every time."""

import json
from pathlib import Path
from typing import Any

import pytest
from in_toto_attestation.v1.statement import STATEMENT_TYPE_URI

from scripts import core, provenance, release, sbom
from scripts.core import BuildError
from tests import release_parts as parts
from tests.errors_table import Said

PARAMETERS = {"name": parts.NAME, "expect": {"block_size": 16}, "quants": list(parts.QUANTS)}


def _manifest(folder: Path, **options: bool) -> dict[str, Any]:
    made = parts.build(folder, **options)
    made["inputs"]["draft"]["files"] = [
        {"path": "config.json", "size": 3, "git": "1" * 40},
        {"path": "model.safetensors", "size": 4, "sha256": "2" * 64},
    ]
    made["toolchain"] |= {"source": "pypi", "package": "llama-cpp-python", "version": "0.3.36"}
    made["toolchain"] |= {"archive_sha256": "3" * 64, "architecture": "x86_64"}
    return made


def _statement(folder: Path) -> dict[str, Any]:
    made = _manifest(folder)
    return provenance.statement(made, {"a.gguf": "4" * 64, "README.md": "5" * 64}, PARAMETERS)


def test_subjects_are_the_files_and_dependencies_what_they_were_made_of(tmp_path: Path) -> None:
    made = _statement(tmp_path)
    assert (made["_type"], made["predicateType"]) == (STATEMENT_TYPE_URI, "https://slsa.dev/provenance/v1")
    assert {item["name"]: item["digest"] for item in made["subject"]} == {
        "README.md": {"sha256": "5" * 64},
        "a.gguf": {"sha256": "4" * 64},
    }
    definition = made["predicate"]["buildDefinition"]
    assert definition["externalParameters"] == PARAMETERS
    found = {item["name"]: item for item in definition["resolvedDependencies"]}
    assert found["draft"]["uri"] == f"git+https://huggingface.co/owner/draft@{'0' * 40}"
    assert found["draft"]["digest"] == {"gitCommit": "0" * 40}
    assert found["draft/config.json"]["digest"] == {"gitBlob": "1" * 40}
    assert found["draft/model.safetensors"]["digest"] == {"sha256": "2" * 64}
    assert found["llama.cpp"]["uri"] == "pkg:pypi/llama-cpp-python@0.3.36"
    assert found["llama.cpp"]["digest"] == {"sha256": "3" * 64}
    assert {"target", "base", "torch", "gguf"} <= set(found)
    assert made["predicate"]["runDetails"] == {
        "builder": {"id": provenance.BUILDER, "version": {"snakemake": core_version("snakemake")}}
    }


def core_version(package: str) -> str:
    from importlib.metadata import version

    return version(package)


def test_provenance_and_bill_are_the_same_bytes_wherever_they_are_made(tmp_path: Path) -> None:
    texts = [
        json.dumps([_statement(tmp_path / name), sbom.bill(_manifest(tmp_path / name))]) for name in ("one", "two")
    ]
    assert texts[0] == texts[1]
    assert str(tmp_path) not in texts[0]


@pytest.mark.parametrize(
    ("toolchain", "expected"),
    [
        (
            {"source": "git", "url": "https://github.com/ggml-org/llama.cpp", "commit": "7" * 40},
            {"uri": f"git+https://github.com/ggml-org/llama.cpp@{'7' * 40}", "digest": {"gitCommit": "7" * 40}},
        ),
        ({"source": "git", "url": None, "commit": "7" * 40}, {"digest": {"gitCommit": "7" * 40}}),
        ({"source": "path", "commit": None}, {}),
    ],
    ids=["git", "git of this machine", "a checkout of this machine"],
)
def test_llama_cpp_of_other_sources(toolchain: dict[str, Any], expected: dict[str, Any], tmp_path: Path) -> None:
    assert provenance.llama_cpp(toolchain) == {"name": "llama.cpp", **expected}
    made = _manifest(tmp_path)
    made["toolchain"] = toolchain
    provenance.statement(made, {"a": "4" * 64}, PARAMETERS)
    sbom.bill(made)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda made: made.update(subject=[]), "At least one subject"),
        (lambda made: made["subject"][0].update(digest={}), "At least one digest"),
        (lambda made: made.update(colour="red"), "colour"),
        (lambda made: made["predicate"].update(colour="red"), "colour"),
        (lambda made: made["predicate"]["buildDefinition"].update(buildType=""), "build type"),
        (lambda made: made["predicate"]["runDetails"].update(builder={}), "no builder"),
        (lambda made: made.update(_type="https://in-toto.io/Statement/v0.1"), "Wrong statement type"),
    ],
)
def test_what_is_no_provenance_is_found(change: Any, message: str, tmp_path: Path) -> None:
    made = _statement(tmp_path)
    provenance.check(made)
    change(made)
    with pytest.raises(ValueError, match=message):
        provenance.check(made)


def test_a_release_without_files_has_no_provenance(tmp_path: Path, said: Said) -> None:
    with pytest.raises(BuildError, match="no valid provenance: At least one subject required") as caught:
        provenance.statement(_manifest(tmp_path), {}, PARAMETERS)
    said("Release: provenance of nothing", caught.value)


def test_the_bill_names_files_inputs_and_tools(tmp_path: Path) -> None:
    made = sbom.bill(_manifest(tmp_path, sidecar=True))
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    whole = made["metadata"]["component"]
    assert (whole["type"], whole["name"]) == ("machine-learning-model", parts.NAME)
    assert whole["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    assert whole["modelCard"]["modelParameters"]["modelArchitecture"] == "dflash"
    components = {item["bom-ref"]: item for item in made["components"]}
    file = f"{parts.NAME}-Q8_0.gguf"
    digest = core.sha256_file(tmp_path / file)
    assert components[file]["hashes"] == [{"alg": "SHA-256", "content": digest}]
    assert {"name": "sidecar", "value": "dflash-target-Q8_0.gguf"} in components[file]["properties"]
    assert components["draft"]["purl"] == f"pkg:huggingface/owner/draft@{'0' * 40}"
    assert components["draft"]["version"] == "0" * 40
    assert components["llama.cpp"]["hashes"] == [{"alg": "SHA-256", "content": "3" * 64}]
    needs = {item["ref"]: set(item.get("dependsOn", [])) for item in made["dependencies"]}
    assert {"draft", "target", "base", "llama.cpp"} <= needs[file]
    assert needs[parts.NAME] == {f"{parts.NAME}-{quant}.gguf" for quant in parts.QUANTS}


def test_a_license_without_an_identifier_is_named(tmp_path: Path) -> None:
    made = _manifest(tmp_path)
    made["general"]["general.license"] = "other"
    assert sbom.bill(made)["metadata"]["component"]["licenses"] == [{"license": {"name": "other"}}]


@pytest.mark.parametrize(
    "change",
    [
        lambda made: made["components"][0].update(type="model"),
        lambda made: made["metadata"]["component"]["modelCard"].update(colour="red"),
        lambda made: made["components"][0].update(hashes=[{"alg": "SHA-256", "content": "short"}]),
    ],
)
def test_what_is_no_bill_of_materials_is_found(change: Any, tmp_path: Path, said: Said) -> None:
    made = sbom.bill(_manifest(tmp_path))
    change(made)
    with pytest.raises(BuildError, match=r"^no valid CycloneDX: ") as caught:
        sbom.check(json.dumps(made))
    if "colour" in str(caught.value):
        said("Release: a bill of materials that does not follow the schema", caught.value)


def test_the_fronts_write_them_beside_the_manifest(tmp_path: Path) -> None:
    made = _manifest(tmp_path)
    core.write_json(tmp_path / "manifest.json", made)
    arguments = ["--manifest", str(tmp_path / "manifest.json"), "--out"]
    assert sbom.main([*arguments, str(tmp_path / release.BILL)]) == 0
    names = [*(output["file"] for output in made["outputs"]), "manifest.json", release.BILL]
    out = tmp_path / release.PROVENANCE
    assert provenance.main([*arguments, str(out), "--files", *names, "--parameters", json.dumps(PARAMETERS)]) == 0
    subjects = {item["name"]: item["digest"]["sha256"] for item in core.read_json(out)["subject"]}
    assert subjects == {name: core.sha256_file(tmp_path / name) for name in names}
