"""Convert the draft to a bf16 GGUF with the pinned converter, for the prepared target's vocabulary.

The converter guesses general.* metadata from folder names, READMEs and configs. Here it gets a staged folder with a
fixed name, a README that says only the license, and every other field by override, so that the same weights give the
same bytes wherever they lie.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import struct
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import yaml

from scripts import core, process
from scripts.core import BuildError, Report
from scripts.draft_config import FIX_CONFIG, check_tensors, read_draft_config
from scripts.safetensors_header import check_weights

PUBLIC_HUB = "https://huggingface.co"
"""Base models are named by their public address, whatever endpoint they were fetched from."""

TAGS = ["dflash", "speculative-decoding", "draft-model"]

KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(256 << 20), "MALLOC_TRIM_THRESHOLD_": str(512 << 20)}
"""Has glibc keep freed memory (these are bytes) for the next rows: the converter takes and frees some megabytes for
every 16 rows, and getting them from the kernel each time takes longer than the conversion itself."""

GUESSED = (
    *("organization", "finetune", "version", "author", "description", "url", "doi", "uuid", "repo_url"),
    *("source.url", "source.doi", "source.uuid", "source.repo_url"),
)
"""Fields that the converter would otherwise guess; they are set to nothing."""


def license_of(draft: Path, override: str | None) -> dict[str, str]:
    """The draft's license from its README's metadata: license and, where given, license_name and license_link.

    Raises:
        BuildError: the README declares none and the config names none.
    """
    from huggingface_hub import metadata_load  # here, because the steps that only count tensors do without

    readme = draft / "README.md"
    try:
        declared = metadata_load(readme) if readme.exists() else None
    except (yaml.YAMLError, ValueError) as error:
        raise BuildError(
            f"the draft's README metadata cannot be read: {error}", readme, "report it upstream"
        ) from error
    found = {
        key: str((declared or {})[key])
        for key in ("license", "license_name", "license_link")
        if (declared or {}).get(key)
    }
    if "license" not in found:
        if not override:
            raise BuildError(
                "the draft's README declares no license", readme, "set `license` of the pair in the config"
            )
        found = {"license": override}
    return found


def base_model(repo: str, commit: str) -> dict[str, str]:
    """One entry of general.base_model: the repository at the commit it was read from."""
    organization, name = repo.split("/")
    return {"name": name, "organization": organization, "version": commit, "repo_url": f"{PUBLIC_HUB}/{repo}"}


def general(
    name: str,
    licensed: Mapping[str, str],
    parameters: int,
    inputs: Mapping[str, Any],
    quantized_by: str | None,
) -> dict[str, Any]:
    """The general.* fields of the draft's GGUF files, as GGUF key -> value, and nothing else is allowed in them.

    ``inputs`` is the lock (role -> {repo, commit}); the draft is named first, then the target.
    """
    fields: dict[str, Any] = {
        "general.name": name,
        "general.basename": name,
        "general.size_label": gguf.size_label(parameters, 0, 0, 0),
        "general.license": licensed["license"],
        "general.tags": TAGS,
    }
    for key in ("license_name", "license_link"):
        if key in licensed:
            fields[f"general.{key.replace('_', '.')}"] = licensed[key]
    if quantized_by:
        fields["general.quantized_by"] = quantized_by
    models = [base_model(inputs[role]["repo"], inputs[role]["commit"]) for role in ("draft", "target")]
    fields["general.base_model.count"] = len(models)
    for index, model in enumerate(models):
        fields |= {f"general.base_model.{index}.{key}": value for key, value in model.items()}
    return fields


def override(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The converter's metadata override file for these general.* fields; what it would guess is set to null."""
    models = [
        {key: fields[f"general.base_model.{index}.{key}"] for key in ("name", "organization", "version", "repo_url")}
        for index in range(fields["general.base_model.count"])
    ]
    plain = {key: value for key, value in fields.items() if not key.startswith("general.base_model.")}
    return {f"general.{key}": None for key in GUESSED} | plain | {"general.base_models": models}


