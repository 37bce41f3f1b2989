"""Whether llama.cpp finds the two models under the names that they are published with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scripts import fit, gguf_resolve, resolve
from scripts.doctor_source import Model
from scripts.gguf_resolve import Found
from scripts.verdict import Finding

RENAME = "publish it as <name>-<QUANT>.gguf or dflash-<name>-<QUANT>.gguf"
SPEC_TYPE = "--spec-type draft-dflash"


def findings(draft: Model, target: Model) -> Iterable[Finding]:
    """Check the names of both, and that split files are complete."""
    yield _draft(draft)
    yield from _beside(draft)
    yield _target(target)
    yield _split("draft split", draft)
    yield _split("target split", target)


def _argument(model: Model, quant: str | None) -> str:
    """What is given to ``-hf`` or ``-hfd``."""
    return f"{model.place.repo or '<repository>'}{f':{quant}' if quant else ''}"


def _quant(model: Model) -> str | None:
    """The quant that a command would name: the one asked for, or the one that the file's name ends with."""
    return model.place.quant if not model.place.file else resolve.label(model.files[0])


def _seen(model: Model) -> Sequence[str]:
    """The names that a resolver sees: the repository's; of a file on this machine its own, as if published alone."""
    return model.listing if model.place.repo else [path.rpartition("/")[2] for path in model.files]


def _draft(draft: Model) -> Finding:
    name, quant = "draft file", _quant(draft)
    argument = _argument(draft, quant)
    own = draft.files[0] if draft.place.repo else draft.files[0].rpartition("/")[2]
    found = gguf_resolve.draft(_seen(draft), quant)
    if found is not None and found.path == own:
        return Finding(name, True, _how(found, argument, quant), RENAME)
    taken = f"-hfd {argument} takes {found.path if found else 'nothing'}"
    if draft.place.file:  # named by a person, who can name it to llama.cpp too
        return Finding(name, True, f"warning: {taken}, not {own}; give it as -md", RENAME)
    return Finding(name, False, f"{taken}; {own} was looked at", RENAME)


def _how(found: Found, argument: str, quant: str | None) -> str:
    if not found.exact:
        return f"warning: -hfd {argument} takes {found.path}, the nearest to {quant}"
    if found.sidecar:
        return f"-hfd {argument} takes {found.path}, a sidecar (llama.cpp of before sidecars does not find it)"
    return f"-hfd {argument} {SPEC_TYPE} takes {found.path}"


def _beside(draft: Model) -> Iterable[Finding]:
    """What else in the draft's repository leads llama.cpp astray."""
    if draft.place.repo is None:
        return
    if resolve.PRESET in draft.listing:
        detail = f"{resolve.PRESET} in the root: llama.cpp takes nothing else of such a repository"
        yield Finding("draft repository", False, detail, f"remove {resolve.PRESET}")
    elif rivals := gguf_resolve.rivals(draft.listing):
        detail = f"warning: without {SPEC_TYPE} llama.cpp takes {rivals[0]} in the draft's place"
        yield Finding("draft repository", True, detail, f"always give {SPEC_TYPE}")


def _target(target: Model) -> Finding:
    name, quant = "target file", _quant(target)
    argument = _argument(target, quant)
    own = target.files[0] if target.place.repo else target.files[0].rpartition("/")[2]
    found = resolve.best_model(_seen(target), quant)
    if found == own:
        return Finding(name, True, f"-hf {argument} takes {own}")
    taken = f"-hf {argument} takes {found or 'nothing'}"
    if target.place.file:
        return Finding(name, True, f"warning: {taken}, not {own}", "give the file as -m")
    return Finding(name, False, f"{taken}; {own} was looked at", "publish it as <name>-<QUANT>.gguf")


def _split(name: str, model: Model) -> Finding:
    """Whether a model is in one file or in all of its parts; of a split sidecar llama.cpp takes one part only."""
    files = len(model.files)
    counted = fit.parts_check(model.values, files)
    if not counted.ok:
        return Finding(name, False, counted.detail, "publish all parts under their own names")
    if files > 1 and gguf_resolve.SIDECAR in model.files[0]:
        return Finding(name, False, f"a sidecar in {files} files, llama.cpp takes one", "publish it as one file")
    return Finding(name, True, "one file" if files == 1 else f"{files} files")
