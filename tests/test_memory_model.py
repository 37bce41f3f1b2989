"""The arithmetic of memory, for the 9B and its draft by their real shapes, and for headers that lack something."""

from dataclasses import replace
from pathlib import Path

import pytest

from scripts import memory_model as memory
from scripts.core import BuildError
from scripts.memory_model import Model, Sizes
from scripts.verify_gguf import open_gguf
from tests import memory_samples
from tests.errors_table import Said

MIB = 1 << 20
SMALL = Sizes(context=4096, kv_type="q8_0", draft_kv_type="q8_0", n_max=15, checkpoints=2, parallel=1)
LARGE = replace(SMALL, context=32768)


@pytest.fixture(scope="module", name="target")
def of_the_target(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = memory_samples.target(tmp_path_factory.mktemp("target") / "Target-Q4_K.gguf")
    return memory.model("Target-Q4_K.gguf", [open_gguf(path)])


@pytest.fixture(scope="module", name="draft")
def of_the_draft(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = memory_samples.draft(tmp_path_factory.mktemp("draft") / "Draft-Q4_K.gguf")
    return memory.model("Draft-Q4_K.gguf", [open_gguf(path)])


def changed(model: Model, **values: object) -> Model:
    """The model with other values, by their keys' last parts with __ for a dot; None takes one out."""
    found = dict(model.values)
    for name, value in values.items():
        key = f"{model.family}.{name.replace('__', '.')}"
        found.pop(key, None)
        if value is not None:
            found[key] = value
    return replace(model, values=found)


def test_the_kv_caches_of_the_9b(target: Model, draft: Model) -> None:
    # One token of one layer: 4 heads of 256 keys and as many values; q8_0 stores 32 values in 34 bytes.
    token = 2 * 4 * 256 * 34 // 32
    assert memory.kv_cache(target, "q8_0", SMALL) == 8 * 4096 * token == 68 * MIB
    assert memory.kv_cache(target, "q8_0", LARGE) == 8 * 32768 * token == 544 * MIB
    assert memory.kv_cache(target, "f16", LARGE) == 1024 * MIB
    # The draft has 8 heads of 128; five layers keep the window and one micro-batch, 4096 + 512 tokens, the sixth all.
    assert memory.kv_cache(draft, "q8_0", SMALL) == 6 * 4096 * token == 51 * MIB
    assert memory.kv_cache(draft, "q8_0", LARGE) == (5 * 4608 + 32768) * token
    # Slots that share one cache need a window each: 4 x 4096 + 512.
    assert memory.kv_cache(draft, "q8_0", replace(LARGE, parallel=None)) == (5 * 16896 + 32768) * token


def test_slots_that_were_asked_for_split_the_context(target: Model, draft: Model) -> None:
    two = replace(LARGE, parallel=2)
    assert two.cells == 16384
    assert memory.kv_cache(target, "q8_0", two) == memory.kv_cache(target, "q8_0", LARGE)
    assert memory.kv_cache(draft, "q8_0", two) == 2 * memory.kv_cache(draft, "q8_0", replace(LARGE, context=16384))
    assert Sizes(context=4097).cells == 4352


def test_the_recurrent_state_of_the_9b(target: Model) -> None:
    # 24 layers: 32 heads of 128 x 128 in the delta net, 3 steps of 8192 channels in the convolution, as f32.
    row = 24 * (32 * 128 * 128 + 3 * 8192) * 4
    assert memory.recurrent_row(target) == row == 52_690_944
    assert memory.recurrent_state(target, SMALL) == 16 * row == 804 * MIB
    assert memory.recurrent_state(target, replace(SMALL, parallel=None)) == 3216 * MIB
    assert memory.recurrent_state(target, replace(SMALL, n_max=0)) == row


def test_a_checkpoint_of_the_9b_takes_about_100_mb(target: Model, draft: Model) -> None:
    alone = memory.checkpoint(target, None, SMALL)
    both = memory.checkpoint(target, draft, LARGE)
    print(f"a checkpoint: {alone / 1e6:.1f} MB of the target alone, {both / 1e6:.1f} MB with the draft's window")
    assert alone == memory.recurrent_row(target)
    window = 5 * 4096 * 2 * 8 * 128 * 34 // 32
    assert both == alone + window
    assert 90e6 < both < 110e6
    assert memory.checkpoint(target, draft, LARGE, 100) == alone + window * 100 // 4096


def test_all_of_the_9b_at_two_contexts(target: Model, draft: Model) -> None:
    for sizes, total in ((SMALL, 8350), (LARGE, 8919)):
        found = memory.items(target, draft, sizes, gpu=False)
        print(*(f"{item.model} {item.what}: {item.bytes / MIB:.1f} MiB" for item in found), sep="\n")
        assert sum(item.bytes for item in found) / MIB == pytest.approx(total, abs=1)


def test_a_gpu_has_no_embedding_but_a_head(target: Model, draft: Model) -> None:
    size = sum(tensor.end - tensor.begin for tensor in target.tensors.values())
    embedding = 248320 * 4096 // 256 * 144
    assert [(i.what, i.bytes, i.host) for i in memory.weights(target, True, "target")] == [
        ("weights", size - embedding, False),
        ("embedding", embedding, True),
    ]
    tied = replace(target, tensors={k: v for k, v in target.tensors.items() if k != memory.HEAD})
    head = target.tensors[memory.HEAD]
    assert memory.weights(tied, True, "target")[0].bytes == size - (head.end - head.begin)
    assert [item.bytes for item in memory.weights(target, False, "target")] == [size]
    assert [item.what for item in memory.weights(draft, True, "draft")] == ["weights"]


def test_a_baseline_needs_no_states_to_go_back_to(target: Model) -> None:
    found = memory.items(target, None, replace(SMALL, n_max=0), gpu=False)
    assert {item.model for item in found} == {"target", "both"}
    assert next(item.bytes for item in found if item.what == "recurrent state") == memory.recurrent_row(target)


def test_layers_that_predict_further_tokens_are_not_loaded(target: Model) -> None:
    whole, less = memory.weights(target, False, "t")[0].bytes, changed(target, nextn_predict_layers=1)
    last = sum(t.end - t.begin for name, t in target.tensors.items() if name.startswith("blk.31."))
    assert memory.weights(less, False, "t")[0].bytes == whole - last
    assert memory.kv_cache(less, "q8_0", SMALL) == 7 * 68 * MIB // 8


def test_layers_named_one_by_one(target: Model) -> None:
    named = changed(target, attention__recurrent_layers=[True] * 31 + [False], full_attention_interval=None)
    assert memory.recurrent_row(named) == 31 * memory.recurrent_row(target) // 24
    assert memory.kv_cache(named, "q8_0", SMALL) == 68 * MIB // 8
    heads = changed(target, attention__head_count_kv=[0, 0, 0, 4] * 8)
    assert memory.kv_cache(heads, "q8_0", SMALL) == 68 * MIB


def test_a_target_without_recurrent_layers(target: Model) -> None:
    plain = changed(target, ssm__state_size=None)
    assert (memory.recurrent_row(plain), memory.recurrent_state(plain, SMALL)) == (0, 0)
    assert memory.kv_cache(plain, "q8_0", SMALL) == 4 * 68 * MIB
    assert memory.target_compute(plain, None, SMALL) < memory.target_compute(target, None, SMALL)


def test_a_header_without_a_number_is_named(target: Model, draft: Model, said: Said) -> None:
    with pytest.raises(BuildError) as caught:
        memory.items(changed(target, block_count=None), draft, SMALL, gpu=False)
    said("Memory: a header without a number that counts", caught.value)
    assert str(caught.value) == f"qwen35.block_count is None (Target-Q4_K.gguf): {memory.FIX}"
    with pytest.raises(BuildError, match=r"qwen35\.attention\.head_count_kv is \[4, 4\]"):
        memory.items(changed(target, attention__head_count_kv=[4, 4]), draft, SMALL, gpu=False)
    with pytest.raises(BuildError, match=r"no token_embd\.weight in the target"):
        memory.items(replace(target, tensors={}), draft, SMALL, gpu=False)


@pytest.mark.parametrize(("kv_type", "size"), [("f32", 128), ("bf16", 64), ("q8_0", 34), ("q4_0", 18), ("iq4_nl", 18)])
def test_kv_types(kv_type: str, size: int) -> None:
    assert memory.kv_bytes(kv_type, 32) == size


def test_a_file_of_the_real_shapes_takes_no_room(tmp_path: Path) -> None:
    path = memory_samples.target(tmp_path / "t.gguf")
    assert path.stat().st_size > 5_000_000_000
    assert path.stat().st_blocks * 512 < 1_000_000
