"""Write manifest.json: what the release was made from, with what, and what came out, from the steps' reports alone.

Two releases with the same tensor hashes hold the same weights, whatever their metadata: they can be compared without
downloading either.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scripts import core
from scripts.core import BuildError
from scripts.resolve import sidecar_name

PACKAGES = ("gguf", "huggingface_hub", "numpy", "safetensors", "snakemake", "tokenizers", "torch", "transformers")
"""Packages whose version can change the bytes or the checks of a release."""


def inputs(fetched: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Role -> repository, commit and the files that were read at it, from the fetch reports."""
    keys = ("repo", "revision", "commit", "files")
    return {role: {key: report[key] for key in keys} for role, report in fetched.items()}


def output(report: Mapping[str, Any], sidecar_of: str | None = None) -> dict[str, Any]:
    """One file of the release, from its verify report, with its second name where ``sidecar_of`` names the target."""
    keys = ("file", "quant", "bytes", "bpw", "sha256", "types", "tensors", "tensor_sha256")
    second = {"sidecar": sidecar_name(sidecar_of, report["quant"])} if sidecar_of else {}
    return {key: report[key] for key in keys} | second


def served(steps: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The published target that the draft was compared with, under ``served``; nothing of a file of this machine."""
    report = steps.get("target", {})
    keys = ("repo", "commit", "quant", "files")
    return {"served": {key: report[key] for key in keys}} if "repo" in report else {}


def commands(name: str, quants: Iterable[str]) -> list[str]:
    """The plain commands the files were made with, by file names alone."""
    bf16 = f"{name}-bf16.gguf"
    convert = (
        f"convert_hf_to_gguf.py draft --outtype bf16 --target-model-dir target --model-name {name} "
        f"--metadata metadata.json --outfile {bf16}"
    )
    return [convert, *(f"llama-quantize {bf16} {name}-{quant}.gguf {quant}" for quant in quants if quant != "bf16")]


def manifest(
    pair: str,
    name: str,
    fetched: Mapping[str, Mapping[str, Any]],
    toolchain: Mapping[str, Any],
    steps: Mapping[str, Mapping[str, Any]],
    verified: Iterable[Mapping[str, Any]],
    *,
    sidecar: bool = False,
) -> dict[str, Any]:
    """The manifest of one release.

    Args:
        pair: key of the pair in the config.
        name: file stem.
        fetched: role -> report of the fetch step.
        toolchain: report of the llama-quantize build.
        steps: other reports by name (vocab, convert, ...), for their checks.
        verified: reports of the verify step, one a released file, in the order of the release.
        sidecar: every file has a second name, by which llama.cpp finds it beside a model.

    Raises:
        BuildError: a report says that a check failed.
    """
    files = list(verified)
    reports = {**{f"fetch {role}": report for role, report in fetched.items()}, **steps}
    reports |= {f"verify {report['quant']}": report for report in files}
    for step, report in reports.items():
        if not report["ok"]:
            bad = next(check for check in report["checks"] if not check["ok"])
            raise BuildError(
                f"{bad['name']}: {bad['detail']}", f"report of {step}", "nothing is released until it passes"
            )
    return {
        "pair": pair,
        "name": name,
        "general": steps["convert"]["general"],
        "inputs": inputs(fetched),
        **served(steps),
        "vocabulary": {key: value for key, value in steps["vocab"].items() if key not in ("ok", "checks")},
        "toolchain": {key: value for key, value in toolchain.items() if key not in ("ok", "checks")},
        "packages": {package: version(package) for package in PACKAGES},
        "commands": commands(name, [report["quant"] for report in files]),
        "checks": {step: len(report["checks"]) for step, report in reports.items()},
        "outputs": [output(report, fetched["target"]["repo"] if sidecar else None) for report in files],
    }


def main() -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--pair", required=True)
    arguments.add_argument("--name", required=True)
    arguments.add_argument("--fetched", required=True, type=Path, nargs="+", help="reports of the fetch step")
    arguments.add_argument("--toolchain", required=True, type=Path, help="report of the llama-quantize build")
    arguments.add_argument("--steps", required=True, type=Path, nargs="+", help="reports of the other steps")
    arguments.add_argument("--verified", required=True, type=Path, nargs="+", help="reports of the verify step")
    arguments.add_argument("--sidecar", action="store_true", help="every file has a second name, as a sidecar")
    arguments.add_argument("--out", required=True, type=Path)
    return core.run(arguments, _step)


def _step(options: argparse.Namespace) -> None:
    value = manifest(
        options.pair,
        options.name,
        {path.stem.removeprefix("fetch-"): core.read_json(path) for path in options.fetched},
        core.read_json(options.toolchain),
        {path.stem: core.read_json(path) for path in options.steps},
        [core.read_json(path) for path in options.verified],
        sidecar=options.sidecar,
    )
    core.write_json(options.out, value)


if __name__ == "__main__":
    sys.exit(main())
