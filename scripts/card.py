"""Render the model card from reports alone: a figure without a report behind it cannot get into it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from huggingface_hub import ModelCardData

from scripts import card_measured, core
from scripts.core import BuildError
from scripts.resolve import DEFAULT_TAGS
from scripts.toolchain_spec import MINIMUM

TEMPLATE = Path(__file__).resolve().parent.parent / "workflow" / "templates" / "card.md.j2"


def metadata(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The card's metadata: license of the draft, the draft as base model first, then the target."""
    general = manifest["general"]
    licensed = {
        key: general[f"general.{key.replace('_', '.')}"]
        for key in ("license_name", "license_link")
        if f"general.{key.replace('_', '.')}" in general
    }
    data = ModelCardData(
        license=general["general.license"],
        base_model=[manifest["inputs"][role]["repo"] for role in ("draft", "target")],
        base_model_relation="quantized",
        library_name="gguf",
        pipeline_tag="text-generation",
        tags=["gguf", "llama.cpp", *general["general.tags"]],
        **licensed,
        **({"quantized_by": general["general.quantized_by"]} if "general.quantized_by" in general else {}),
    )
    return dict(data.to_dict())  # type: ignore[no-untyped-call]


def default_output(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The file that the card's commands use: what llama.cpp itself would take."""
    outputs: dict[str, dict[str, Any]] = {output["quant"]: output for output in manifest["outputs"]}
    for quant in (*DEFAULT_TAGS, *outputs):
        if quant in outputs:
            return outputs[quant]
    raise BuildError("the release has no file", "manifest.json", "name at least one quant in the config")


def fill(template: Path, data: Mapping[str, Any], **values: Any) -> str:
    """A card: its metadata as YAML, then the body that a template makes of values.

    Args:
        template: Jinja template of the body.
        data: the metadata.
        values: all that the template may use.

    Raises:
        BuildError: the template uses a figure that no report has, or is not a template.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(template.parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - the card is Markdown
    )
    environment.filters["human"] = core.human
    try:
        body = environment.get_template(template.name).render(values)
    except jinja2.TemplateError as error:
        raise BuildError(f"the card cannot be rendered: {error}", template, "mend the template") from error
    return f"---\n{ModelCardData(**data).to_yaml()}\n---\n\n{body}"


def render(
    manifest: Mapping[str, Any],
    options: Mapping[str, Any],
    template: Path = TEMPLATE,
    *,
    measured: Mapping[str, Any] | None = None,
    gate: Mapping[str, Any] | None = None,
) -> str:
    """The card's text.

    Args:
        manifest: of the release.
        options: config keys that the card names: ``publish`` (repo), ``target_gguf`` ({repo, quant}), ``block_size``,
            ``serve`` (context, KV type, ...), ``pictures`` (file names in the release), ``mlx`` (repo, or None).
        template: Jinja template of the body.
        measured: what :func:`scripts.card_measured.measured` gives; None where nothing was measured.
        gate: report of the gate; None where the pair has none.

    Raises:
        BuildError: the template uses a figure that no report has, or is not a template.
    """
    return fill(
        template,
        metadata(manifest),
        manifest=manifest,
        default=default_output(manifest),
        publish=options.get("publish"),
        target_gguf=options.get("target_gguf"),
        draft_max=options["block_size"] - 1,
        serve=options["serve"],
        mlx=options["mlx"],
        pictures=options["pictures"],
        minimum=MINIMUM,
        measured=measured,
        gate=gate,
    )


def main() -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--manifest", required=True, type=Path)
    arguments.add_argument("--options", required=True, type=json.loads, help='JSON: {"publish", "target_gguf", ...}')
    arguments.add_argument("--template", type=Path, default=TEMPLATE)
    arguments.add_argument("--bench", type=Path, help="report of the pair's own measurement")
    arguments.add_argument("--measured", type=Path, nargs="*", default=[], help="bench reports of other machines")
    arguments.add_argument("--gate", type=Path, help="report of the gate")
    arguments.add_argument("--out", required=True, type=Path)
    return core.run(arguments, _step)


def _step(options: argparse.Namespace) -> None:
    manifest = core.read_json(options.manifest)
    measured = card_measured.measured(options.bench, options.measured, manifest)
    gate = core.read_json(options.gate) if options.gate else None
    text = render(manifest, options.options, options.template, measured=measured, gate=gate)
    with core.atomic(options.out) as temporary:
        temporary.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
