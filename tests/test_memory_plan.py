"""The plan: what it says where models fit and where they do not, and headers read from the Hub by a few megabytes."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from demo.hub import HubServer
from scripts import memory_free, memory_plan
from scripts.core import BuildError, read_json
from scripts.memory_free import Pool
from scripts.memory_log import checkpoints, measured
from scripts.memory_model import Model, Sizes
from scripts.memory_plan import Plan, advice, plan, report, table
from tests import memory_samples
from tests.errors_table import Said
from tests.served_samples import write_split
from tests.verify_samples import Gguf

MIB, GIB = 1 << 20, 1 << 30
SIZES = Sizes(context=32768, n_max=15, checkpoints=2)


@pytest.fixture(scope="module", name="folder")
def of_both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    memory_samples.target(folder / "target.gguf")
    memory_samples.draft(folder / "draft.gguf")
    return folder


@pytest.fixture(name="models")
def as_read(folder: Path) -> tuple[Model, Model]:
    return memory_plan.read(str(folder / "target.gguf")), memory_plan.read(str(folder / "draft.gguf"))


def card(gib: float) -> Pool:
    return Pool("a card", int(gib * GIB), int(gib * GIB), True, "nvidia-smi")


def made(models: tuple[Model, Model], gib: float, sizes: Sizes = SIZES) -> Plan:
    return plan(*models, sizes, card(gib), margin=256 * MIB)


def test_where_it_fits_nothing_is_advised(models: tuple[Model, Model]) -> None:
    whole = made(models, 24)
    assert whole.fits
    assert advice(whole) is None
    assert report(whole)["checks"] == [{"name": "memory", "ok": True, "detail": "fits"}]


def test_the_margin_counts(models: tuple[Model, Model]) -> None:
    needed = made(models, 24).needed
    pool = Pool("a card", needed + 256 * MIB, 24 * GIB, True, "nvidia-smi")
    assert plan(*models, SIZES, pool, 256 * MIB).fits
    assert not plan(*models, SIZES, pool, 256 * MIB + 1).fits


def test_what_lies_in_the_machines_memory_takes_nothing_from_the_card(models: tuple[Model, Model]) -> None:
    on_card = made(models, 24)
    host = {item.what for item in on_card.items} - {item.what for item in on_card.counted}
    assert host == {"embedding", "outputs and taps", "outputs", "context checkpoints"}
    ram = plan(*models, SIZES, Pool("memory", 24 * GIB, 24 * GIB, False, "psutil"))
    unified = plan(*models, SIZES, Pool("memory", 24 * GIB, 24 * GIB, True, "psutil", shared=True))
    assert ram.needed == unified.needed == sum(item.bytes for item in on_card.items)


def test_where_it_does_not_fit_one_line_says_what_to_shrink(models: tuple[Model, Model]) -> None:
    tight = made(models, 8, SIZES)
    said = advice(tight)
    print(said)
    assert said is not None
    assert "\n" not in said
    over = tight.needed - tight.room
    assert said.startswith(f"does not fit, {over / 1e9:.1f} GB too much: {tight.needed / 1e9:.1f} GB needed and 8.6 GB")
    assert said.endswith(memory_plan.SPILLED)
    freed = tight.needed - tight.with_sizes(parallel=1).needed
    assert f"one slot (serve.parallel 1) frees {freed / 1e9:.1f} GB" in said
    freed = tight.needed - tight.with_sizes(kv_type="q8_0").needed
    assert f"KV type q8_0 (serve.kv_type) frees {freed / 1e6:.1f} MB" in said
    assert "micro-batches of 128 (-- -ub 128) frees" in said
    freed = tight.needed - tight.with_sizes(n_max=4).needed
    assert f"drafts of 4 (serve.n_max) frees {freed / 1e9:.1f} GB" in said
    assert not made(models, 8, replace(SIZES, parallel=1, kv_type="q8_0")).fits
    assert made(models, 8, replace(SIZES, parallel=1, kv_type="q8_0", ubatch=128)).fits
    assert " MB, the first 3 are enough together; " in said
    assert "; no context is small enough by itself; " in said
    assert "; a smaller quant of the target is enough at " in said
    (check,) = report(tight)["checks"]
    assert (check["ok"], check["detail"]) == (False, said)


def test_the_largest_context_that_fits_is_named(models: tuple[Model, Model]) -> None:
    sizes = Sizes(context=65536, kv_type="q8_0", n_max=3, parallel=1)
    tight = made(models, 8, sizes)
    said = advice(tight)
    assert said is not None
    words = said.partition("a context of ")[2].split()
    context = int(words[0])
    assert " ".join(words[1:3]) == "(serve.context) frees"
    assert 256 <= context < 65536
    assert context % 256 == 0
    assert tight.with_sizes(context=context).fits
    assert not tight.with_sizes(context=context + 256).fits
    assert "and is enough" in said
    assert "one slot" not in said
    assert "drafts of 4" not in said


def test_a_card_that_is_too_small_for_any_quant(models: tuple[Model, Model]) -> None:
    assert "no quant of the target is small enough by itself" in str(advice(made(models, 1)))


def test_the_table(models: tuple[Model, Model]) -> None:
    lines = table(made(models, 24)).splitlines()
    assert [cell.strip() for cell in lines[0].strip("|").split("|")] == ["model", "what", "MiB", "where"]
    assert any("recurrent state" in line and " 3216.0 | a card" in line for line in lines)
    assert any("context checkpoints" in line and "memory of this machine" in line for line in lines)
    beside = table(made(models, 24), {("target", "recurrent state"): 3216.5 * MIB}).splitlines()
    assert "measured MiB" in beside[0]
    assert any("recurrent state" in line and " 3216.0 |" in line and " 3216.5 |" in line for line in beside)
    assert "nan" not in "".join(beside)


LOG = """0.1 I load_tensors:        CUDA0 model buffer size =     9.00 MiB
0.1 I llama_context: n_ctx                 = 2048
0.2 I common_fit_params: fitting params to free memory took 1.80 seconds
0.3 I load_tensors:   CPU_Mapped model buffer size =     1.50 MiB
0.3 I load_tensors:        CUDA0 model buffer size =    60.00 MiB
0.4 I llama_context: n_ctx                 = 2048
0.4 I llama_kv_cache:      CUDA0 KV buffer size =     2.00 MiB
0.4 I llama_memory_recurrent:      CUDA0 RS buffer size =     7.69 MiB
0.5 I load_tensors:        CUDA0 model buffer size =     0.72 MiB
0.6 I llama_context: n_ctx                 = 2048
0.6 I llama_kv_cache:      CUDA0 KV buffer size =     1.00 MiB
0.6 I llama_kv_cache:      CUDA0 KV buffer size =     0.38 MiB
0.7 I slot create_check: created context checkpoint 1 of 2 (pos_min = 3, n_tokens = 4, size = 0.122 MiB)
0.8 D ~llama_context:      CUDA0 compute buffer size is 971.9473 MiB, matches expectation of 971.9473 MiB
0.8 D ~llama_context:  CUDA_Host compute buffer size is   4.0000 MiB, matches expectation of   4.0000 MiB
0.9 D ~llama_context:      CUDA0 compute buffer size is  65.1429 MiB, matches expectation of  65.1429 MiB
"""


def test_the_log_of_a_server_that_ended() -> None:
    found = {name: round(size / MIB, 2) for name, size in measured(LOG).items()}
    assert found == {
        ("target", "weights"): 61.5,
        ("target", "KV cache"): 2.0,
        ("target", "recurrent state"): 7.69,
        ("draft", "weights"): 0.72,
        ("draft", "KV cache"): 1.38,
        ("draft", "compute buffer"): 975.95,
        ("target", "compute buffer"): 65.14,
    }
    assert checkpoints(LOG) == [(4, 0.122 * MIB)]
    assert measured("") == {}


def test_the_front(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = ["--target", str(folder / "target.gguf"), "--draft", str(folder / "draft.gguf")]
    (tmp_path / "server.log").write_text(LOG)
    more = ["--json", str(tmp_path / "plan.json"), "--measured", str(tmp_path / "server.log"), "--parallel", "1"]
    assert memory_plan.main([*models, "--context", "4096", "--kv-type", "q8_0", *more]) == 0
    said = capsys.readouterr()
    assert "| 7.7 |" in " ".join(said.out.split())
    written = read_json(tmp_path / "plan.json")
    assert written["settings"] == {
        **{"context": 4096, "kv_type": "q8_0", "draft_kv_type": "f16", "n_max": 15, "checkpoints": 2},
        **{"parallel": 1, "ubatch": 512, "batch": 2048},
    }
    sizes = {(item["model"], item["what"]): item["bytes"] for item in written["items"]}
    assert sizes["target", "KV cache"] == 68 * MIB
    assert written["needed_bytes"] == sum(item["bytes"] for item in written["items"] if item["counted"])


def test_the_front_warns_where_it_does_not_fit(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_free, "find", lambda server: card(4))
    target = ["--target", str(folder / "target.gguf"), "--context", "4096"]
    assert memory_plan.main(target) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: does not fit, ")


@pytest.mark.parametrize(("option", "value"), [("context", "0"), ("parallel", "0"), ("n-max", "-1"), ("margin", "-1")])
def test_numbers_that_make_no_sense(
    option: str, value: str, folder: Path, capsys: pytest.CaptureFixture[str], said: Said
) -> None:
    given = ["--target", str(folder / "target.gguf"), "--context", "256", f"--{option}={value}"]
    assert memory_plan.main(given) == 1
    error = capsys.readouterr().err.strip()
    said(f"Memory: {option} of {value}", error)
    assert f"(--{option}): give a number from " in error


def test_a_file_that_is_not_there(tmp_path: Path, said: Said) -> None:
    with pytest.raises(BuildError) as caught:
        memory_plan.read(str(tmp_path / "none.gguf"))
    said("Memory: a model that is not there", caught.value)
    assert caught.value.what == "cannot read the GGUF: No such file or directory"


def test_a_split_model_counts_whole(tmp_path: Path) -> None:
    found = memory_plan.read(str(write_split(tmp_path, 3, 2)))
    assert sorted(found.tensors) == ["blk.3.w", "token_embd.weight"]


def upload(server: HubServer, folder: Path, repo: str, source: Path, name: str) -> int:
    """Put a model with some megabytes of data on the Hub; returns its size."""
    folder.mkdir()
    values = memory_plan.read(str(source)).values
    tensors = {"token_embd.weight": (np.zeros((5000, 1000), np.float32), "F32")}
    path = Gguf(dict(values), tensors).write(folder / name)
    server.commit_folder(repo, folder, "Add files")
    server.log.clear()
    return path.stat().st_size


def test_models_on_the_hub_are_planned_by_a_few_megabytes(
    at_hub: HubServer, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], said: Said
) -> None:
    target = upload(at_hub, tmp_path / "t", "demo-org/Target-GGUF", folder / "target.gguf", "Target-Q8_0.gguf")
    draft = upload(at_hub, tmp_path / "d", "demo-org/Draft-GGUF", folder / "draft.gguf", "Draft-DFlash-Q8_0.gguf")
    given = ["--target", "demo-org/Target-GGUF:Q8_0", "--draft", "demo-org/Draft-GGUF:Q8_0", "--context", "4096"]
    assert memory_plan.main([*given, "--json", str(tmp_path / "plan.json")]) == 0
    items = read_json(tmp_path / "plan.json")["items"]
    assert {"model": "target", "what": "KV cache", "bytes": 128 * MIB, "host": False, "counted": True} in items
    for repo, size in (("demo-org/Target-GGUF", target), ("demo-org/Draft-GGUF", draft)):
        assert at_hub.log.bytes_for(repo, ".gguf") == 1 << 20 < size / 15
    assert "demo-org/Target-GGUF:Q8_0: 1.0 MB read in 1 requests" in capsys.readouterr().err
    with pytest.raises(BuildError) as caught:
        memory_plan.read("demo-org/Target-GGUF:Q4_K_M")
    said("Memory: a quant that the repository has not", caught.value)


def test_the_plan_is_json(models: tuple[Model, Model]) -> None:
    assert json.loads(json.dumps(report(made(models, 8))))["pool"]["name"] == "a card"
