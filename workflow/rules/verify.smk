rule verify:
    input:
        gguf=built,
        convert="results/{pair}/reports/convert.json",
        draft="results/{pair}/source/draft/config.json",
        target="results/{pair}/target/config.json",
    output:
        "results/{pair}/reports/gguf-{quant}.json",
    log:
        "logs/{pair}/verify-{quant}.log",
    benchmark:
        "benchmarks/{pair}/verify-{quant}.tsv"
    conda:
        "../../envs/pipeline.yaml"
    # Hashing runs beside the comparison; several files side by side use the cores better than one with more threads.
    threads: 1
    params:
        draft=subpath(input.draft, parent=True),
        target=subpath(input.target, parent=True),
        fallback="--allow-fallback" if CONFIG["allow_fallback"] else "",
    message:
        "verify the {wildcards.quant} file of {wildcards.pair} against its source"
    shell:
        "python -m scripts.verify --gguf {input.gguf:q} --quant {wildcards.quant} --convert {input.convert:q}"
        " --draft {params.draft:q} --target {params.target:q} {params.fallback} --threads {threads}"
        " --report {output:q} --log {log:q}"
