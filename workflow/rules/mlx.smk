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
