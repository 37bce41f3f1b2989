rule mlx:
    input:
        "results/{pair}/reports/fetch-draft.json",
        draft="results/{pair}/source/draft/config.json",
    output:
        report="results/{pair}/reports/mlx.json",
        config="results/{pair}/mlx/config.json",
    log:
        "logs/{pair}/mlx.log",
    benchmark:
        "benchmarks/{pair}/mlx.tsv"
    conda:
        "../../envs/pipeline.yaml"
    params:
        draft=subpath(input.draft, parent=True),
        folder=subpath(output.config, parent=True),
    message:
        "make the MLX folder of {wildcards.pair}"
    shell:
        "python -m scripts.mlx --draft {params.draft:q} --out {params.folder:q} --report {output.report:q} --log {log:q}"


# Before anything is served: config and tokenizer of the target in MLX form, never its weights.
rule mlx_target:
    input:
        fetched="results/{pair}/reports/fetch-mlx_target.json",
        config="results/{pair}/source/mlx_target/config.json",
        draft="results/{pair}/source/draft/config.json",
        target="results/{pair}/target/config.json",
    output:
        "results/{pair}/reports/mlx-target.json",
    log:
        "logs/{pair}/mlx-target.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        draft=subpath(input.draft, parent=True),
        target=subpath(input.target, parent=True),
        folder=subpath(input.config, parent=True),
    message:
        "compare the MLX target of {wildcards.pair} with the draft"
    shell:
        "python -m scripts.mlx_target --draft {params.draft:q} --target {params.target:q} --mlx-target {params.folder:q}"
        " --fetched {input.fetched:q} --report {output:q} --log {log:q}"


# A repository of its own: dflash-mlx takes the draft from the root of one, where the GGUF release has other files.
rule mlx_release:
    input:
        mlx_target_report,
        mlx_bench_report,
        mlx="results/{pair}/reports/mlx.json",
        config="results/{pair}/mlx/config.json",
        manifest="results/{pair}/release/manifest.json",
    output:
        "results/{pair}/release-mlx/SHA256SUMS",
    log:
        "logs/{pair}/mlx-release.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        mlx=subpath(input.config, parent=True),
        folder=subpath(output[0], parent=True),
        reports=mlx_report_options,
        options=mlx_release_options,
    message:
        "close the MLX release of {wildcards.pair}"
    shell:
        "python -m scripts.mlx_release --mlx {params.mlx:q} --mlx-report {input.mlx:q} --manifest {input.manifest:q}"
        " {params.reports:q} --options {params.options:q} --out {params.folder:q} --log {log:q}"


rule publish_mlx_pair:
    input:
        "results/{pair}/release-mlx/SHA256SUMS",
    output:
        "results/{pair}/reports/publish-mlx.json",
    log:
        "logs/{pair}/publish-mlx.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        folder=subpath(input[0], parent=True),
        name=lookup(within=PAIRS, dpath="{pair}/name"),
        options=publish_mlx_options,
    message:
        "publish the MLX folder of {wildcards.pair}"
    shell:
        "python -m scripts.publish --folder {params.folder:q} --name {params.name:q} --options {params.options:q}"
        " --report {output:q} --log {log:q}"


rule publish_mlx:
    input:
        collect("results/{pair}/reports/publish-mlx.json", pair=[key for key in PAIRS if "publish_mlx" in PAIRS[key]]),


# For measuring only. The report is the output: Snakemake empties declared folders before a rerun.
rule fetch_mlx_model:
    input:
        "results/{pair}/reports/mlx-target.json",
        lock="results/{pair}/reports/lock.json",
    output:
        "results/{pair}/source/mlx_model/files.json",
    log:
        "logs/{pair}/fetch-mlx_model.log",
    retries: 1
    conda:
        "../../envs/pipeline.yaml"
    params:
        folder=subpath(output[0], parent=True),
    message:
        "fetch the MLX target of {wildcards.pair}"
    shell:
        "python -m scripts.mlx_model --lock {input.lock:q} --out {params.folder:q} --log {log:q}"


rule bench_mlx_pair:
    input:
        workload_files,
        "results/{pair}/reports/mlx.json",
        target="results/{pair}/source/mlx_model/files.json",
        draft="results/{pair}/mlx/config.json",
    output:
        report="results/{pair}/reports/bench-mlx.json",
        raw="results/{pair}/bench-mlx/raw.jsonl",
        table="results/{pair}/bench-mlx/table.md",
    log:
        "logs/{pair}/bench-mlx.log",
    benchmark:
        "benchmarks/{pair}/bench-mlx.tsv"
    conda:
        "../../envs/pipeline.yaml"
    threads: whole_machine
    params:
        target=subpath(input.target, parent=True),
        draft=subpath(input.draft, parent=True),
        serve=mlx_serving,
        bench=bench_settings,
        folder=subpath(output.raw, parent=True),
    message:
        "measure {wildcards.pair} in dflash-mlx: baseline against DFlash"
    shell:
        "python -m scripts.bench_mlx --target {params.target:q} --draft {params.draft:q} --serve-mlx {params.serve:q}"
        " --bench {params.bench:q} --out {params.folder:q} --report {output.report:q} --log {log:q}"
