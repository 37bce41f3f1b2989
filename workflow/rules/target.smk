# The served target is never downloaded: its header is read from the Hub, or from a file of this machine.
rule check_target:
    input:
        served_file,
        "results/{pair}/reports/fetch-draft.json",
        "results/{pair}/reports/tokenizer.json",
        lock="results/{pair}/reports/lock.json",
        draft="results/{pair}/source/draft/config.json",
        target="results/{pair}/target/config.json",
    output:
        "results/{pair}/reports/target.json",
    log:
        "logs/{pair}/target.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        draft=subpath(input.draft, parent=True),
        target=subpath(input.target, parent=True),
        options=served,
    message:
        "compare {wildcards.pair} with the target as it is served"
    shell:
        "python -m scripts.target --lock {input.lock:q} --draft {params.draft:q} --target {params.target:q}"
        " --options {params.options:q} --report {output:q} --log {log:q}"


# For measuring and serving only: the pair's own target, or that of a mode. The report is the output: Snakemake empties declared folders before a rerun.
rule fetch_served:
    input:
        "results/{pair}/reports/target.json",
        lock="results/{pair}/reports/lock.json",
    output:
        "results/{pair}/source/{served}/files.json",
    log:
        "logs/{pair}/fetch-{served}.log",
    benchmark:
        "benchmarks/{pair}/fetch-{served}.tsv"
    wildcard_constraints:
        served="target_gguf(-.+)?",
    retries: 1
    conda:
        "../../envs/pipeline.yaml"
    params:
        folder=subpath(output[0], parent=True),
        quant=quant_to_serve,
    message:
        "fetch the target of {wildcards.pair} as it is served"
    shell:
        "python -m scripts.served --lock {input.lock:q} --quant {params.quant:q} --out {params.folder:q} --log {log:q}"
