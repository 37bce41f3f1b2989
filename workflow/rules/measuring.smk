# How the served pair is measured, tuned and shown: paths and parameters for these rules.
from dataclasses import asdict

from scripts import workloads
from scripts.serve_settings import chosen_pair, for_measuring, read_tuned, settings, tuned_file


def served_gguf(wildcards):
    """The served target, as a file of this machine or as the report on the files that were fetched."""
    return PAIRS[wildcards.pair]["target_gguf"].get("path", f"results/{wildcards.pair}/source/target_gguf/files.json")


def quant_to_serve(wildcards):
    """The quant of the served target, or of one of the pair's modes (after `target_gguf-`)."""
    mode = wildcards.served.removeprefix("target_gguf").removeprefix("-")
    chosen = PAIRS[wildcards.pair]["serve"]["modes"].get(mode, {}) if mode else PAIRS[wildcards.pair]["target_gguf"]
    if "repo" in chosen and mode or "quant" not in chosen:
        sys.exit(f"error: {wildcards.served} is not fetched: only a quant of the repository of target_gguf is")
    return chosen["quant"]


def benched(wildcards):
    """The reports that `bench` makes, of the pairs that the chosen engine has a target of."""
    if CONFIG["bench"]["engine"] == "mlx":
        return [f"results/{pair}/reports/bench-mlx.json" for pair in PAIRS if "mlx_target" in PAIRS[pair]]
    return [f"results/{pair}/reports/bench.json" for pair in measurable(PAIRS)]


def measurable(pairs):
    """The pairs that can be measured: those with a target to serve."""
    return [pair for pair in pairs if "target_gguf" in PAIRS[pair]]


def every_gguf(wildcards):
    """Every GGUF of the draft."""
    return [gguf(wildcards.pair, quant) for quant in PAIRS[wildcards.pair]["quants"]]


def serving(pair):
    """How a pair is served on this machine: as its config says, then as tuned."""
    try:
        return settings(PAIRS[pair], read_tuned(tuned_file(Path("results", pair))), "the config")
    except BuildError as error:
        sys.exit(f"error: {error}")


def served_draft(wildcards):
    """The GGUF of the draft that is served."""
    return gguf(wildcards.pair, serving(wildcards.pair).draft_quant)


def measured_settings(wildcards):
    """How the servers of a measurement run, as JSON: as the pair is served."""
    return for_measuring(serving(wildcards.pair)).dump()


def untuned_settings(wildcards):
    """The same without what tuning found, as JSON: tuning again is no reason to compare quants again."""
    try:
        return for_measuring(settings(PAIRS[wildcards.pair], {}, "the config")).dump()
    except BuildError as error:
        sys.exit(f"error: {error}")


def published_settings(wildcards):
    """What the card's commands give llama-server: the config's values, for every machine and so not as tuned."""
    chosen = asdict(settings(PAIRS[wildcards.pair], {}, "the config"))
    return {key: chosen[key] for key in ("n_max", "context", "kv_type", "checkpoints", "fit_target")}


PICTURES = {"bench.png": "bench", "demo.gif": "video"}


def pictures(pair):
    """The pictures of a release, where its pair is measured; they lie in these folders of the results."""
    return list(PICTURES) if pair["bench"] else []


def picture(wildcards):
    """A picture where it was made."""
    return f"results/{wildcards.pair}/{PICTURES[wildcards.picture]}/{wildcards.picture}"


def card_reports(wildcards):
    """The reports of measurements that the card shows."""
    pair = PAIRS[wildcards.pair]
    made = [f"results/{wildcards.pair}/reports/{step}.json" for step in ("bench", "gate") if pair[step]]
    return made + pair.get("measurements", [])


def card_report_options(wildcards):
    """The options that name these reports."""
    pair, options = PAIRS[wildcards.pair], []
    for step in ("bench", "gate"):
        options += [f"--{step}", f"results/{wildcards.pair}/reports/{step}.json"] if pair[step] else []
    others = pair.get("measurements", [])
    return options + (["--measured", *others] if others else [])


def whole_machine(wildcards):
    """Every core that Snakemake may use: what is measured must not share the machine with another job."""
    return workflow.cores or 1


def workload_files(wildcards):
    """The files of the workloads; one that is not here is looked for in the project."""
    return [str(workloads.find(name)) for name in CONFIG["bench"]["workloads"]]


def acceptance_settings(wildcards):
    """The config keys that acceptance depends on, as JSON."""
    return json.dumps({key: CONFIG["bench"][key] for key in ("workloads", "formats", "predict")})


def acceptance_reports(wildcards):
    """The acceptance reports of a pair's quants, bf16 apart."""
    quants = [quant for quant in PAIRS[wildcards.pair]["quants"] if quant != "bf16"]
    return [f"results/{wildcards.pair}/reports/acceptance-{quant}.json" for quant in quants]


def gate_report(wildcards):
    """The gate's report, where the pair has a gate: without it nothing is published."""
    return [f"results/{wildcards.pair}/reports/gate.json"] if PAIRS[wildcards.pair]["gate"] else []


def bench_settings(wildcards):
    """The config keys that a measurement depends on, as JSON."""
    return json.dumps({key: value for key, value in CONFIG["bench"].items() if key not in ("engine", "margin")})


def bench_models(wildcards):
    """What has to be there to start the servers of a measurement; nothing where they run already."""
    if "urls" in CONFIG["bench"]:
        return []
    verified = f"results/{wildcards.pair}/reports/gguf-{serving(wildcards.pair).draft_quant}.json"
    return [f"{TOOLCHAIN}/llama-server.json", served_gguf(wildcards), served_draft(wildcards), verified]


def bench_options(wildcards):
    """The options that name these files."""
    if "urls" in CONFIG["bench"]:
        return []
    server = f"{TOOLCHAIN}/bin/llama-server"
    return ["--server", server, "--target", served_gguf(wildcards), "--draft", served_draft(wildcards)]


def measured_drafts(wildcards):
    """Every GGUF of the draft, as `QUANT=FILE`."""
    return [f"{quant}={gguf(wildcards.pair, quant)}" for quant in PAIRS[wildcards.pair]["quants"]]


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
