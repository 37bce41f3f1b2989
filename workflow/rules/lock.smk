# Inputs are resolved once to commits, in locks/<pair>.yaml, which people commit. The lock is updated, never remade: an entry
# that fits the config stays as it is until somebody asks for `snakemake lock`.
rule write_lock:
    output:
        update(f"{CONFIG['locks']}/{{pair}}.yaml"),
    log:
        "logs/{pair}/write-lock.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        pairs=one_pair,
        locks=subpath(output[0], parent=True),
    message:
        "lock the inputs of {wildcards.pair}"
    shell:
        "python -m scripts.lock --pairs {params.pairs:q} --locks {params.locks:q} --log {log:q}"


rule resolve:
    input:
        f"{CONFIG['locks']}/{{pair}}.yaml",
    output:
        "results/{pair}/reports/lock.json",
    log:
        "logs/{pair}/lock.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        pairs=one_pair,
        locks=subpath(input[0], parent=True),
    message:
        "read the locked inputs of {wildcards.pair}"
    shell:
        "python -m scripts.lock --pairs {params.pairs:q} --locks {params.locks:q} --frozen"
        " --report {output:q} --log {log:q}"


rule lock:
    log:
        "logs/lock.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        pairs=json.dumps(PAIRS),
        locks=CONFIG["locks"],
    message:
        "move the locks to what the configured branches and tags are now"
    shell:
        "python -m scripts.lock --pairs {params.pairs:q} --locks {params.locks:q} --move --log {log:q}"
