# The demo video: one answer captured without and with the draft, replayed side by side. Not part of the default target.
rule capture_stream:
    input:
        workloads=workload_files,
        server=f"{TOOLCHAIN}/llama-server.json",
        target=served_gguf,
        draft=served_draft,
    output:
        baseline="results/{pair}/video/baseline.jsonl",
        dflash="results/{pair}/video/dflash.jsonl",
    log:
        step="logs/{pair}/capture.log",
        baseline="logs/{pair}/capture-baseline-server.log",
        dflash="logs/{pair}/capture-dflash-server.log",
    conda:
        "../../envs/pipeline.yaml"
    # All of them: what runs beside it would be measured as well.
    threads: whole_machine
    params:
        toolchain=subpath(input.server, parent=True),
        settings=measured_settings,
        prompt=video_prompt,
    message:
        "capture one answer of {wildcards.pair} without and with the draft"
    shell:
        "python -m scripts.capture --server {params.toolchain:q}/bin/llama-server --target {input.target:q}"
        " --draft {input.draft:q} --settings {params.settings:q} --workloads {input.workloads:q} {params.prompt:q}"
        " --baseline-out {output.baseline:q} --dflash-out {output.dflash:q}"
        " --baseline-log {log.baseline:q} --dflash-log {log.dflash:q} --log {log.step:q}"


# The MP4 is no output: it is there only where ffmpeg is. The report names it.
rule render_video:
    input:
        baseline="results/{pair}/video/baseline.jsonl",
        dflash="results/{pair}/video/dflash.jsonl",
    output:
        gif=report(
            "results/{pair}/video/demo.gif",
            caption="../report/video.rst",
            category="Measurements",
            labels={"pair": "{pair}", "file": "demo video"},
        ),
        png="results/{pair}/video/demo.png",
        report="results/{pair}/reports/video.json",
    log:
        "logs/{pair}/video.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        speed=CONFIG["video"]["speed"],
    message:
        "render the demo video of {wildcards.pair}"
    shell:
        "python -m scripts.video --baseline {input.baseline:q} --dflash {input.dflash:q} --speed {params.speed}"
        " --gif {output.gif:q} --png {output.png:q} --report {output.report:q} --log {log:q}"


rule demo_video:
    input:
        collect("results/{pair}/video/demo.gif", pair=measurable(PAIRS)),
