# What a release was made of, for machines: a bill of materials, a statement of provenance and, with a key, a signature.
rule bill_of_materials:
    input:
        "results/{pair}/release/manifest.json",
    output:
        f"results/{{pair}}/release/{BILL}",
    log:
        "logs/{pair}/sbom.log",
    conda:
        "../../envs/pipeline.yaml"
    message:
        "write the bill of materials of {wildcards.pair}"
    shell:
        "python -m scripts.sbom --manifest {input:q} --out {output:q} --log {log:q}"


rule provenance:
    input:
        described,
        manifest="results/{pair}/release/manifest.json",
    output:
        f"results/{{pair}}/release/{PROVENANCE}",
    log:
        "logs/{pair}/provenance.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        files=described_names,
        parameters=external_parameters,
    message:
        "write the provenance of {wildcards.pair}"
    shell:
        "python -m scripts.provenance --manifest {input.manifest:q} --files {params.files:q}"
        " --parameters {params.parameters:q} --out {output:q} --log {log:q}"


# The report is the output: without a key there is no signature, and publishing goes on.
rule sign:
    input:
        "results/{pair}/release/SHA256SUMS",
    output:
        "results/{pair}/reports/sign.json",
    log:
        "logs/{pair}/sign.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        folder=subpath(input[0], parent=True),
        how=sign.how(),
    message:
        "sign the release of {wildcards.pair}: {params.how}"
    shell:
        "python -m scripts.sign --folder {params.folder:q} --report {output:q} --log {log:q}"
