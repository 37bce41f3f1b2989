"""Say before llama-server starts how much memory target and draft will take, and what to shrink where it is too much.

Reads GGUF headers alone: of files of this machine, or on the Hub (``owner/name:QUANT``) by a few megabytes of each.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from scripts import core, lock, memory_free
from scripts.config import schema
from scripts.core import BuildError, human
from scripts.gguf_remote import HubGgufs, choose, parts
from scripts.hub import page
from scripts.memory_free import Pool
from scripts.memory_log import Measured, measured
from scripts.memory_model import CELLS, Item, Model, Sizes, items, model
from scripts.verify_gguf import open_gguf

MIB = 1 << 20

SPILLED = (
    "a target that spills out of the GPU makes speculation slower than none (28 against 58 tok/s on one 8 GB card)"
)

REMOTE = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*):(?P<quant>\w+)")


@dataclasses.dataclass(frozen=True)
class Plan:
    """What will be allocated, and where."""

    target: Model
    draft: Model | None
    sizes: Sizes
    pool: Pool
    margin: int
    """Bytes to leave free."""
    items: list[Item]

    @property
    def counted(self) -> list[Item]:
        """What takes from the pool: without a GPU, or with one that shares the machine's memory, all of it."""
        return [item for item in self.items if not (self.pool.gpu and not self.pool.shared and item.host)]

    @property
    def needed(self) -> int:
        """Bytes that are taken from the pool."""
        return sum(item.bytes for item in self.counted)

    @property
    def room(self) -> int:
        """Bytes that may be taken."""
        return max(0, self.pool.free - self.margin)

    @property
    def fits(self) -> bool:
        """Whether all of it has room."""
        return self.needed <= self.room

    def with_sizes(self, **changed: Any) -> Plan:
        """The same plan with other settings."""
        sizes = dataclasses.replace(self.sizes, **changed)
        return plan(self.target, self.draft, sizes, self.pool, self.margin)


def plan(target: Model, draft: Model | None, sizes: Sizes, pool: Pool, margin: int = 0) -> Plan:
    """What llama-server will allocate.

    Args:
        target: the target's header.
        draft: the draft's, where one is used.
        sizes: the server's settings.
        pool: where the models will lie.
        margin: bytes to leave free.

    Raises:
        BuildError: a header lacks a number that the plan needs.
    """
    found = items(target, draft, sizes, pool.gpu and not pool.shared)
    return Plan(target, draft, sizes, pool, margin, found)


def read(name: str) -> Model:
    """The header of a model: a file (of a split one, the first), or ``owner/name:QUANT`` on the Hub.

    Raises:
        BuildError: there is no such file or quant, a part is missing, or it is no whole GGUF.
    """
    remote = REMOTE.fullmatch(name)
    if remote is None or Path(name).exists():
        path = Path(name)
        names = [other.name for other in path.parent.glob("*.gguf")]
        files = [path.parent / part for part in parts(path.name, names, name)]
        return model(path.name, [open_gguf(file) for file in files])
    repo, quant = remote["repo"], remote["quant"]
    entry = lock.resolve(repo, "main")
    known = {file["path"]: file for file in entry["files"]}
    source = HubGgufs(repo, entry["commit"])
    found = model(name, [source.header(known[path]) for path in choose(list(known), quant, page(repo))])
    core.say(f"{name}: {human(source.bytes_read)} read in {source.requests} requests")
    return found


def table(made: Plan, seen: Measured | None = None) -> str:
    """The plan as a Markdown table, in MiB as llama-server's log has them; beside it what a log says, where one is."""
    rows = [
        {"model": item.model, "what": item.what, "MiB": item.bytes, "where": _place(made, item)} for item in made.items
    ]
    rows.append({"model": "all", "what": "needed", "MiB": made.needed, "where": made.pool.name})
    rows.append({"model": "", "what": "free", "MiB": made.pool.free, "where": made.pool.name})
    frame = pd.DataFrame(rows)
    if seen is not None:
        named = zip(frame["model"], frame["what"], strict=True)
        frame.insert(3, "measured MiB", [f"{seen[name] / MIB:.1f}" if name in seen else "" for name in named])
    frame["MiB"] /= MIB
    return frame.to_markdown(index=False, floatfmt=".1f")


def _place(made: Plan, item: Item) -> str:
    return made.pool.name if item in made.counted else "memory of this machine"


def advice(made: Plan) -> str | None:
    """One line on what to shrink and by how much; None where all of it fits."""
    if made.fits:
        return None
    over = made.needed - made.room
    kept = f", {human(made.margin)} of them to be left free" if made.margin else ""
    what = f"{human(made.needed)} needed and {human(made.pool.free)} free in {made.pool.name}{kept}"
    return f"does not fit, {human(over)} too much: {what}; {'; '.join(_ways(made))}; {SPILLED}"


