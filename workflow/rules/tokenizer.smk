rule prepare_tokenizer:
    input:
        "results/{pair}/reports/fetch-target.json",
        config="results/{pair}/source/target/config.json",
    output:
        report="results/{pair}/reports/tokenizer.json",
        config="results/{pair}/target/config.json",
        tokenizer="results/{pair}/target/tokenizer.json",
    log:
        "logs/{pair}/tokenizer.log",
    benchmark:
        "benchmarks/{pair}/tokenizer.tsv"
    conda:
        "../../envs/pipeline.yaml"
    params:
        source=subpath(input.config, parent=True),
        folder=subpath(output.config, parent=True),
    message:
        "prepare the tokenizer of {wildcards.pair}"
    shell:
        "python -m scripts.tokenizer --source {params.source:q} --out {params.folder:q}"
        " --report {output.report:q} --log {log:q}"


rule check_vocabulary:
    input:
        base_folder,
        "results/{pair}/reports/fetch-draft.json",
        "results/{pair}/reports/tokenizer.json",
        draft="results/{pair}/source/draft/config.json",
        target="results/{pair}/target/config.json",
    output:
        "results/{pair}/reports/vocab.json",
    log:
        "logs/{pair}/vocab.log",
    benchmark:
        "benchmarks/{pair}/vocab.tsv"
    conda:
        "../../envs/pipeline.yaml"
    params:
        draft=subpath(input.draft, parent=True),
        target=subpath(input.target, parent=True),
        base=base_option,
        expect=expected,
    message:
        "check the vocabulary of {wildcards.pair}"
    shell:
        "python -m scripts.vocab --draft {params.draft:q} --target {params.target:q} {params.base:q}"
        " --expect {params.expect:q} --report {output:q} --log {log:q}"
