"""Take the embedded pair from a local Hub through the whole chain and publish the release back to it.

Everything happens on this machine: the Hub listens on a free loopback port and ends with the demo. What was published
stays in results/demo/hub and can be looked at with `python -m demo.hub --root results/demo/hub`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from demo import pair
from demo.hub import HubServer
from demo.pair.materialise import materialise
from scripts import config, core, process, toolchain
from scripts.core import BuildError
from scripts.release import BILL, PROVENANCE, SUMS

ROOT = config.ROOT
CONFIG = ROOT / "demo" / "config.yaml"
TARGETS = ("all", "publish", "publish_mlx", "demo_video")
WORK = Path("results") / "demo"
"""Hub, locks and download cache of the demo, below the working directory."""


def repositories(cache: Path, threads: int, out: Path) -> Path:
    """The embedded pair's repositories as folders, made once from the fixture and kept in the cache.

    ``out`` is the toolchain's folder: the finetune's own GGUF files are made with the pinned converter and quantizer.
    """
    spec = toolchain.parse_spec(config.load(CONFIG)["llama_cpp"])
    toolchain.fetch_source(spec, out)
    toolchain.build(spec, out, "llama-quantize", threads)
    return materialise(cache, out)


def seed(hub: HubServer, folder: Path) -> None:
    """Put the repositories on the Hub; what is there already is left alone."""
    for repo, name in pair.REPO_FOLDERS.items():
        commit = hub.commit_folder(repo, folder / name, "Add the embedded pair")
        core.say(f"{hub.endpoint}/{repo} is at {commit.id[:12]}")


def environment(hub: HubServer, work: Path) -> dict[str, str]:
    """The environment of a build against the local Hub: nobody's login, a cache of its own, the Hub's write token."""
    home = {"HF_HOME": str((work / "hf-home").resolve()), "HF_HUB_CACHE": str((work / "hf-cache").resolve())}
    return process.environment(home) | hub.environment("write")


def snakemake(
    arguments: Sequence[str | Path], env: dict[str, str], folder: Path = ROOT, configfile: Path = CONFIG
) -> int:
    """Run Snakemake in ``folder`` with the demo's config, or another, and return its exit code."""
    command = [sys.executable, "-m", "snakemake", *arguments, "--configfile", configfile]
    return subprocess.run([str(part) for part in command], env=env, cwd=folder, check=False).returncode


def check(pair_config: Mapping[str, Any], env: dict[str, str]) -> None:
    """Check the published release, and whether its draft works with the target that is served.

    Raises:
        BuildError: one of the two says no.
    """
    repo, served = pair_config["publish"]["repo"], pair_config["target_gguf"]
    for arguments in (
        ["scripts.check_release", repo, "--full"],
        ["scripts.doctor", "--draft", f"{repo}:Q4_K_M", "--target", f"{served['repo']}:{served['quant']}"],
    ):
        code = subprocess.run([sys.executable, "-m", *arguments], env=env, cwd=ROOT, check=False).returncode
        if code:
            raise BuildError(f"{arguments[0]} ended with exit code {code}", repo, "do what it says above")


def table(results: Path, key: str) -> pd.DataFrame:
    """What was built and published, a row a file, from the reports."""
    return pd.DataFrame(_rows(results / key))


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    published = core.read_json(folder / "reports" / "publish.json")
    where = f"{published['repo']} at {published['commit'][:12]}"
    manifest = core.read_json(folder / "release" / "manifest.json")
    for output in manifest["outputs"]:
        report = core.read_json(folder / "reports" / f"gguf-{output['quant']}.json")
        yield _row(output["file"], output["bytes"], f"{output['bpw']:.2f}", output["sha256"], report, where)
    for name in ("README.md", "manifest.json", BILL, PROVENANCE, SUMS):
        path = folder / "release" / name
        yield _row(name, path.stat().st_size, "", core.sha256_file(path), published, where)
    published = core.read_json(folder / "reports" / "publish-mlx.json")
    where = f"{published['repo']} at {published['commit'][:12]}"
    mlx, path = core.read_json(folder / "reports" / "mlx.json"), folder / "mlx" / "config.json"
    yield _row("mlx/config.json", path.stat().st_size, "", core.sha256_file(path), mlx, where)


def _row(file: str, size: int, bpw: str, sha256: str, report: dict[str, Any], where: str) -> dict[str, Any]:
    passed = f"{sum(check['ok'] for check in report['checks'])} of {len(report['checks'])}"
    return {"file": file, "bytes": size, "BPW": bpw, "sha256": sha256[:16], "checks passed": passed, "published": where}


def main() -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--cores", type=int, default=1)
    return core.run(arguments, _step)


def _step(options: argparse.Namespace) -> None:
    settings = config.load(CONFIG)
    key = next(iter(settings["pairs"]))
    work = ROOT / WORK
    out = ROOT / "results" / "toolchain" / toolchain.toolchain_id(toolchain.parse_spec(settings["llama_cpp"]))
    core.say("1/5 toolchain and embedded pair")
    folder = repositories(toolchain.cache_root() / "pair", options.cores, out)
    with HubServer(work / "hub") as hub:
        core.say(f"2/5 local Hub at {hub.endpoint}")
        seed(hub, folder)
        core.say("3/5 snakemake all publish publish_mlx demo_video")
        again = (
            ["--forcerun", "publish_pair", "publish_mlx_pair"]
            if (ROOT / "results" / key / "reports" / "publish.json").exists()
            else []
        )
        code = snakemake(["--cores", str(options.cores), *TARGETS, *again], environment(hub, work))
        if code:
            raise BuildError(f"snakemake ended with exit code {code}", "the messages above", "do what they say")
        core.say("4/5 what the Hub was asked for\n" + hub.log.summary())
        weights = hub.log.bytes_for(pair.FINETUNE_REPO, (".safetensors", ".gguf"))
        core.say(f"bytes asked for of the weights of {pair.FINETUNE_REPO}: {weights}")
        core.say("5/5 what was published, as anybody can check it")
        check(settings["pairs"][key], environment(hub, work))
    results = ROOT / "results" / key
    print(table(ROOT / "results", key).to_markdown(index=False))
    print()
    print((results / "bench" / "table.md").read_text(encoding="utf-8"))
    for name in (Path("bench") / "bench.png", Path("video") / "demo.gif"):
        print(f"Look at {(results / name).relative_to(ROOT)}")
    print(f"Look at what was published: {sys.executable} -m demo.hub --root {WORK / 'hub'}")


if __name__ == "__main__":
    sys.exit(main())
