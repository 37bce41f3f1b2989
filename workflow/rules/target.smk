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
