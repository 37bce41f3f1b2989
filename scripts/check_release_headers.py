"""Whether each GGUF of a release is what its manifest says: metadata, tensors, types, bits per weight, size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import gguf

from scripts.check_release_source import ASK, Release
from scripts.core import BuildError, Check
from scripts.verdict import Finding
from scripts.verify_gguf import GgufHeader
from scripts.verify_metadata import ARCHITECTURE, general_checks, value_check
from scripts.verify_types import bits_per_weight, histogram


def headers(release: Release) -> Iterable[Finding]:
    """Compare each file's header with the manifest; one finding a file."""
    for path, output in release.outputs.items():
        if path not in release.files:
            continue
        name = f"header of {path}"
        try:
            checks = _checks(release.header(path), output, release.manifest["general"])
        except BuildError as error:
            yield Finding(name, False, error.what, error.do)
            continue
        faults = [f"{check.name}: {check.detail}" for check in checks if not check.ok]
        more = f"; {len(faults) - 3} more" if len(faults) > 3 else ""
        types = ", ".join(f"{count} {kind}" for kind, count in output["types"].items())
        detail = f"{types}; {output['bpw']:.2f} BPW; {output['bytes']} bytes; {len(checks)} checks held"
        yield Finding(name, not faults, "; ".join(faults[:3]) + more or detail, ASK)


def _checks(header: GgufHeader, output: Mapping[str, Any], general: Mapping[str, Any]) -> list[Check]:
    tensors = header.tensors.values()
    names, hashed = set(header.tensors), set(output["tensor_sha256"])
    odd = sorted(names ^ hashed)
    # Padding after the last tensor may be written or left out.
    end = max((tensor.end for tensor in tensors), default=header.data_start)
    padded = end + -end % header.values.get("general.alignment", gguf.GGUF_DEFAULT_ALIGNMENT)
    return [
        value_check(header.values, "general.architecture", ARCHITECTURE, "every DFlash draft"),
        *general_checks(header.values, general, only_these=True),
        _same("tensors", len(names), output["tensors"]),
        Check("tensor names", not odd, f"{odd[0]} is in only one of file and manifest" if odd else "the manifest's"),
        _same("tensor types", dict(histogram(tensors)), output["types"]),
        _same("bits per weight", bits_per_weight(tensors), output["bpw"]),
        Check(
            "size",
            end <= output["bytes"] <= padded,
            f"the tensor table ends at byte {end}, the manifest says {output['bytes']} bytes",
        ),
    ]


def _same(name: str, have: Any, wanted: Any) -> Check:
    return Check(name, have == wanted, f"the file has {have}, the manifest says {wanted}")
