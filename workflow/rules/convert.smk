rule convert:
    input:
        "results/{pair}/reports/vocab.json",
        # Before the work, but another target to serve changes no byte of the draft.
        ancient(served_report),
        lock="results/{pair}/reports/lock.json",
        draft="results/{pair}/source/draft/config.json",
        target="results/{pair}/target/config.json",
        toolchain=f"{TOOLCHAIN}/source.json",
    output:
        gguf="results/{pair}/gguf/{name}-bf16.gguf",
        report="results/{pair}/gguf/{name}-bf16.json",
    log:
        "logs/{pair}/convert-{name}.log",
    benchmark:
        "benchmarks/{pair}/convert-{name}.tsv"
    conda:
        "../../envs/pipeline.yaml"
    params:
        draft=subpath(input.draft, parent=True),
        target=subpath(input.target, parent=True),
        toolchain=subpath(input.toolchain, parent=True),
        options=convert_options,
    message:
        "convert {wildcards.name} to bf16"
    shell:
        "python -m scripts.convert --draft {params.draft:q} --target {params.target:q} --lock {input.lock:q}"
        " --toolchain {params.toolchain:q} --name {wildcards.name:q} --options {params.options:q}"
        " --out {output.gguf:q} --report {output.report:q} --log {log:q}"


# A report's path has no file stem in it, a GGUF's has: the two cannot be outputs of one rule.
rule convert_report:
    input:
        convert_report,
    output:
        "results/{pair}/reports/convert.json",
    log:
        "logs/{pair}/convert-report.log",
    conda:
        "../../envs/pipeline.yaml"
    message:
        "file the convert report of {wildcards.pair}"
    shell:
        "python -m scripts.link {input:q} {output:q} --log {log:q}"
