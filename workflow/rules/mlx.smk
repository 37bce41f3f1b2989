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
