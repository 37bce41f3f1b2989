# The build itself lies in a cache outside the clone; results/toolchain/<id>/ links to it.
rule toolchain_source:
    output:
        f"{TOOLCHAIN}/source.json",
    log:
        "logs/toolchain/source.log",
    retries: 1
    conda:
        "../../envs/pipeline.yaml"
    params:
        spec=json.dumps(CONFIG["llama_cpp"]),
        folder=subpath(output[0], parent=True),
    message:
        "get the sources of llama.cpp"
    shell:
        "python -m scripts.toolchain source --spec {params.spec:q} --out {params.folder:q} --log {log:q}"


rule toolchain_build:
    input:
        f"{TOOLCHAIN}/source.json",
    output:
        f"{TOOLCHAIN}/{{program}}.json",
    log:
        "logs/toolchain/{program}.log",
    benchmark:
        "benchmarks/toolchain/{program}.tsv"
    wildcard_constraints:
        program="llama-quantize|llama-server",
    conda:
        "../../envs/pipeline.yaml"
    threads: 64
    params:
        spec=json.dumps(CONFIG["llama_cpp"]),
        folder=subpath(output[0], parent=True),
    message:
        "compile {wildcards.program}"
    shell:
        "python -m scripts.toolchain build --spec {params.spec:q} --program {wildcards.program}"
        " --threads {threads} --out {params.folder:q} --log {log:q}"
