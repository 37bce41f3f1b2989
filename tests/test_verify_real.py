"""Verification of what the pinned converter and llama-quantize really write, on the full vocabulary."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scripts.core import BuildError, Report
from scripts.safetensors_header import check_weights
from scripts.toolchain import quant_types
from scripts.verify import verify
from scripts.verify_gguf import open_gguf
from scripts.verify_tensors import error_checks, exact_checks, from_weights, measure
from scripts.verify_types import ALIASES, LIMITS, NEEDS_MATRIX, RULES, rule_for, type_checks
from tests import verify_samples as samples

pytestmark = pytest.mark.slow

NAME = "Random-Draft"
CONFIG: dict[str, Any] = {
    **samples.CONFIG,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "head_dim": 64,
    "vocab_size": 248320,
    "dflash_config": {"block_size": 16, "mask_token_id": 248077, "target_layer_ids": [1, 3, 5]},
}
FULL_ATTENTION: dict[str, Any] = {
    **{key: value for key, value in CONFIG.items() if key not in ("layer_types", "sliding_window", "dflash_config")},
    "use_sliding_window": False,
    "is_causal": False,
    "block_size": 8,
    "dflash_config": {"mask_token_id": 248070, "target_layer_ids": [1, 3, 5]},
    "rope_parameters": {
        "rope_theta": 1000000.0,
        "rope_type": "yarn",
        "factor": 4,
        "original_max_position_embeddings": 128,
        "beta_fast": 16,
    },
    "hidden_size": 128,
    "rms_norm_eps": 1e-5,
}
"""Everything that the other config leaves out; rows of 128 do not fit the K types."""


class Built:
    """A draft, converted once for the finetune's vocabulary, and quantized on demand."""

    def __init__(self, folder: Path, config: dict[str, Any], toolchain: Path, target: Path) -> None:
        self.folder, self.draft, self.target, self.toolchain = folder, folder / "draft", target, toolchain
        samples.write_draft(self.draft, config)
        self.bf16 = folder / "bf16.gguf"
        source = toolchain / "llama.cpp"
        command = [sys.executable, source / "convert_hf_to_gguf.py", self.draft, "--outtype", "bf16"]
        command += ["--target-model-dir", target, "--model-name", NAME, "--outfile", self.bf16]
        # The converter needs the gguf package of its own tree: the published one does not know the architecture.
        run([*command], {**os.environ, "PYTHONPATH": str(source / "gguf-py"), "HF_HUB_OFFLINE": "1"})

    def quantized(self, quant: str) -> Path:
        path = self.folder / f"{quant}.gguf"
        if not path.exists():
            run([self.toolchain / "bin" / "llama-quantize", self.bf16, path, quant, "1"], dict(os.environ))
        return path

    def verify(self, path: Path, quant: str, **options: Any) -> Report:
        general = {"general.name": NAME}
        return verify(
            path, self.draft, options.pop("target", self.target), quant, general=general, only_these=False, **options
        )


