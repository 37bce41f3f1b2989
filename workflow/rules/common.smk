# What the rules share: the checked configuration and the functions that turn it into paths and parameters.
import json
import re
import sys
import time
from pathlib import Path

sys.path.insert(0, str(workflow.current_basedir.join("../..")))

from scripts import preflight, runs, sign
from scripts.config import validated
from scripts.core import BuildError, errors_in, use_this_python
from scripts.lock import lock, wanted
from scripts.release import BILL, PROVENANCE
from scripts.resolve import sidecar_name
from scripts.toolchain import parse_spec, toolchain_id
from scripts.verify_types import check_quants

try:
    # Snakemake shows its own stack where it cannot write its folder.
    preflight.writable([Path.cwd()])
    CONFIG = validated(config, ", ".join(map(str, workflow.overwrite_configfiles or workflow.configfiles)) or "config")
    TOOLCHAIN = f"results/toolchain/{toolchain_id(parse_spec(CONFIG['llama_cpp']))}"
    PAIRS = CONFIG["pairs"]
    check_quants(quant for pair in PAIRS.values() for quant in pair["quants"])
    preflight.check_local(PAIRS)
    if CONFIG["frozen"]:
        # Checked here, not in a rule: whether a run is frozen must not be a reason to build again.
        for key, pair in PAIRS.items():
            lock(pair, Path(CONFIG["locks"]) / f"{key}.yaml", frozen=True)
except BuildError as error:
    # One line in place of the workflow engine's report on its own stack.
    sys.exit(f"error: {error}")

STARTED = time.time()
use_this_python()


def publishing(rule="publish_pair"):
    """The pairs that this run is going to publish; asked once the jobs are planned."""
    return sorted({job.wildcards.pair for job in workflow.dag.needrun_jobs() if job.rule.name == rule})


def check_before_start():
    """Take the folder for this run; stop with one line before the first job where it cannot be done."""
    try:
        preflight.writable([Path("results"), Path("logs"), Path("benchmarks"), Path(CONFIG["locks"])])
        runs.begin([Path(TOOLCHAIN), Path(CONFIG["locks"]), *(Path("results", pair) for pair in PAIRS)])
        preflight.check(PAIRS, Path(CONFIG["locks"]), publishing=publishing())
        for pair in publishing("publish_mlx_pair"):
            preflight.check_writable(PAIRS[pair]["publish_mlx"])
    except BuildError as error:
        sys.exit(f"error: {error}")


def errors_since(started):
    """The one-line errors of the steps that failed in this run, from their logs."""
    return errors_in("logs", started)


def gguf(pair, quant):
    """Path of a pair's GGUF of one quant."""
    return f"results/{pair}/gguf/{PAIRS[pair]['name']}-{quant}.gguf"


def finished(pairs):
    """Everything the default target builds: the closed release of every pair, and its MLX folder where asked for."""
    files = [f"results/{pair}/release/SHA256SUMS" for pair in pairs]
    files += [f"results/{pair}/reports/mlx.json" for pair in pairs if PAIRS[pair]["mlx"]]
    # Measured where the config asks for it; what is asked for is a key of the pair and the name of its report.
    files += [f"results/{pair}/reports/mlx-target.json" for pair in pairs if "mlx_target" in PAIRS[pair]]
    return files + [
        f"results/{pair}/reports/{step}.json" for step in ("bench", "gate") for pair in pairs if PAIRS[pair][step]
    ]


def roles(pair):
    """The inputs of a pair that files are fetched from."""
    return [role for role in ("draft", "target", "base") if role in PAIRS[pair]]


def one_pair(wildcards):
    """The repositories of one pair, as the lock step reads them."""
    inputs = wanted(PAIRS[wildcards.pair]).items()
    return json.dumps({wildcards.pair: {role: {"repo": repo, "revision": at} for role, (repo, at) in inputs}})


def convert_report(wildcards):
    """The report that the convert step left beside its GGUF."""
    return f"results/{wildcards.pair}/gguf/{PAIRS[wildcards.pair]['name']}-bf16.json"


def built(wildcards):
    """The GGUF of a pair and a quant."""
    return gguf(wildcards.pair, wildcards.quant)


def fetched(wildcards):
    """The fetch reports of a pair."""
    return [f"results/{wildcards.pair}/reports/fetch-{role}.json" for role in roles(wildcards.pair)]


def base_folder(wildcards):
    """The fetch report of the base, where the pair names one."""
    return [f"results/{wildcards.pair}/reports/fetch-base.json"] if "base" in PAIRS[wildcards.pair] else []


def base_option(wildcards):
    """The option that names the base's folder, where the pair names a base."""
    return ["--base", f"results/{wildcards.pair}/source/base"] if "base" in PAIRS[wildcards.pair] else []


