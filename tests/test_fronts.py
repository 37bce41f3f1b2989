"""Every step can be used from the command line, and says what it does."""

import importlib
import pkgutil
import sys

import pytest

import scripts

LIBRARIES = {
    *("core", "hub", "locks", "process", "preflight", "runs", "upload", "mlx_quant"),
    *("llama_server", "memory_free", "memory_log", "memory_model", "serve_command", "serve_settings"),
    *("draft_config", "gguf_remote", "machine", "safetensors_header", "usage"),
    *("fit", "gguf_resolve", "verdict"),
}
"""Modules without a front: what the steps share. Parts of a step, as verify_types, have none either."""

STEPS_IN_PARTS = ("bench", "card", "check_release", "doctor", "toolchain", "tune", "verify", "video", "vocab")

STEPS = sorted(
    module.name
    for module in pkgutil.iter_modules(scripts.__path__)
    if module.name not in LIBRARIES and not any(module.name.startswith(f"{step}_") for step in STEPS_IN_PARTS)
)


@pytest.mark.parametrize("name", STEPS)
def test_help(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(f"scripts.{name}")
    monkeypatch.setattr(sys, "argv", [f"python -m scripts.{name}", "--help"])
    with pytest.raises(SystemExit) as caught:
        module.main()
    assert caught.value.code == 0
    said = capsys.readouterr().out
    assert (module.__doc__ or "").strip().split()[0] in said
    assert "--debug" in said


def test_every_module_says_what_it_is_for() -> None:
    modules = [f"scripts.{module.name}" for module in pkgutil.iter_modules(scripts.__path__)]
    assert [name for name in modules if not importlib.import_module(name).__doc__] == []
