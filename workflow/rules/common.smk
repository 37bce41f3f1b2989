# What the rules share: the checked configuration and the functions that turn it into paths and parameters.
import json
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(workflow.current_basedir.join("../..")))

from scripts import preflight, runs
from scripts.config import validated
from scripts.core import BuildError, errors_in, use_this_python
from scripts.lock import lock, wanted
from scripts.serve_settings import chosen_pair, read_tuned, settings, tuned_file
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
    return files + [f"results/{pair}/reports/mlx-target.json" for pair in pairs if "mlx_target" in PAIRS[pair]]


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


def served_gguf(wildcards):
    """The served target, as a file of this machine or as the report on the files that were fetched."""
    return PAIRS[wildcards.pair]["target_gguf"].get("path", f"results/{wildcards.pair}/source/target_gguf/files.json")


def measured_drafts(wildcards):
    """Every GGUF of the draft, as `QUANT=FILE`."""
    return [f"{quant}={gguf(wildcards.pair, quant)}" for quant in PAIRS[wildcards.pair]["quants"]]


def every_gguf(wildcards):
    """Every GGUF of the draft."""
    return [gguf(wildcards.pair, quant) for quant in PAIRS[wildcards.pair]["quants"]]


def measured_pair(wildcards):
    """The keys of a pair that say how it is served, as JSON."""
    return json.dumps({key: PAIRS[wildcards.pair][key] for key in ("serve", "quants", "expect")})


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


def released(wildcards):
    """The GGUF files in a pair's release folder."""
    pair = PAIRS[wildcards.pair]
    return [f"results/{wildcards.pair}/release/{pair['name']}-{quant}.gguf" for quant in pair["quants"]]


def verified_released(wildcards):
    """The verify reports of the files that are released, in the order of the config."""
    return [f"results/{wildcards.pair}/reports/gguf-{quant}.json" for quant in PAIRS[wildcards.pair]["quants"]]


def card_options(wildcards):
    """The config keys that the card names, as JSON."""
    pair = PAIRS[wildcards.pair]
    # A file of this machine is no part of a command for others.
    target = pair.get("target_gguf") if "repo" in pair.get("target_gguf", {}) else None
    publish = {"repo": pair["publish"]["repo"]} if "publish" in pair else None
    return json.dumps({"block_size": pair["expect"]["block_size"], "target_gguf": target, "publish": publish})


def release_names(wildcards):
    """The file names of a release, SHA256SUMS apart."""
    pair = PAIRS[wildcards.pair]
    return [f"{pair['name']}-{quant}.gguf" for quant in pair["quants"]] + ["README.md", "manifest.json"]


def publish_options(wildcards):
    """Where and how a pair is published, as JSON."""
    return json.dumps(PAIRS[wildcards.pair].get("publish", {}))


def published(wildcards):
    """The publish reports of every pair that has a place to be published."""
    return [f"results/{pair}/reports/publish.json" for pair in PAIRS if "publish" in PAIRS[pair]]


def serving(pair):
    """How a pair is served on this machine: as its config says, then as tuned."""
    try:
        return settings(PAIRS[pair], read_tuned(tuned_file(Path("results", pair))), "the config")
    except BuildError as error:
        sys.exit(f"error: {error}")


def mlx_target_report(wildcards):
    """The report on the MLX target, where the pair names one."""
    return [f"results/{wildcards.pair}/reports/mlx-target.json"] if "mlx_target" in PAIRS[wildcards.pair] else []


def mlx_bench_report(wildcards):
    """The report of a measurement with dflash-mlx, where somebody made one: it needs a machine of its own."""
    path = f"results/{wildcards.pair}/reports/bench-mlx.json"
    return [path] if Path(path).exists() else []


def mlx_report_options(wildcards):
    """The options that name the reports that not every MLX card has."""
    given = {"--mlx-target": mlx_target_report(wildcards), "--bench": mlx_bench_report(wildcards)}
    return [part for option, paths in given.items() for path in paths for part in (option, path)]


def mlx_release_options(wildcards):
    """The config keys that the MLX card names, as JSON."""
    pair = PAIRS[wildcards.pair]
    if "publish_mlx" not in pair:
        sys.exit(f"error: no place to publish the MLX folder of {wildcards.pair} (config): set publish_mlx.repo")
    return json.dumps({"publish_mlx": {"repo": pair["publish_mlx"]["repo"]}, "serve_mlx": pair["serve_mlx"]})


def publish_mlx_options(wildcards):
    """Where and how a pair's MLX folder is published, as JSON."""
    return json.dumps(PAIRS[wildcards.pair].get("publish_mlx", {}))


def served_draft(wildcards):
    """The GGUF of the draft that is served."""
    return gguf(wildcards.pair, serving(wildcards.pair).draft_quant)


def measured_settings(wildcards):
    """How the servers of a measurement run, as JSON: as the pair is served, one request at a time."""
    return replace(serving(wildcards.pair), parallel=1).dump()


def video_prompt(wildcards):
    """The options that name the prompt of the demo video."""
    video = CONFIG["video"]
    named = ["--prompt", video["prompt"]] if "prompt" in video else []
    options = ["--workload", video["workload"], "--format", video["format"], "--predict", str(video["predict"])]
    return options + named


def serve_pair(wildcards):
    """The pair that is served: the config's only one, or the one that it names."""
    try:
        return chosen_pair(PAIRS, CONFIG.get("serve_pair"))
    except BuildError as error:
        sys.exit(f"error: {error}")


def fetched_target(pair):
    """The served target on this machine: a file of the config, or the report of its download."""
    given = PAIRS[pair].get("target_gguf", {})
    if "repo" in given:
        return [f"results/{pair}/source/target_gguf/files.json"]
    return [given["path"]] if "path" in given else []


def serve_inputs(wildcards):
    """What has to be there before a pair is served; nothing where llama-server downloads both models itself."""
    pair = serve_pair(wildcards)
    if PAIRS[pair]["serve"]["source"] == "hub":
        return []
    return [gguf(pair, serving(pair).draft_quant), *fetched_target(pair)]


def serve_options(wildcards):
    """The pair that is served and its toolchain, as JSON."""
    return json.dumps({"pair": PAIRS[serve_pair(wildcards)], "llama_cpp": CONFIG["llama_cpp"]})
