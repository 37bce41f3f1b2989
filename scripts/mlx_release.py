"""Close the MLX folder of a draft for publishing: config, linked weights, a card made from reports, SHA256SUMS."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts import bench_summary, card, core, fetch, mlx_env, mlx_quant, release

TEMPLATE = Path(__file__).resolve().parent.parent / "workflow" / "templates" / "mlx-card.md.j2"


def metadata(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The card's metadata: the GGUF card's, but for what is said of GGUF and llama.cpp."""
    data = card.metadata(manifest)
    data["tags"] = ["mlx", *(tag for tag in data["tags"] if tag not in ("gguf", "llama.cpp", "mlx"))]
    # The weights are the draft's own: nothing is quantized before it is loaded.
    del data["base_model_relation"]
    data["library_name"] = "mlx"
    return data


def render(reports: Mapping[str, Any], options: Mapping[str, Any], template: Path = TEMPLATE) -> str:
    """The card's text.

    Args:
        reports: ``manifest`` and ``mlx``, and where they are there ``mlx_target`` and ``bench``.
        options: the pair's ``publish_mlx`` and ``serve_mlx``.
        template: the card's template.

    Raises:
        BuildError: the template uses a figure that no report has.
    """
    serve, bench = options["serve_mlx"], reports.get("bench")
    return card.fill(
        template,
        metadata(reports["manifest"]),
        manifest=reports["manifest"],
        mlx=reports["mlx"],
        mlx_target=reports.get("mlx_target"),
        bench=bench,
        table=bench_summary.table(bench["rows"]).to_markdown(index=False) if bench else None,
        publish=options["publish_mlx"],
        serve=serve,
        dflash_mlx=mlx_env.pins()["dflash-mlx"],
        quant=mlx_quant.parse(serve["draft_quant"], "serve_mlx.draft_quant"),
    )


def close(folder: Path, mlx: Path, text: str, known: Mapping[str, str]) -> None:
    """Fill and close the folder that is published.

    Args:
        folder: what is published.
        mlx: the MLX folder.
        text: the card.
        known: file -> sha256 of the MLX folder, as its report says.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in known:
        # The config is an output that Snakemake touches; weights are never touched, and never copied.
        core.link_or_copy(mlx / name, folder / name, copied_below=fetch.COPIED if name == "config.json" else 0)
    with core.atomic(folder / "README.md") as temporary:
        temporary.write_text(text, encoding="utf-8")
    release.close(folder, [*known, "README.md"], known)


def main(argv: Sequence[str] | None = None) -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--mlx", type=Path, required=True, help="the MLX folder")
    for name, needed in (("manifest", True), ("mlx-report", True), ("mlx-target", False), ("bench", False)):
        arguments.add_argument(f"--{name}", type=Path, required=needed, help=f"the report {name}")
    arguments.add_argument("--options", type=json.loads, required=True, help='JSON: {"publish_mlx", "serve_mlx"}')
    arguments.add_argument("--out", type=Path, required=True, help="folder to close")
    return core.run(arguments, _step, argv)


def _step(options: argparse.Namespace) -> None:
    paths = {"manifest": options.manifest, "mlx": options.mlx_report}
    paths |= {"mlx_target": options.mlx_target} if options.mlx_target else {}
    paths |= {"bench": options.bench} if options.bench else {}
    reports = {name: core.read_json(path) for name, path in paths.items()}
    close(options.out, options.mlx, render(reports, options.options), reports["mlx"]["sha256"])
    core.say(f"closed {options.out}: {len(reports['mlx']['sha256']) + 1} files")


if __name__ == "__main__":
    sys.exit(main())
