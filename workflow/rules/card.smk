# The release folder: links to the verified files, the manifest, the card, and SHA256SUMS last, which closes it.
rule manifest:
    input:
        fetched=fetched,
        toolchain=f"{TOOLCHAIN}/llama-quantize.json",
        steps=step_reports,
        bf16="results/{pair}/reports/gguf-bf16.json",
        verified=verified_released,
    output:
        "results/{pair}/release/manifest.json",
    log:
        "logs/{pair}/manifest.log",
    benchmark:
        "benchmarks/{pair}/manifest.tsv"
    conda:
        "../../envs/pipeline.yaml"
    params:
        name=lookup(within=PAIRS, dpath="{pair}/name"),
        sidecar=sidecar_option,
    message:
        "write the manifest of {wildcards.pair}"
    shell:
        "python -m scripts.manifest --pair {wildcards.pair:q} --name {params.name:q} --fetched {input.fetched:q}"
        " --toolchain {input.toolchain:q} --steps {input.steps:q} --verified {input.verified:q}"
        " {params.sidecar:q} --out {output:q} --log {log:q}"


rule card:
    input:
        card_reports,
        manifest="results/{pair}/release/manifest.json",
        template=f"{workflow.basedir}/workflow/templates/card.md.j2",
    output:
        report(
            "results/{pair}/release/README.md",
            caption="../report/card.rst",
            category="Release",
            labels={"pair": "{pair}", "file": "model card"},
        ),
    log:
        "logs/{pair}/card.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        options=card_options,
        reports=card_report_options,
    message:
        "render the card of {wildcards.pair}"
    shell:
        "python -m scripts.card --manifest {input.manifest:q} --template {input.template:q}"
        " --options {params.options:q} {params.reports:q} --out {output:q} --log {log:q}"


rule release_picture:
    input:
        picture,
    output:
        "results/{pair}/release/{picture}",
    log:
        "logs/{pair}/release-{picture}.log",
    wildcard_constraints:
        picture="|".join(map(re.escape, PICTURES)),
    conda:
        "../../envs/pipeline.yaml"
    message:
        "put {wildcards.picture} into the release"
    shell:
        "python -m scripts.link {input:q} {output:q} --log {log:q}"


rule release_file:
    input:
        "results/{pair}/reports/gguf-{quant}.json",
        gguf="results/{pair}/gguf/{name}-{quant}.gguf",
    output:
        "results/{pair}/release/{name}-{quant}.gguf",
    log:
        "logs/{pair}/release-{name}-{quant}.log",
    conda:
        "../../envs/pipeline.yaml"
    message:
        "put {wildcards.name}-{wildcards.quant}.gguf into the release"
    shell:
        "python -m scripts.link {input.gguf:q} {output:q} --log {log:q}"


# The same content under the name that newer llama.cpp looks for beside a model.
rule release_sidecar:
    input:
        first_name,
    output:
        "results/{pair}/release/dflash-{target}-{quant}.gguf",
    log:
        "logs/{pair}/release-dflash-{target}-{quant}.log",
    conda:
        "../../envs/pipeline.yaml"
    message:
        "name {input} dflash-{wildcards.target}-{wildcards.quant}.gguf as well"
    shell:
        "python -m scripts.link {input:q} {output:q} --log {log:q}"


rule release:
    input:
        described,
        manifest="results/{pair}/release/manifest.json",
        provenance=f"results/{{pair}}/release/{PROVENANCE}",
    output:
        "results/{pair}/release/SHA256SUMS",
    log:
        "logs/{pair}/release.log",
    benchmark:
        "benchmarks/{pair}/release.tsv"
    conda:
        "../../envs/pipeline.yaml"
    params:
        folder=subpath(output[0], parent=True),
        files=release_names,
    message:
        "close the release of {wildcards.pair}"
    shell:
        "python -m scripts.release --folder {params.folder:q} --manifest {input.manifest:q}"
        " --files {params.files:q} --log {log:q}"
