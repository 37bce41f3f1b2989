"""Read a built GGUF back and compare it with the draft and the target it was made from.

Metadata is compared value by value, the vocabulary token by token, bf16 weights bit for bit, and quantized
weights by their relative error. The report's figures (sizes, BPW, sha256 of the file and of every tensor) are
what the model card and the release manifest show.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts import core
from scripts.core import BuildError, Report, read_json, say
from scripts.draft_config import DraftConfig, check_tensors, read_draft_config
from scripts.safetensors_header import check_weights
from scripts.verify_gguf import GgufFile, open_gguf
from scripts.verify_metadata import general_checks, metadata_checks, same_metadata_check
from scripts.verify_tensors import (
    Measured,
    Source,
    error_checks,
    exact_checks,
    from_gguf,
    from_weights,
    measure,
    readable,
    structure_checks,
)
from scripts.verify_types import LIMITS, bits_per_weight, histogram, rule_for, type_checks
from scripts.verify_vocab import read_vocabulary, vocab_checks

CHOOSE = "choose a quant whose blocks divide the rows, or set allow_fallback in the config"
"""What to do about tensors that fell back: building again would give the same."""


def verify(
    gguf_path: Path,
    draft_dir: Path,
    target_dir: Path,
    quant: str,
    *,
    general: Mapping[str, Any],
    only_these: bool = True,
    reference: Path | None = None,
    limits: Mapping[str, float] = LIMITS,
    allow_fallback: bool = False,
    threads: int = 1,
    label: str | None = None,
) -> Report:
    """Compare a GGUF with its sources; every failing check is in the report, none is raised.

    Args:
        gguf_path: the file to verify.
        draft_dir: the draft as downloaded, with config.json and bf16 safetensors.
        target_dir: the prepared target folder that was given to the converter.
        quant: what the file should be, as llama-quantize names it (``Q4_K_M``; ``bf16`` is compared bit for bit).
        general: the ``general.*`` fields that the file must have, by GGUF key; ``general.name`` is one of them.
        only_these: whether no others may be there, but for those that every GGUF has.
        reference: a verified bf16 GGUF of the same draft. A quantized file is then compared with it, metadata
            included; without it, and for bf16, the safetensors are the source of weights.
        limits: largest relative error of a tensor, by type.
        allow_fallback: accept the types llama-quantize falls back to where rows do not fit.
        threads: how many blocks of weights are dequantized and compared at once.
        label: shown with the progress; None shows none.

    Raises:
        BuildError: a source is wrong, the quant has no rule, or the file is no whole GGUF.
    """
    rule = rule_for(quant)
    config = read_draft_config(draft_dir / "config.json")
    weights = check_weights(draft_dir)
    if fault := next((check for check in check_tensors(config, weights) if not check.ok), None):
        raise BuildError(f"{fault.name}: {fault.detail}", draft_dir, "take weights and config of one revision")
    target_config = read_json(target_dir / "config.json")
    if not isinstance(target_config, dict):
        raise BuildError("config.json holds no object", target_dir / "config.json", "fetch the target again")
    vocabulary = read_vocabulary(target_dir, config.vocab_size)
    file = open_gguf(gguf_path)

    report = Report()
    report.checks += structure_checks(file, config)
    report.checks += metadata_checks(file.values, config, target_config, rule)
    report.checks += general_checks(file.values, general, only_these)
    report.checks += vocab_checks(file.values, vocabulary, config.mask_token_id)
    source, source_name = from_weights(weights), ", ".join(header.path.name for header in weights.headers)
    if reference is not None and rule.quant != "BF16":
        base = open_gguf(reference)
        source, source_name = _reference(base, config), reference.name
        report.checks.append(same_metadata_check(file.values, base.values, reference))
    checks, fallen = type_checks(file.tensors.values(), rule, allow_fallback)
    report.checks += checks
    report.figures = _figures(file, quant, source_name, fallen)
    # Weights are compared only where the table of tensors makes that possible; a fault in it is reported already.
    comparable = ("tensor count", "tensor names", "tensor shapes", "tensor types")
    if all(check.ok for check in report.checks if check.name in comparable):
        measured, digest = measure(file, source, threads, label)
        report.checks += exact_checks(measured, file.tensors)
        report.checks += error_checks(measured, file.tensors, limits)
        report.figures |= _measured_figures(file, measured, digest, limits)
    return report


def _reference(base: GgufFile, config: DraftConfig) -> Source:
    """A bf16 GGUF as source of weights, once it is known to be one."""
    checks = structure_checks(base, config)
    checks += type_checks(base.tensors.values(), rule_for("BF16"), allow_fallback=False)[0]
    if fault := next((check for check in checks if not check.ok), None):
        raise BuildError(f"no bf16 GGUF of this draft: {fault.name}: {fault.detail}", base.path, "build it again")
    return from_gguf(base)


def _figures(file: GgufFile, quant: str, source: str, fallen: list[str]) -> dict[str, Any]:
    tensors = file.tensors.values()
    return {
        "file": file.path.name,
        "quant": quant,
        "bytes": file.size,
        "tensors": len(tensors),
        "weights": sum(tensor.weights for tensor in tensors),
        "bpw": bits_per_weight(tensors),
        "types": histogram(tensors),
        "fallback_tensors": fallen,
        "compared_with": source,
    }


def _measured_figures(
    file: GgufFile, measured: Mapping[str, Measured], digest: str, limits: Mapping[str, float]
) -> dict[str, Any]:
    read = all(readable(file.tensors[tensor_name].type) for tensor_name in measured)
    worst: dict[str, dict[str, Any]] = {}
    for tensor_name, found in sorted(measured.items(), key=lambda item: -item[1].error):
        kind = file.tensors[tensor_name].type
        if kind in limits:
            error = round(found.error, 6)
            worst.setdefault(kind, {"tensor": tensor_name, "error": error, "limit": limits[kind]})
    return {
        # None where some tensors could not be dequantized: no figure stands for what was not measured.
        "worst_relative_error": max((entry["error"] for entry in worst.values()), default=0.0) if read else None,
        "worst_by_type": worst,
        "sha256": digest,
        "tensor_sha256": {tensor_name: found.sha256 for tensor_name, found in measured.items()},
    }


def main(argv: list[str] | None = None) -> int:
    """The command-line front; writes the report only when every check held."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--gguf", type=Path, required=True, help="the file to verify")
    arguments.add_argument("--quant", required=True, help="what it should be: bf16, Q8_0, Q4_K_M, ...")
    arguments.add_argument("--draft", type=Path, required=True, help="the draft's folder, as downloaded")
    arguments.add_argument("--target", type=Path, required=True, help="the prepared target folder")
    name = arguments.add_mutually_exclusive_group(required=True)
    name.add_argument("--convert", type=Path, help="the convert step's report: all general.* fields must be its own")
    name.add_argument("--name", help="what general.name must be; other general.* fields are only searched for paths")
    arguments.add_argument("--bf16", type=Path, help="compare a quantized file with this verified bf16 GGUF")
    arguments.add_argument("--allow-fallback", action="store_true", help="accept llama-quantize's fallback types")
    arguments.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads (default: all CPUs)")
    arguments.add_argument("--report", type=Path, required=True, help="where the JSON report goes")
    return core.run(arguments, _step, argv)