def expected(wildcards):
    """What the config expects of a pair, as JSON."""
    return json.dumps(PAIRS[wildcards.pair]["expect"])


def served(wildcards):
    """The target as it is served, as JSON."""
    return json.dumps(PAIRS[wildcards.pair]["target_gguf"])


def served_file(wildcards):
    """The served target, where it is a file of this machine."""
    path = PAIRS[wildcards.pair]["target_gguf"].get("path")
    return [path] if path else []


def served_report(wildcards):
    """The report on the served target, where the pair names one."""
    return [f"results/{wildcards.pair}/reports/target.json"] if "target_gguf" in PAIRS[wildcards.pair] else []


def step_reports(wildcards):
    """The reports of the steps before quantization, fetching apart, whose checks the manifest counts."""
    steps = ["lock", "tokenizer", "vocab", "convert"]
    return [f"results/{wildcards.pair}/reports/{step}.json" for step in steps] + served_report(wildcards)


def convert_options(wildcards):
    """The config keys that get into the GGUF's metadata, as JSON."""
    chosen = {"license": PAIRS[wildcards.pair].get("license"), "quantized_by": CONFIG.get("quantized_by")}
    return json.dumps({key: value for key, value in chosen.items() if value})


def sidecars(pair):
    """The second names of a pair's files, where the config asks for them."""
    asked = pair.get("publish", {}).get("sidecar")
    return [sidecar_name(pair["target"]["repo"], quant) for quant in pair["quants"]] if asked else []


def sidecar_option(wildcards):
    """The option that gives the files second names, where the config asks for them."""
    return ["--sidecar"] if sidecars(PAIRS[wildcards.pair]) else []


def released(wildcards):
    """The GGUF files in a pair's release folder."""
    pair = PAIRS[wildcards.pair]
    names = [f"{pair['name']}-{quant}.gguf" for quant in pair["quants"]]
    return [f"results/{wildcards.pair}/release/{name}" for name in names + sidecars(pair)]


def first_name(wildcards):
    """The file of a release that a sidecar is a second name of."""
    return f"results/{wildcards.pair}/release/{PAIRS[wildcards.pair]['name']}-{wildcards.quant}.gguf"


def verified_released(wildcards):
    """The verify reports of the files that are released, in the order of the config."""
    return [f"results/{wildcards.pair}/reports/gguf-{quant}.json" for quant in PAIRS[wildcards.pair]["quants"]]


def card_options(wildcards):
    """The config keys that the card names, as JSON."""
    pair = PAIRS[wildcards.pair]
    # A file of this machine is no part of a command for others.
    target = pair.get("target_gguf") if "repo" in pair.get("target_gguf", {}) else None
    publish = {"repo": pair["publish"]["repo"]} if "publish" in pair else None
    return json.dumps(
        {
            "block_size": pair["expect"]["block_size"],
            "target_gguf": target,
            "publish": publish,
            "mlx": pair.get("publish_mlx", {}).get("repo"),
            "serve": published_settings(wildcards),
            "pictures": pictures(pair),
        }
    )


def release_names(wildcards):
    """The file names of a release, SHA256SUMS apart."""
    pair = PAIRS[wildcards.pair]
    names = [f"{pair['name']}-{quant}.gguf" for quant in pair["quants"]] + sidecars(pair) + pictures(pair)
    return names + ["README.md", "manifest.json", BILL, PROVENANCE]


def described(wildcards):
    """The files of a release that its provenance is about: all but itself."""
    names = [name for name in release_names(wildcards) if name != PROVENANCE]
    return [f"results/{wildcards.pair}/release/{name}" for name in names]


def described_names(wildcards):
    """The names of the files that the provenance is about."""
    return [Path(path).name for path in described(wildcards)]


def external_parameters(wildcards):
    """What the config asked of a release's build, as JSON; nothing of this machine, nothing of serving or publishing."""
    pair = PAIRS[wildcards.pair]
    keys = ("name", "draft", "target", "base", "expect", "quants", "license")
    asked = {key: pair[key] for key in keys if key in pair}
    if "repo" in pair.get("target_gguf", {}):
        asked["target_gguf"] = pair["target_gguf"]
    asked |= {key: CONFIG[key] for key in ("quantized_by", "allow_fallback") if key in CONFIG}
    return json.dumps(asked)


def publish_options(wildcards):
    """Where and how a pair is published, as JSON."""
    return json.dumps(PAIRS[wildcards.pair].get("publish", {}))


def published(wildcards):
    """The publish reports of every pair that has a place to be published."""
    return [f"results/{pair}/reports/publish.json" for pair in PAIRS if "publish" in PAIRS[pair]]
