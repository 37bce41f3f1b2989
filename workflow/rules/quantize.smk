# The bf16 file is compared with its report before it is quantized: a coarse type would hide what happened to it since.
rule quantize:
    input:
        verified="results/{pair}/reports/gguf-bf16.json",
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
        "python -m scripts.quantize --bf16 {input.bf16:q} --verified {input.verified:q} --quant {wildcards.quant}"
        " --threads {threads} --toolchain {params.toolchain:q} --out {output:q} --log {log:q}"