def _general(name: str | None, convert: Path) -> Mapping[str, Any]:
    """The general.* fields that were given: the name alone, or those of the convert report."""
    if name is not None:
        return {"general.name": name}
    report = read_json(convert)
    general = report.get("general") if isinstance(report, dict) else None
    if not isinstance(general, dict) or "general.name" not in general:
        raise BuildError("the convert report names no general.* fields", convert, "convert again")
    return general


def _step(options: argparse.Namespace) -> None:
    general = _general(options.name, options.convert)
    report = verify(
        options.gguf,
        options.draft,
        options.target,
        options.quant,
        general=general,
        only_these=options.name is None,
        reference=options.bf16,
        allow_fallback=options.allow_fallback,
        threads=max(1, options.threads),
        label=f"verify {options.gguf.name}",
    )
    fault = next((check.name for check in report.checks if not check.ok), None)
    report.settle(options.gguf, CHOOSE if fault == "fallback types" else "delete the file and build it again")
    report.write(options.report)
    figures = report.figures
    error = figures["worst_relative_error"]
    worst = "relative error not measured" if error is None else f"worst relative error {error:.4f}"
    say(
        f"verified {figures['file']}: {core.human(figures['bytes'])}, {figures['bpw']:.2f} BPW, "
        f"{worst}, {len(report.checks)} checks held"
    )


if __name__ == "__main__":
    sys.exit(main())
