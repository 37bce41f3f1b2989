"""The command that starts llama-server with a target and a DFlash draft: the same flags for serving and measuring."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scripts.core import BuildError
from scripts.serve_settings import Settings
from scripts.toolchain_probe import SPEC_TYPE

Model = Path | str
"""A file of this machine, or ``owner/name:QUANT`` on the Hub, which llama-server downloads."""


def command(settings: Settings, target: Model, draft: Model | None, binary: Path) -> list[str]:
    """The command without host and port; the same flags with and without a draft, its own apart.

    Args:
        settings: of the pair.
        target: the target.
        draft: the draft; None leaves out every flag of it, as for a baseline.
        binary: the llama-server.

    Raises:
        BuildError: one model is a file and the other is on the Hub.
    """
    hub = isinstance(target, str)
    if draft is not None and isinstance(draft, str) != hub:
        raise BuildError("one model is a file, the other is on the Hub", str(draft), "take both from one place")
    found = [str(binary), "-hf" if hub else "-m", str(target)]
    if draft is not None:
        found += ["-hfd" if hub else "-md", str(draft)]
        found += ["--spec-type", SPEC_TYPE, "--spec-draft-n-max", str(settings.n_max)]
    # DFlash drafts from text alone; without flash attention a quantized cache of values is refused.
    found += ["--no-mmproj", "-fa", "on", "--jinja"]
    found += ["-ctxcp", str(settings.checkpoints), "-fitt", str(settings.fit_target), "-c", str(settings.context)]
    found += ["-ctk", settings.kv_type, "-ctv", settings.kv_type]
    if draft is not None:
        found += ["-ctkd", settings.draft_kv_type, "-ctvd", settings.draft_kv_type]
    # Where a number is given, llama-server no longer fits the layers to the GPU's memory by itself.
    if settings.gpu_layers is not None:
        found += ["-ngl", str(settings.gpu_layers)]
        found += ["-ngld", str(settings.gpu_layers)] if draft is not None else []
    for flag, value in (("-t", settings.threads), ("-np", settings.parallel)):
        found += [flag, str(value)] if value is not None else []
    return found


def listening(settings: Settings) -> list[str]:
    """Where the server listens, as flags."""
    return ["--host", settings.host, "--port", str(settings.port)]


def flags(arguments: Sequence[str]) -> list[str]:
    """The flags among the arguments of a command, without their values."""
    return [part for part in arguments if part.startswith("-") and not part.lstrip("-").isdecimal()]
