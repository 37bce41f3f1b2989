"""Draw the flow: docs/flow.dot from Snakemake's rule graph, docs/flow.svg from it with Graphviz."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

from scripts import core
from scripts.core import BuildError

ROOT = Path(__file__).resolve().parent.parent
DOT, SVG = ROOT / "docs" / "flow.dot", ROOT / "docs" / "flow.svg"

STYLE = """\
    graph [rankdir=LR, bgcolor="white", margin=0.1, ranksep=0.35, nodesep=0.2];
    node [shape=box, style="rounded,filled", fillcolor="#eef3fb", color="#4a6fa5", fontname="Helvetica", fontsize=12];
    edge [color="#7a7a7a", arrowsize=0.7];
"""


def rule_graph() -> str:
    """The rule graph of a whole release as dot text, sorted so that it depends on the rules alone."""
    command = [sys.executable, "-m", "snakemake", "--rulegraph", "--forceall", "all", "publish"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError("snakemake cannot draw the rule graph", ROOT / "Snakefile", done.stderr.strip()[-300:])
    names = dict(re.findall(r'^\s*(\d+)\[label = "([^"]+)"', done.stdout, re.MULTILINE))
    edges = {(names[a], names[b]) for a, b in re.findall(r"^\s*(\d+) -> (\d+)", done.stdout, re.MULTILINE)}
    nodes = "".join(f'    "{name}";\n' for name in sorted(set(names.values())))
    arrows = "".join(f'    "{first}" -> "{second}";\n' for first, second in sorted(edges))
    return f"digraph flow {{\n{STYLE}{nodes}{arrows}}}\n"


def main() -> int:
    """Command-line front."""
    return core.run(core.parser(__doc__), _step)


def _step(options: argparse.Namespace) -> None:
    text = rule_graph()
    with core.atomic(DOT) as temporary:
        temporary.write_text(text, encoding="utf-8")
    program = shutil.which("dot")
    if not program:
        raise BuildError("Graphviz is not installed", "dot", "install the package graphviz to draw docs/flow.svg")
    with core.atomic(SVG) as temporary:
        subprocess.run([program, "-Tsvg", f"-o{temporary}", DOT], check=True)


if __name__ == "__main__":
    sys.exit(main())
