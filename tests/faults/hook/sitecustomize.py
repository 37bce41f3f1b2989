"""Python imports this where the folder is on PYTHONPATH: it kills a step, or Snakemake, at a moment the test names.

In the folder $KILL_PLAN lies a file named as the step's log; each line is one kill, "<when> <whom>", and is used once.
When: "rename", just before the first file gets its name; "program", a second after a program was started.
Whom: "step", "snakemake" or "all" (Snakemake and all that it started).
"""

import os
import signal
import sys
import threading
from pathlib import Path


def _plan() -> Path | None:
    words = sys.orig_argv
    if "KILL_PLAN" not in os.environ or "--log" not in words[:-1]:
        return None
    plan = Path(os.environ["KILL_PLAN"]) / Path(words[words.index("--log") + 1]).stem
    return plan if plan.is_file() else None


def _kill(whom: str) -> None:
    import psutil

    pids = [os.getpid()]
    if whom != "step":
        snakemake = next(parent for parent in psutil.Process().parents() if "snakemake" in parent.cmdline())
        others = snakemake.children(recursive=True) if whom == "all" else []
        pids = [snakemake.pid, *(child.pid for child in others if child.pid != os.getpid())]
        pids += [os.getpid()] if whom == "all" else []
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def _arm(plan: Path) -> None:
    first, *rest = plan.read_text().splitlines() or [""]
    when, _, whom = first.partition(" ")

    def fire() -> None:
        plan.write_text("".join(f"{line}\n" for line in rest))
        _kill(whom)

    armed = True

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal armed
        if armed and when == "rename" and event == "os.rename" and str(arguments[0]).endswith(".part"):
            armed = False
            fire()
        elif armed and when == "program" and event == "subprocess.Popen":
            armed = False
            threading.Timer(1.0, fire).start()

    sys.addaudithook(hook)


if _found := _plan():
    _arm(_found)