def convert(
    draft: Path,
    target: Path,
    toolchain: Path,
    out: Path,
    *,
    name: str,
    inputs: Mapping[str, Any],
    license_override: str | None = None,
    quantized_by: str | None = None,
) -> Report:
    """Convert the draft in ``draft`` with the vocabulary of ``target`` to ``out``, a bf16 GGUF.

    ``toolchain`` is a folder of results/toolchain/; its converter runs offline, with its own gguf-py.

    Raises:
        BuildError: the draft is not a plain DFlash draft, the converter failed, or what it wrote has not every tensor.
    """
    config = read_draft_config(draft / "config.json")
    weights = check_weights(draft)
    report = Report(checks=check_tensors(config, weights))
    report.settle(draft, FIX_CONFIG)
    parameters = sum(math.prod(tensor.shape) for tensor in weights.tensors.values())
    fields = general(name, license_of(draft, license_override), parameters, inputs, quantized_by)
    report.figures.update(general=fields, parameters=parameters)
    with tempfile.TemporaryDirectory(prefix="convert-") as scratch, core.atomic(out) as temporary:
        staged = _stage(draft, Path(scratch), fields)
        command: list[str | Path] = [
            *(sys.executable, toolchain / "llama.cpp" / "convert_hf_to_gguf.py", staged, "--outtype", "bf16"),
            *("--target-model-dir", target, "--model-name", name),
            *("--metadata", Path(scratch) / "metadata.json", "--outfile", temporary),
        ]
        environment = process.environment(
            {
                "PYTHONPATH": str((toolchain / "llama.cpp" / "gguf-py").resolve()),
                "HF_HUB_OFFLINE": "1",
                "HF_HOME": str(Path(scratch) / "home"),
                "HF_MODULES_CACHE": str(Path(scratch) / "home" / "modules"),
                **KEEP_MEMORY,
            }
        )
        code, tail = process.stream(command, _Shown(weights.data_bytes), env=environment)
        if code:
            raise converter_failed(code, tail, target, toolchain, temporary)
        tensors, size = written(temporary, "the converter", draft)
        report.require(
            "every tensor was written",
            tensors == len(weights.tensors) and size > weights.data_bytes,
            f"{tensors} of {len(weights.tensors)} tensors, {size} bytes for {weights.data_bytes} bytes of weights",
            draft,
            "the converter lost weights; try another llama_cpp pin",
        )
    return report


def _stage(draft: Path, scratch: Path, fields: Mapping[str, Any]) -> Path:
    """A folder with the draft's config and weights, our README and the override file beside it."""
    staged = scratch / "draft"
    staged.mkdir()
    for file in draft.iterdir():
        if file.name == "config.json" or ".safetensors" in file.suffixes:
            (staged / file.name).symlink_to(file.resolve())
    # The converter takes the license from a README only; all else comes from the override file.
    licensed = {"license": fields["general.license"]}
    (staged / "README.md").write_text(f"---\n{yaml.safe_dump(licensed)}---\n", encoding="utf-8")
    core.write_json(scratch / "metadata.json", override(fields))
    return staged


class _Shown:
    """Shows the converter's progress bar as lines, and nothing else of its output."""

    PERCENT = re.compile(r"Writing:\s*(\d+)%")

    def __init__(self, total: int) -> None:
        self.progress = core.Progress("converting", total)

    def __call__(self, line: str) -> None:
        if found := self.PERCENT.search(line):
            self.progress.set(self.progress.total * int(found[1]) // 100)


def converter_failed(code: int, tail: list[str], target: Path, toolchain: Path, wrote: Path) -> BuildError:
    """The converter's failure in one line; an unknown pre-tokenizer is said with its hash and the versions."""
    text = "\n".join(tail)
    if "pre-tokenizer was not recognized" in text:
        found = re.search(r"chkhsh:\s*([0-9a-f]{64})", text)
        chkhsh = found[1] if found else "unknown"
        import transformers

        return BuildError(
            f"the converter of {toolchain.name} does not know this pre-tokenizer (hash {chkhsh}, "
            f"transformers {transformers.__version__})",
            target / "tokenizer.json",
            "take the tokenizer as its authors published it, or a llama.cpp that knows it; never patch the hash",
        )
    return process.failed("convert_hf_to_gguf.py", code, tail, target, "see the log for its last lines", wrote=wrote)


def gguf_counts(path: Path) -> tuple[int, int]:
    """Number of tensors that a GGUF file's header announces, and the file's size in bytes.

    Raises:
        BuildError: the file does not start like a GGUF file.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        start = stream.read(16)
    if len(start) < 16 or start[:4] != b"GGUF":
        raise BuildError("not a GGUF file", path, "delete it and build it again")
    return struct.unpack("<Q", start[8:16])[0], size


def written(path: Path, program: str, where: Path) -> tuple[int, int]:
    """:func:`gguf_counts` of what a program just wrote under a name that nobody needs to know.

    Raises:
        BuildError: it ended well and wrote no GGUF file.
    """
    try:
        return gguf_counts(path)
    except BuildError as error:
        raise BuildError(f"{program} ended well and wrote no GGUF file", where, "try another llama_cpp pin") from error


def main() -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--draft", required=True, type=Path, help="folder with the draft's config and weights")
    arguments.add_argument("--target", required=True, type=Path, help="prepared tokenizer folder of the target")
    arguments.add_argument("--toolchain", required=True, type=Path, help="folder of results/toolchain/")
    arguments.add_argument("--lock", required=True, type=Path, help="report of the lock step: the base models")
    arguments.add_argument("--name", required=True, help="general.name")
    arguments.add_argument("--options", type=json.loads, default={}, help='JSON: {"license", "quantized_by"}')
    arguments.add_argument("--out", required=True, type=Path, help="GGUF to write")
    arguments.add_argument("--report", required=True, type=Path)
    return core.run(arguments, _step)


def _step(options: argparse.Namespace) -> None:
    convert(
        options.draft,
        options.target,
        options.toolchain,
        options.out,
        name=options.name,
        inputs=core.read_json(options.lock)["inputs"],
        license_override=options.options.get("license"),
        quantized_by=options.options.get("quantized_by"),
    ).write(options.report)


if __name__ == "__main__":
    sys.exit(main())
