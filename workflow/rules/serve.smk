# A server in the foreground: it ends when it is interrupted, and leaves nothing behind that a rule could read.
rule serve:
    input:
        serve_inputs,
        toolchain=f"{TOOLCHAIN}/llama-server.json",
    log:
        "logs/serve.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        pair=serve_pair,
        options=serve_options,
    message:
        "serve {params.pair}"
    shell:
        "python -m scripts.serve {params.pair:q} --options {params.options:q} --log {log:q}"
