# Publishing is never part of the default target.
rule publish_pair:
    input:
        "results/{pair}/release/SHA256SUMS",
        gate_report,
        "results/{pair}/reports/sign.json",
    output:
        "results/{pair}/reports/publish.json",
    log:
        "logs/{pair}/publish.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        folder=subpath(input[0], parent=True),
        name=lookup(within=PAIRS, dpath="{pair}/name"),
        options=publish_options,
    message:
        "publish the release of {wildcards.pair}"
    shell:
        "python -m scripts.publish --folder {params.folder:q} --name {params.name:q} --options {params.options:q}"
        " --report {output:q} --log {log:q}"


rule dry_run_pair:
    input:
        "results/{pair}/release/SHA256SUMS",
    output:
        temp("results/{pair}/reports/publish-dry-run.json"),
    log:
        "logs/{pair}/publish-dry-run.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        folder=subpath(input[0], parent=True),
        name=lookup(within=PAIRS, dpath="{pair}/name"),
        options=publish_options,
    message:
        "say what publishing {wildcards.pair} would send"
    shell:
        "python -m scripts.publish --dry-run --folder {params.folder:q} --name {params.name:q}"
        " --options {params.options:q} --report {output:q} --log {log:q}"


rule publish:
    input:
        published,


rule publish_dry_run:
    input:
        collect("results/{pair}/reports/publish-dry-run.json", pair=[key for key in PAIRS if "publish" in PAIRS[key]]),
