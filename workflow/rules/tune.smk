# The best settings are a matter of the machine: nothing that is built or published depends on them.
rule tune_pair:
    input:
        verified_released,
        drafts=every_gguf,
        server=f"{TOOLCHAIN}/llama-server.json",
        target=served_gguf,
    output:
        serve="results/{pair}/serve.yaml",
        report="results/{pair}/reports/tune.json",
        plot=report(
            "results/{pair}/tune/tune.png",
            caption="../report/tune.rst",
            category="Measured",
            labels={"pair": "{pair}", "file": "speed and acceptance over n-max"},
        ),
    log:
        "logs/{pair}/tune.log",
    benchmark:
        "benchmarks/{pair}/tune.tsv"
    conda:
        "../../envs/pipeline.yaml"
    # Nothing else may run meanwhile: it would be measured too.
    threads: whole_machine
    params:
        binary=f"{TOOLCHAIN}/bin/llama-server",
        drafts=measured_drafts,
        settings=untuned_settings,
        block_size=lookup(within=PAIRS, dpath="{pair}/expect/block_size"),
        bench=json.dumps(CONFIG["bench"]),
        tune=json.dumps(CONFIG["tune"]),
        folder=subpath(output.plot, parent=True),
    message:
        "find the best settings of {wildcards.pair} on this machine"
    shell:
        "python -m scripts.tune --server {params.binary:q} --target {input.target:q} --drafts {params.drafts:q}"
        " --settings {params.settings:q} --block-size {params.block_size} --bench {params.bench:q} --tune {params.tune:q}"
        " --out {params.folder:q} --serve-yaml {output.serve:q} --report {output.report:q} --log {log:q}"


rule tune:
    input:
        collect("results/{pair}/serve.yaml", pair=measurable(PAIRS)),
