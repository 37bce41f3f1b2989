from snakemake.utils import min_version

min_version("9.20")


# A file given with --configfile replaces this one, and then this folder need not have any.
if exists("config.yaml"):

    configfile: "config.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/measuring.smk"
include: "workflow/rules/mlx_options.smk"


wildcard_constraints:
    pair="|".join(map(re.escape, PAIRS)),
    name="|".join(re.escape(pair["name"]) for pair in PAIRS.values()),
    target="|".join(re.escape(pair["target"]["repo"].rpartition("/")[2]) for pair in PAIRS.values()),
    quant="[A-Za-z0-9_]+",
    role="draft|target|base|mlx_target",


localrules:
    all,
    bench,
    publish,
    publish_dry_run,
    publish_mlx,
    tune,
    demo_video,


rule all:
    default_target: True
    input:
        finished(PAIRS),


include: "workflow/rules/lock.smk"
include: "workflow/rules/fetch.smk"
include: "workflow/rules/tokenizer.smk"
include: "workflow/rules/target.smk"
include: "workflow/rules/toolchain.smk"
include: "workflow/rules/convert.smk"
include: "workflow/rules/quantize.smk"
include: "workflow/rules/verify.smk"
include: "workflow/rules/mlx.smk"
include: "workflow/rules/bench.smk"
include: "workflow/rules/tune.smk"
include: "workflow/rules/card.smk"
include: "workflow/rules/provenance.smk"
include: "workflow/rules/publish.smk"
include: "workflow/rules/video.smk"
include: "workflow/rules/serve.smk"


onstart:
    check_before_start()


onerror:
    print(*errors_since(STARTED), sep="\n", file=sys.stderr)
