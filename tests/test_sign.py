"""Signing a release with a key made here: what was signed verifies, one byte more or less does not."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from huggingface_hub import HfApi

from demo.hub import HubServer
from scripts import publish, release, sign
from scripts.core import BuildError
from tests import release_parts as parts
from tests.errors_table import Said

REPO = "demo-org/Tiny-GGUF"
PASSWORD = "canary-password-7f3a"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return parts.closed(tmp_path / "release", sidecar=True)


def _key(folder: Path, name: str = "key", password: str | None = None) -> Path:
    """A new private key with its public one beside it; the public one."""
    private = ec.generate_private_key(ec.SECP256R1())
    cipher = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    kind, public = serialization.PrivateFormat.PKCS8, folder / f"{name}.pub"
    (folder / name).write_bytes(private.private_bytes(serialization.Encoding.PEM, kind, cipher))
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(private.public_key().public_bytes(serialization.Encoding.PEM, form))
    return public


@pytest.fixture
def public(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The public key of the one that this environment signs with."""
    made = _key(tmp_path)
    monkeypatch.setenv(sign.KEY, str(tmp_path / "key"))
    return made


@pytest.fixture(autouse=True)
def nobodys_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (sign.KEY, sign.PASSWORD, sign.TOKEN):
        monkeypatch.delenv(name, raising=False)


def test_without_a_key_nothing_is_signed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / release.SIGNATURE).write_text("of a release before")
    report = sign.sign(folder)
    assert (report.ok, report.figures["signed"]) == (True, "no key given")
    assert not (folder / release.SIGNATURE).exists()
    assert "not signed" in capsys.readouterr().err


def test_what_was_signed_verifies_here_and_as_it_is_downloaded(folder: Path, public: Path, tmp_path: Path) -> None:
    report = sign.sign(folder)
    assert report.figures["signed"] == "key"
    assert sign.verify(folder, public).ok
    copied = tmp_path / "downloaded"
    shutil.copytree(folder, copied)  # links become files
    (copied / ".gitattributes").write_text("*.gguf filter=lfs\n")
    assert sign.verify(copied, public).ok
    theirs = [sys.executable, "-m", "model_signing", "verify", "key", str(copied)]
    theirs += ["--signature", str(copied / release.SIGNATURE), "--public_key", str(public)]
    done = subprocess.run(theirs, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert release.read_sums(folder)


@pytest.mark.parametrize("name", ["Tiny-DFlash-Q8_0.gguf", "README.md", release.SUMS, release.SIGNATURE])
def test_one_byte_changed_does_not_verify(name: str, folder: Path, public: Path, said: Said) -> None:
    sign.sign(folder)
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(BuildError, match=r"^the signature does not fit: ") as caught:
        sign.verify(folder, public)
    if name != release.SIGNATURE:
        assert f": changed: {name}" in str(caught.value)
    if name == "README.md":
        said("Sign: a file that changed after it was signed", caught.value)


def test_a_file_more_or_less_does_not_verify(folder: Path, public: Path) -> None:
    sign.sign(folder)
    (folder / "more.txt").write_text("more")
    with pytest.raises(BuildError, match=r"the signature does not fit: not signed: more\.txt "):
        sign.verify(folder, public)
    (folder / "README.md").unlink()
    (folder / "manifest.json").write_text("{}")
    message = r"the signature does not fit: changed: manifest\.json; missing: README\.md; not signed: more\.txt "
    with pytest.raises(BuildError, match=message):
        sign.verify(folder, public)


def test_another_key_does_not_verify(folder: Path, public: Path, tmp_path: Path, said: Said) -> None:
    sign.sign(folder)
    with pytest.raises(BuildError, match="the signature does not fit") as caught:
        sign.verify(folder, _key(tmp_path, "other"))
    said("Sign: another public key", caught.value)


def test_no_signature(folder: Path, public: Path, said: Said) -> None:
    with pytest.raises(BuildError, match="there is no signature") as caught:
        sign.verify(folder, public)
    said("Sign: a release that is not signed", caught.value)


@pytest.mark.parametrize("text", [None, "no key"])
def test_a_key_that_is_none(
    text: str | None, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    if text:
        (tmp_path / "bad").write_text(text)
    monkeypatch.setenv(sign.KEY, str(tmp_path / "bad"))
    with pytest.raises(BuildError, match=r"^the key cannot be used: ") as caught:
        sign.sign(folder)
    assert not (folder / release.SIGNATURE).exists()
    if text is None:
        said("Sign: a key that is not there", caught.value)


def test_a_key_with_a_password(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    public = _key(tmp_path, password=PASSWORD)
    monkeypatch.setenv(sign.KEY, str(tmp_path / "key"))
    monkeypatch.setenv(sign.PASSWORD, f"not-{PASSWORD}")
    with pytest.raises(BuildError, match="the key cannot be used") as caught:
        sign.sign(folder)
    assert PASSWORD not in str(caught.value)
    monkeypatch.setenv(sign.PASSWORD, PASSWORD)
    sign.sign(folder)
    assert sign.verify(folder, public).ok


def test_an_identity_token_that_is_none_is_one_line_and_not_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sign.TOKEN, "canary-identity-token")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # Sigstore's servers are not asked
    with pytest.raises(BuildError, match=r"^the identity cannot be used: ") as caught:
        sign.sign(folder)
    assert "canary-identity-token" not in str(caught.value)
    assert not (folder / release.SIGNATURE).exists()


def test_the_signature_is_published_and_goes_with_the_next_release(
    folder: Path, public: Path, at_hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign.sign(folder)
    figures = publish.publish(folder, REPO, "Release Tiny", tag="v1").figures
    assert release.SIGNATURE in HfApi().list_repo_files(REPO)
    sign.sign(folder)  # no two signatures are alike
    again = publish.publish(folder, REPO, "Release Tiny", tag="v1").figures
    assert (again["changed"], again["tag"]) == ([release.SIGNATURE], figures["tag"])
    monkeypatch.delenv(sign.KEY)
    sign.sign(folder)
    assert publish.publish(folder, REPO, "Release Tiny", remove=True).figures["removed"] == [release.SIGNATURE]
    assert release.SIGNATURE not in HfApi().list_repo_files(REPO)


def test_the_front_signs_and_verifies(folder: Path, public: Path, tmp_path: Path) -> None:
    assert sign.main(["--folder", str(folder), "--report", str(tmp_path / "sign.json")]) == 0
    assert sign.main(["--folder", str(folder), "--verify", str(public)]) == 0
    (folder / "README.md").write_text("other")
    assert sign.main(["--folder", str(folder), "--verify", str(public)]) == 1
