"""Sign a closed release folder with the OpenSSF model-signing package, or verify the signature of one.

The key or identity comes from the environment: DFLASH_SIGNING_KEY names the file of an elliptic private key (PEM; with
DFLASH_SIGNING_PASSWORD where it is encrypted), DFLASH_SIGNING_IDENTITY_TOKEN is an OpenID Connect token for Sigstore,
which needs its servers. With neither nothing is signed, and the report says so.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from scripts import core
from scripts.core import BuildError, Report
from scripts.release import SIGNATURE, SUMS, read_sums

KEY, PASSWORD, TOKEN = "DFLASH_SIGNING_KEY", "DFLASH_SIGNING_PASSWORD", "DFLASH_SIGNING_IDENTITY_TOKEN"
"""Environment variables; the last two are secrets."""


def how() -> str:
    """How this environment signs: with a key, an identity, or not at all. No part of the key."""
    return "key" if os.environ.get(KEY) else "identity" if os.environ.get(TOKEN) else "no key given"


def sign(folder: Path) -> Report:
    """Sign every file of the release, SHA256SUMS included, to ``model.sig`` in it; an old signature is replaced.

    Raises:
        BuildError: the folder is not closed, the key cannot be used, or Sigstore said no.
    """
    # here, because it takes a second to load and other steps only ask how
    from model_signing import hashing, signing

    read_sums(folder)
    report, way = Report(figures={"signed": how()}), how()
    signature = folder / SIGNATURE
    if way == "no key given":
        signature.unlink(missing_ok=True)
        core.say(f"not signed: {KEY} names no key")
        report.check("signature", True, "no key was given, nothing was signed")
        return report
    config = signing.Config()  # type: ignore[no-untyped-call]
    config.set_hashing_config(_files(hashing))
    if way == "key":
        key, password = Path(os.environ[KEY]), os.environ.get(PASSWORD)
        with _explained("the key cannot be used", key, f"name an elliptic private key (PEM) in {KEY}"):
            # the package says text, and hands it on to where bytes are wanted
            config.use_elliptic_key_signer(private_key=key, password=cast(Any, password.encode()) if password else None)
    else:
        with _explained("the identity cannot be used", folder, f"check {TOKEN} and the way to Sigstore's servers"):
            config.use_sigstore_signer(identity_token=os.environ[TOKEN])
    # aside: a file that is being written in the folder would be signed with the others
    with tempfile.TemporaryDirectory() as aside:
        made = Path(aside) / SIGNATURE
        with _explained("the release cannot be signed", folder, "check the key, or the identity and the network"):
            config.sign(folder, made)
        with core.atomic(signature) as temporary:
            shutil.copyfile(made, temporary)
    count = len(read_sums(folder)) + 1
    report.check("signature", True, f"{count} files are signed by {way}")
    core.say(f"{count} files signed by {way}: {signature.name}")
    return report


@contextlib.contextmanager
def _explained(what: str, where: Path, do: str) -> Iterator[None]:
    try:
        yield
    except BuildError:
        raise
    except Exception as error:  # the package lets every kind through
        said = _without_secrets(_plain(str(error)) or type(error).__name__)
        raise BuildError(f"{what}: {said}", where, do) from error


def _plain(text: str) -> str:
    """What the package says of files that do not fit, without their digests, which it shows as raw bytes."""
    forms = {
        "changed": r"Hash mismatch for \\?'(.+?)\\?':",
        "missing": r"Missing files in model [^:]*: ([^'\"]*)",
        "not signed": r"Extra files found in model [^:]*: ([^'\"]*)",
    }
    found = {what: ", ".join(re.findall(form, text)) for what, form in forms.items()}
    return "; ".join(f"{what}: {names}" for what, names in found.items() if names) or text


def _without_secrets(text: str) -> str:
    for name in (PASSWORD, TOKEN):
        if secret := os.environ.get(name):
            text = text.replace(secret, f"${name}")
    return text


def _files(hashing: Any) -> Any:
    """What is signed: all but the signature and git's own; the files of a release are links while it lies here."""
    return hashing.Config().set_ignored_paths(paths=[SIGNATURE]).set_allow_symlinks(True)


def verify(folder: Path, public_key: Path) -> Report:
    """Check a release folder against its signature and a public key; whatever the release has not is left aside.

    Raises:
        BuildError: there is no signature, it is another key's, or a file is not what was signed.
    """
    from model_signing import hashing, verifying

    signature = folder / SIGNATURE
    if not signature.is_file():
        raise BuildError("there is no signature", signature, f"name a folder with a {SIGNATURE}")
    with _explained("the public key cannot be used", public_key, "name a public key (PEM)"):
        config = verifying.Config()  # type: ignore[no-untyped-call]
        config.use_elliptic_key_verifier(public_key=public_key)
        config.set_hashing_config(_files(hashing))
    with _explained("the signature does not fit", folder, "do not trust these files; download them again"):
        config.verify(folder, signature)
    report = Report()
    report.check("signature", True, f"every file is as it was signed; {SUMS} is one of them")
    return report


def main(argv: list[str] | None = None) -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--folder", required=True, type=Path, help="closed release folder")
    arguments.add_argument("--verify", type=Path, metavar="PUBLIC_KEY", help="verify with this key in place of signing")
    arguments.add_argument("--report", type=Path)
    return core.run(arguments, _step, argv)


def _step(options: argparse.Namespace) -> None:
    report = verify(options.folder, options.verify) if options.verify else sign(options.folder)
    if options.verify:
        core.say(f"{options.folder}: {report.checks[0].detail}")
    if options.report:
        report.write(options.report)


if __name__ == "__main__":
    sys.exit(main())