def run(command: list[Any], environment: dict[str, str]) -> None:
    done = subprocess.run(
        [str(part) for part in command], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def failures(report: Report) -> list[str]:
    return [f"{check.name}: {check.detail}" for check in report.checks if not check.ok]


@pytest.fixture(scope="module")
def built(toolchain_quantize: Path, pair_repos: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(tmp_path_factory.mktemp("built"), CONFIG, toolchain_quantize, pair_repos / "finetune")


@pytest.fixture(scope="module")
def narrow(toolchain_quantize: Path, pair_repos: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(tmp_path_factory.mktemp("narrow"), FULL_ATTENTION, toolchain_quantize, pair_repos / "finetune")


def test_a_converted_draft_passes_bit_for_bit(built: Built) -> None:
    report = built.verify(built.bf16, "bf16")
    assert failures(report) == []
    assert report.figures["types"] == {"BF16": 15, "F32": 10}
    assert "dflash.rope.dimension_sections" in [check.name for check in report.checks]


def test_a_config_with_everything_else_passes_too(narrow: Built) -> None:
    report = narrow.verify(narrow.bf16, "bf16")
    assert failures(report) == []
    names = {check.name for check in report.checks}
    assert {"dflash.attention.causal", "dflash.rope.scaling.yarn_beta_fast"} <= names
    assert "dflash.attention.sliding_window" not in names


@pytest.mark.parametrize("quant", [quant for quant in RULES if quant != "BF16"])
def test_every_rule_holds_for_what_llama_quantize_writes(built: Built, quant: str) -> None:
    file = open_gguf(built.quantized(quant))
    tensors, rule = file.tensors, rule_for(quant)
    assert file.values["general.file_type"] == rule.file_type
    checks, fallen = type_checks(tensors.values(), rule, allow_fallback=False)
    measured, _ = measure(file, from_weights(check_weights(built.draft)), 1, None)
    checks += exact_checks(measured, tensors) + error_checks(measured, tensors, LIMITS)
    assert [check for check in checks if not check.ok] == []
    assert fallen == []
    worst = max(found.error for name, found in measured.items() if tensors[name].type == rule.main)
    if rule.main in ("Q1_0", "Q2_0"):
        warnings = [check.name for check in checks if check.detail.startswith("warning:")]
        assert warnings == ["finite weights", f"relative error {rule.main}"]
    elif rule.main in ("F16", "F32"):  # both hold usual BF16 weights exactly
        assert worst < 1e-6
    else:
        least = 1.3 if rule.main in ("TQ1_0", "TQ2_0") else 1.5
        assert LIMITS[rule.main] / 3 < worst < LIMITS[rule.main] / least


@pytest.mark.parametrize("quant", [*NEEDS_MATRIX, "COPY"])
def test_what_has_no_rule_is_nothing_that_llama_quantize_makes(built: Built, tmp_path: Path, quant: str) -> None:
    program, path = built.toolchain / "bin" / "llama-quantize", tmp_path / "out.gguf"
    done = subprocess.run([program, built.bf16, path, quant, "1"], capture_output=True, text=True, timeout=300)
    if quant == "COPY":
        assert {tensor.type for tensor in open_gguf(path).tensors.values()} == {"BF16", "F32"}
        return
    assert done.returncode == 1
    assert "this quantization requires an importance matrix" in done.stdout + done.stderr


def test_every_type_that_llama_quantize_knows_is_decided(built: Built) -> None:
    known = set(quant_types(built.toolchain / "bin" / "llama-quantize"))
    assert known - {"COPY"} == {*RULES, *ALIASES, *NEEDS_MATRIX}


@pytest.mark.parametrize("quant", ["Q8_0", "Q4_K_M", "F32", "F16", "MXFP4_MOE", "TQ2_0", "Q1_0", "Q2_0"])
def test_a_quantized_draft_passes_against_the_bf16_file(built: Built, quant: str) -> None:
    assert failures(built.verify(built.quantized(quant), quant, reference=built.bf16)) == []


def test_the_known_mix_of_q4_k_m(built: Built) -> None:
    report = built.verify(built.quantized("Q4_K_M"), "Q4_K_M")
    assert report.figures["types"] == {"Q4_K": 13, "F32": 10, "Q6_K": 2}
    assert 4.5 < report.figures["bpw"] < 5


def test_one_quant_does_not_pass_for_another(built: Built) -> None:
    report = built.verify(built.quantized("Q4_K_M"), "Q4_K_S")
    assert failures(report)[0] == "general.file_type: is 15; Q4_K_S gives 14"
    assert failures(report)[1].startswith("tensor types: blk.1.attn_v.weight is Q6_K, not Q4_K/Q5_K")


def test_rows_that_do_not_fit_are_found_as_fallbacks(narrow: Built) -> None:
    path = narrow.quantized("Q4_K_M")
    (message,) = failures(narrow.verify(path, "Q4_K_M"))
    assert message.startswith("fallback types: ")
    assert "is Q5_0, not Q4_K (rows of 128 weights)" in message
    report = narrow.verify(path, "Q4_K_M", allow_fallback=True)
    assert failures(report) == []
    types = report.figures["types"]
    assert types["Q5_0"] + types.get("Q8_0", 0) == len(report.figures["fallback_tensors"])


def test_the_vocabulary_of_another_target_is_found_by_its_tokens(built: Built, pair_repos: Path) -> None:
    found = failures(built.verify(built.bf16, "bf16", target=pair_repos / "base"))
    (tokens,) = [line for line in found if line.startswith("tokenizer.ggml.tokens")]
    assert "token 248070 is '<|audio_start|>', the target's '[PAD248070]'" in tokens
    assert tokens.endswith("7 differ in all")


@pytest.mark.parametrize("edit", [lambda raw: raw[:-100], lambda raw: raw[:1000], lambda raw: raw[: len(raw) // 2]])
def test_a_cut_file_stops(built: Built, tmp_path: Path, edit: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(edit(built.bf16.read_bytes()))
    with pytest.raises(BuildError, match="cut short"):
        built.verify(path, "bf16")


def test_the_report_is_json(built: Built, tmp_path: Path) -> None:
    report = built.verify(built.bf16, "bf16")
    report.write(tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8")) == report.as_dict()
