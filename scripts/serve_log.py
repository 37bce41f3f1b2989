"""Judge what llama-server logged: which of its warnings about a draft mean something, and which do not.

It says of a draft whose memory it cannot measure what it says of one that is not there.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts import core
from scripts.core import BuildError

LEAST = 0.05
"""Acceptance below which a draft does not work at all, whatever it is asked."""

UNMEASURED = re.compile(r"failed to measure (?:the memory of the extra model|draft model memory)")
MISSING = re.compile(r"failed to open GGUF file '(.+)' \(No such file|failed to load draft model, '(.+)'")
CLAMPED = re.compile(r"requested draft size \(n_max=(\d+).*clamping to (\d+)")
ACCEPTED = re.compile(r"draft acceptance = (\d\.\d+) \(\s*(\d+) accepted /\s*(\d+) generated\)")
UNSUPPORTED = re.compile(r"speculative decoding not supported|failed to initialize speculative decoding")


@dataclass(frozen=True)
class Finding:
    """A line of the log and what it means."""

    harmful: bool
    text: str


def judge(lines: Iterable[str]) -> list[Finding]:
    """What a log says about the draft, each thing once.

    Args:
        lines: the log of one start.
    """
    found: list[Finding] = []
    unmeasured = False
    drafted = accepted = 0
    for line in lines:
        unmeasured |= bool(UNMEASURED.search(line))
        if match := MISSING.search(line):
            found.append(Finding(True, f"a model is not there: {match[1] or match[2]}"))
        if match := CLAMPED.search(line):
            found.append(Finding(True, f"n_max {match[1]} is more than the draft can, {match[2]} is used"))
        if UNSUPPORTED.search(line):
            found.append(Finding(True, "the server runs without the draft"))
        if match := ACCEPTED.search(line):
            accepted, drafted = accepted + int(match[2]), drafted + int(match[3])
    if drafted and accepted / drafted < LEAST:
        text = (
            f"acceptance is {accepted / drafted:.3f}: the draft is of another target, or its KV cache is quantized in a"
            " build that cannot do that (use draft_kv_type f16)"
        )
        found.append(Finding(True, text))
    if unmeasured and not any(finding.text.startswith("a model is not there") for finding in found):
        text = "the draft was not counted when the layers were fitted to the GPU: harmless where the memory plan fits"
        found.append(Finding(False, text))
    return list(dict.fromkeys(found))


def main(argv: Sequence[str] | None = None) -> int:
    """Command-line front; a log with something harmful in it is an error."""
    arguments = core.parser(__doc__)
    arguments.add_argument("server_log", type=Path, help="what llama-server printed")
    return core.run(arguments, _step, argv)


def _step(options: argparse.Namespace) -> None:
    path: Path = options.server_log
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise BuildError(f"cannot read the log: {error.strerror}", path, "name the server's log") from error
    found = judge(text.splitlines())
    for finding in found:
        core.say(f"{'warning' if finding.harmful else 'note'}: {finding.text}")
    if harmful := [finding for finding in found if finding.harmful]:
        raise BuildError(harmful[0].text, path, "see the lines above, then start the server again")


if __name__ == "__main__":
    sys.exit(main())
