# The report is the output, not the folder: Snakemake empties declared folders before a rerun, and the files come from the
# Hub's cache, where partial downloads resume.
rule fetch:
    input:
        "results/{pair}/reports/lock.json",
    output:
        report="results/{pair}/reports/fetch-{role}.json",
        config="results/{pair}/source/{role}/config.json",
    log:
        "logs/{pair}/fetch-{role}.log",
    benchmark:
        "benchmarks/{pair}/fetch-{role}.tsv"
    retries: 1
    conda:
        "../../envs/pipeline.yaml"
    params:
        folder=subpath(output.config, parent=True),
    message:
        "fetch and check the {wildcards.role} of {wildcards.pair}"
    shell:
        "python -m scripts.fetch --lock {input:q} --role {wildcards.role} --out {params.folder:q}"
        " --report {output.report:q} --log {log:q}"
