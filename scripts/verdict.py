"""What a check found about something published: a row a check, a table of them, one line at the end.

Checks of a build stop it; these are for a person who asks about files that are out already, so all of them are shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from scripts import core
from scripts.core import BuildError, Check, Report

WARNING = "warning: "
"""How the detail of a check begins that held and still is to be known about."""


@dataclass(frozen=True)
class Finding(Check):
    """A check with what to do about it where it did not hold."""

    do: str = ""

    @property
    def verdict(self) -> str:
        """``ok``, ``warn`` or ``fail``."""
        if not self.ok:
            return "fail"
        return "warn" if self.detail.startswith(WARNING) else "ok"


def found(check: Check, do: str) -> Finding:
    """A check of another step as a finding."""
    return Finding(check.name, check.ok, check.detail, do)


def table(findings: Iterable[Finding]) -> str:
    """The findings as a table in Markdown: check, verdict, what was found."""
    rows = [
        {
            "check": _cell(finding.name),
            "verdict": finding.verdict,
            "what was found": _cell(
                finding.detail.removeprefix(WARNING)
                + (f"; {finding.do}" if finding.do and finding.verdict != "ok" else "")
            ),
        }
        for finding in findings
    ]
    return str(pd.DataFrame(rows).to_markdown(index=False, disable_numparse=True))


def _cell(text: str) -> str:
    """Text of one line that a table in Markdown shows as it is; what comes from a file may hold anything."""
    return core.tidy(text).replace("|", "\\|")


def conclude(
    findings: Sequence[Finding],
    figures: Mapping[str, Any],
    *,
    effort: str,
    where: str,
    yes: str,
    no: str,
    json_to: Path | None,
) -> None:
    """Print the table and one line, write the JSON where it is asked for, and end the step.

    Args:
        findings: what was found, in order.
        figures: what else goes into the JSON.
        effort: what was read, for the line.
        where: what was looked at, for the error.
        yes: the verdict where every check held.
        no: the verdict where one did not.
        json_to: file for ``{"ok", "checks", "verdict", ...figures}``.

    Raises:
        BuildError: a check did not hold: the first of them, and how many more.
    """
    report = Report(checks=list(findings))
    counts = {kind: sum(finding.verdict == kind for finding in findings) for kind in ("ok", "warn", "fail")}
    verdict = yes if report.ok else no
    report.figures = {"verdict": verdict, "counts": counts, **figures}
    print(table(findings))
    tally = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    print(f"\n{verdict}: {tally}; {effort}", flush=True)
    if json_to is not None:
        report.write(json_to)
    bad = [finding for finding in findings if not finding.ok]
    if bad:
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        raise BuildError(f"{no}: {bad[0].name}: {bad[0].detail}{more}", where, bad[0].do)
