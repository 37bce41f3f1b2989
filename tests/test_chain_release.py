"""A release of the whole chain with all that it can have: second names, a tag, a signature, provenance."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from demo.hub import HubServer
from scripts import core, provenance, release, resolve, sbom, sign
from tests.chain import Chain

pytestmark = pytest.mark.slow

QUANTS = ("bf16", "Q8_0", "Q4_K_M")


def _key(folder: Path) -> tuple[Path, Path]:
    """A new private key and its public one, as files."""
    private = ec.generate_private_key(ec.SECP256R1())
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "key").write_bytes(private.private_bytes(serialization.Encoding.PEM, form, plain))
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (folder / "key.pub").write_bytes(public)
    return folder / "key", folder / "key.pub"


def test_second_names_tag_and_signature_are_published(chain: Chain, tmp_path: Path) -> None:
    shutil.copytree(chain.folder, tmp_path / "copy", symlinks=True)
    settings = tmp_path / "copy" / "demo" / "config.yaml"
    old, new = "create_pr: false", "create_pr: false, sidecar: true, tag: 'r-{id}'"
    assert old in settings.read_text()
    settings.write_text(settings.read_text().replace(old, new))
    private, public = _key(tmp_path)
    with HubServer(tmp_path / "hub") as hub:
        other = Chain(tmp_path / "copy", hub, tmp_path)
        done = subprocess.run(
            other.command("--cores", "2", "publish"),
            cwd=other.folder,
            env={**other.environment, sign.KEY: str(private)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        report = core.read_json(other.results / "reports" / "publish.json")
        repo = hub.repo(report["repo"])
        stored = repo.resolve(report["tag"]).files
        sent = {entry.path.split("?")[0] for entry in hub.log.entries(report["repo"], method="PUT")}
    folder = other.results / "release"
    assert report["tag"] == f"r-{core.sha256_file(folder / release.SUMS)[:12]}"
    assert set(stored) - {".gitattributes"} == {path.name for path in folder.iterdir()}
    names = {resolve.sidecar_name("tiny-coder/TinyQwen3.5-Coder", quant) for quant in QUANTS}
    assert names < set(stored)
    assert len(sent) == len(QUANTS)
    assert sign.verify(folder, public).ok
    _is_described(folder)


def _is_described(folder: Path) -> None:
    """The release's bill of materials and provenance are valid, and the provenance is about all other files."""
    sums = release.read_sums(folder)
    sbom.check((folder / release.BILL).read_text())
    made = json.loads((folder / release.PROVENANCE).read_text())
    provenance.check(made)
    subjects = {item["name"]: item["digest"]["sha256"] for item in made["subject"]}
    assert subjects == {name: digest for name, digest in sums.items() if name != release.PROVENANCE}
    asked = made["predicate"]["buildDefinition"]["externalParameters"]
    assert (asked["expect"]["mask_token_id"], asked["quants"]) == (248077, list(QUANTS))


def test_the_ordinary_release_is_described_and_not_signed(chain: Chain) -> None:
    _is_described(chain.results / "release")
    assert not (chain.results / "release" / release.SIGNATURE).exists()
    assert core.read_json(chain.results / "reports" / "sign.json")["signed"] == "no key given"
