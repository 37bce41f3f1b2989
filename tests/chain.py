"""A copy of the project in which the whole chain runs, against a local Hub with the embedded pair."""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from demo import run as demo_run
from demo.hub import HubServer
from scripts import config

PARTS = ("Snakefile", "config.yaml", "workflow", "profiles", "scripts", "demo", "envs")
KEY = "tinyqwen3.5-coder"
OPTIONS = ("--workflow-profile", "profiles/default")
"""Also ends the list of config files, so that targets can follow."""


@dataclass
class Chain:
    """A copy of the project in which the chain ran, and the Hub it ran against."""

    folder: Path
    hub: HubServer
    work: Path

    @property
    def results(self) -> Path:
        return self.folder / "results" / KEY

    @property
    def environment(self) -> dict[str, str]:
        return demo_run.environment(self.hub, self.work)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "snakemake", "--configfile", "demo/config.yaml", *OPTIONS, *arguments]

    def snakemake(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = self.command(*arguments)
        return subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Snakemake in the background; what it says is added to ``said.log`` in its folder."""
        with (self.folder / "said.log").open("a") as said:
            command = self.command(*arguments)
            return subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=said, stderr=subprocess.STDOUT, text=True
            )


MEASURED = ("bench: true", "gate: true")
"""Lines of the embedded pair's config that have it measured."""


def copy(folder: Path, *, measured: bool = False) -> Path:
    """A copy of the project's code, as a clone would have it; unless ``measured``, nothing is measured in it."""
    for part in PARTS:
        source = config.ROOT / part
        if source.is_dir() and not source.is_symlink():
            ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
            shutil.copytree(source, folder / part, symlinks=True, ignore=ignored)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder / part, follow_symlinks=False)
    settings = folder / "demo" / "config.yaml"
    text = settings.read_text(encoding="utf-8")
    for line in () if measured else MEASURED:
        assert line in text
        text = text.replace(line, line.replace("true", "false"))
    settings.write_text(text, encoding="utf-8")
    return folder