def _ways(made: Plan) -> list[str]:
    """What can be shrunk, the cheapest first: each with what it frees by itself."""
    sizes, ways = made.sizes, []
    together: dict[str, Any] = {}
    enough = False

    def way(text: str, **changed: Any) -> None:
        nonlocal enough
        other = made.with_sizes(**changed)
        if (freed := made.needed - other.needed) <= 0:
            return
        ways.append(f"{text} frees {human(freed)}{' and is enough' if other.fits else ''}")
        together.update(changed)
        if not enough and made.with_sizes(**together).fits:
            enough = True
            if len(ways) > 1:
                ways[-1] += f", the first {len(ways)} are enough together" if not other.fits else ""

    if sizes.slots > 1:
        way("one slot (serve.parallel 1)", parallel=1)
    if sizes.kv_type in ("f32", "f16", "bf16"):
        way("KV type q8_0 (serve.kv_type)", kv_type="q8_0")
    if sizes.ubatch > 128:
        way("micro-batches of 128 (-- -ub 128)", ubatch=128)
    if made.draft is not None and sizes.n_max > 4:
        way("drafts of 4 (serve.n_max)", n_max=4)
    context = _largest_context(made)
    if context is None:
        ways.append("no context is small enough by itself")
    else:
        way(f"a context of {context} (serve.context)", context=context)
    weights = sum(item.bytes for item in made.counted if (item.model, item.what) == ("target", "weights"))
    left = weights - (made.needed - made.room)
    largest = f"a smaller quant of the target is enough at {human(left)}, this one has {human(weights)}"
    ways.append(largest if left > 0 else "no quant of the target is small enough by itself")
    return ways


def _largest_context(made: Plan) -> int | None:
    """The largest context below the one asked for that fits, in whole steps of llama.cpp; None where none does."""
    low, high = 0, made.sizes.context // CELLS
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if made.with_sizes(context=middle * CELLS).fits else (low, middle - 1)
    return low * CELLS or None


def report(made: Plan) -> dict[str, Any]:
    """The plan as JSON: bytes of each item, what they add up to, what is free, and the advice."""
    return {
        "ok": made.fits,
        "checks": [{"name": "memory", "ok": made.fits, "detail": advice(made) or "fits"}],
        "settings": dataclasses.asdict(made.sizes),
        "items": [dataclasses.asdict(item) | {"counted": item in made.counted} for item in made.items],
        "needed_bytes": made.needed,
        "margin_bytes": made.margin,
        "pool": dataclasses.asdict(made.pool),
    }


def show(made: Plan) -> None:
    """Say the plan and, where it does not fit, the one warning."""
    for line in table(made).splitlines():
        core.say(line)
    if warning := advice(made):
        core.say(f"warning: {warning}")


def main(argv: Sequence[str] | None = None) -> int:
    """Command-line front."""
    kv_types: Mapping[str, Any] = schema()["$defs"]["kv_type"]
    arguments = core.parser(__doc__)
    arguments.add_argument("--target", required=True, help="GGUF of the target, or owner/name:QUANT on the Hub")
    arguments.add_argument("--draft", help="GGUF of the draft, or owner/name:QUANT; without it, the target alone")
    arguments.add_argument("--context", type=int, required=True, help="context in tokens, over all slots")
    arguments.add_argument("--kv-type", choices=kv_types["enum"], default="f16", help="of the target (%(default)s)")
    arguments.add_argument("--draft-kv-type", choices=kv_types["enum"], default="f16", help="(%(default)s)")
    arguments.add_argument("--n-max", type=int, help="drafted tokens a pass (the draft's block size - 1)")
    arguments.add_argument("--checkpoints", type=int, default=2, help="context checkpoints a slot (%(default)s)")
    arguments.add_argument("--parallel", type=int, help="slots (llama-server's choice)")
    arguments.add_argument("--ubatch", type=int, default=Sizes.ubatch, help="tokens of a pass, -ub (%(default)s)")
    arguments.add_argument("--margin", type=int, default=256, help="MiB to leave free (%(default)s)")
    arguments.add_argument("--server", type=Path, help="the llama-server that will run: its devices count")
    arguments.add_argument("--measured", type=Path, help="log of a llama-server -v that has ended, to put beside it")
    arguments.add_argument("--json", type=Path, help="also write the plan here")
    return core.run(arguments, _step, argv)


def _step(options: argparse.Namespace) -> None:
    for name, least in {"context": 1, "ubatch": 1, "parallel": 1, "n_max": 1, "checkpoints": 0, "margin": 0}.items():
        given = getattr(options, name)
        if given is not None and given < least:
            raise BuildError(f"{name} is {given}", f"--{name.replace('_', '-')}", f"give a number from {least} on")
    target = read(options.target)
    draft = read(options.draft) if options.draft else None
    n_max = 0
    if draft is not None:
        n_max = draft.number("block_size") - 1 if options.n_max is None else options.n_max
    sizes = Sizes(
        context=options.context,
        kv_type=options.kv_type,
        draft_kv_type=options.draft_kv_type,
        n_max=n_max,
        checkpoints=options.checkpoints,
        parallel=options.parallel,
        ubatch=options.ubatch,
    )
    made = plan(target, draft, sizes, memory_free.find(options.server), options.margin * MIB)
    print(table(made, measured(_text(options.measured)) if options.measured else None))
    if warning := advice(made):
        core.say(f"warning: {warning}")
    if options.json:
        core.write_json(options.json, report(made))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise BuildError(f"cannot read the log: {error.strerror}", path, "name the server's log") from error


if __name__ == "__main__":
    sys.exit(main())
