"""Quantize the bf16 GGUF with the pinned llama-quantize."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from scripts import core, process
from scripts.convert import gguf_counts, written
from scripts.core import BuildError
from scripts.toolchain import quant_types


def quantize(bf16: Path, out: Path, quant: str, toolchain: Path, threads: int) -> None:
    """Write ``out``, the ``quant`` version of the ``bf16`` GGUF; the bytes do not depend on the number of threads.

    Raises:
        BuildError: llama-quantize does not know the type, failed, or left tensors out.
    """
    program = toolchain / "bin" / "llama-quantize"
    known = quant_types(program)
    if quant.upper() not in known:
        raise BuildError(f"unknown quant {quant}", "quants in the config", f"use bf16 or one of {', '.join(known)}")
    expected, _ = gguf_counts(bf16)
    progress = core.Progress(f"quantizing to {quant}", expected, "tensors")

    def show(line: str) -> None:
        if found := re.match(r"\[\s*(\d+)/\s*\d+\]", line):
            progress.set(int(found[1]))

    with core.atomic(out) as temporary:
        code, tail = process.stream([program, bf16, temporary, quant, str(threads)], show)
        if code:
            raise process.failed("llama-quantize", code, tail, bf16, "see the log for its last lines", wrote=temporary)
        tensors, _ = written(temporary, "llama-quantize", bf16)
        if tensors != expected:
            raise BuildError(f"llama-quantize wrote {tensors} of {expected} tensors", bf16, "try another llama_cpp pin")


def main() -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--bf16", required=True, type=Path, help="GGUF to quantize")
    arguments.add_argument("--quant", required=True, help="type, as llama-quantize names it")
    arguments.add_argument("--toolchain", required=True, type=Path, help="folder of results/toolchain/")
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--out", required=True, type=Path, help="GGUF to write")
    return core.run(arguments, _step)


def _step(options: argparse.Namespace) -> None:
    quantize(options.bf16, options.out, options.quant, options.toolchain, options.threads)


if __name__ == "__main__":
    sys.exit(main())
