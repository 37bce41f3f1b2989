# What is measured, it is measured alone: each of these jobs takes every core of the machine, so that no other runs beside.
rule acceptance:
    input:
        workload_files,
        served_gguf,
        report="results/{pair}/reports/gguf-{quant}.json",
        draft=built,
        server=f"{TOOLCHAIN}/llama-server.json",
    output:
        "results/{pair}/reports/acceptance-{quant}.json",
    log:
        "logs/{pair}/acceptance-{quant}.log",
    benchmark:
        "benchmarks/{pair}/acceptance-{quant}.tsv"
    conda:
        "../../envs/pipeline.yaml"
    threads: whole_machine
    params:
        server=subpath(input.server, parent=True),
        target=served_gguf,
        settings=untuned_settings,
        bench=acceptance_settings,
    message:
        "measure how much of the {wildcards.quant} file the target of {wildcards.pair} accepts"
    shell:
        "python -m scripts.acceptance --server {params.server:q}/bin/llama-server --target {params.target:q}"
        " --draft {input.draft:q} --quant {wildcards.quant} --settings {params.settings:q} --bench {params.bench:q}"
        " --report {output:q} --log {log:q}"


rule gate:
    input:
        reference="results/{pair}/reports/acceptance-bf16.json",
        quants=acceptance_reports,
    output:
        "results/{pair}/reports/gate.json",
    log:
        "logs/{pair}/gate.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        margin=CONFIG["bench"]["margin"],
    message:
        "compare the acceptance of the quants of {wildcards.pair} with bf16's"
    shell:
        "python -m scripts.gate --reference {input.reference:q} --quants {input.quants:q} --margin {params.margin}"
        " --report {output:q} --log {log:q}"


# With bench.urls nothing is started and no file is needed: the two servers are somebody's own.
rule bench_pair:
    input:
        workload_files,
        bench_models,
        report=served_report,
    output:
        report="results/{pair}/reports/bench.json",
        raw="results/{pair}/bench/raw.jsonl",
        table="results/{pair}/bench/table.md",
        svg="results/{pair}/bench/bench.svg",
        png=report(
            "results/{pair}/bench/bench.png",
            caption="../report/bench.rst",
            category="Measured",
            labels={"pair": "{pair}", "file": "speed and acceptance"},
        ),
    log:
        "logs/{pair}/bench.log",
    benchmark:
        "benchmarks/{pair}/bench.tsv"
    conda:
        "../../envs/pipeline.yaml"
    threads: whole_machine
    params:
        models=bench_options,
        settings=measured_settings,
        bench=bench_settings,
        title=lookup(within=PAIRS, dpath="{pair}/name"),
        folder=subpath(output.raw, parent=True),
    message:
        "measure {wildcards.pair}: baseline against DFlash"
    shell:
        "python -m scripts.bench {params.models:q} --target-report {input.report:q} --settings {params.settings:q}"
        " --bench {params.bench:q} --title {params.title:q} --out {params.folder:q} --report {output.report:q}"
        " --log {log:q}"


rule bench:
    input:
        benched,
