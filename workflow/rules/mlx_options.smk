# The MLX folder and its publishing: parameters for these rules.
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


def mlx_serving(wildcards):
    """How dflash-mlx serves a pair, as JSON."""
    return json.dumps(PAIRS[wildcards.pair]["serve_mlx"])
