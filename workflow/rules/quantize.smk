# The bf16 file is verified beside this, not before: no release is made without its report.
rule quantize:
    input:
        bf16="results/{pair}/gguf/{name}-bf16.gguf",
        toolchain=f"{TOOLCHAIN}/llama-quantize.json",
    output:
        "results/{pair}/gguf/{name}-{quant}.gguf",
    log:
        "logs/{pair}/quantize-{name}-{quant}.log",
    benchmark:
        "benchmarks/{pair}/quantize-{name}-{quant}.tsv"
    wildcard_constraints:
        quant="(?!bf16$)[A-Za-z0-9_]+",
    conda:
        "../../envs/pipeline.yaml"
    threads: 8
    params:
        toolchain=subpath(input.toolchain, parent=True),
    message:
        "quantize {wildcards.name} to {wildcards.quant}"
    shell:
        "python -m scripts.quantize --bf16 {input.bf16:q} --quant {wildcards.quant} --threads {threads}"
        " --toolchain {params.toolchain:q} --out {output:q} --log {log:q}"
