"""The config value llama_cpp: what is refused, and ids that are stable."""

from __future__ import annotations

import builtins
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from scripts.core import BuildError
from scripts.toolchain import GitSpec, PathSpec, PypiSpec, main, parse_spec, read_spec, toolchain_id
from scripts.toolchain_spec import build_flags

SHA = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
COMMIT = "0c1e57098bba43ac29e6e3b677cdceebdd22334f"
PYPI = {"source": "pypi", "package": "llama-cpp-python", "version": "0.3.36", "sha256": SHA}
GIT = {"source": "git", "url": "https://example.org/llama.cpp", "commit": COMMIT}
PATH = {"source": "path", "dir": "/opt/llama.cpp"}


def test_the_three_kinds_are_read() -> None:
    assert parse_spec(PYPI | {"package": "Llama_CPP.Python"}) == PypiSpec("llama-cpp-python", "0.3.36", SHA)
    assert parse_spec(GIT | {"commit": COMMIT.upper()}) == GitSpec("https://example.org/llama.cpp", COMMIT)
    assert parse_spec(PATH) == PathSpec(Path("/opt/llama.cpp"), Path("/opt/llama.cpp/build"))
    assert parse_spec(PATH | {"build": "/opt/b"}) == PathSpec(Path("/opt/llama.cpp"), Path("/opt/b"))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (["pypi"], "not a mapping: ['pypi'] (llama_cpp in the config)"),
        ({}, "source is None (llama_cpp in the config): use one of pypi, git, path"),
        ({"source": "svn"}, "source is 'svn'"),
        ({"source": ["pypi"]}, "source is ['pypi']"),
        ({"source": "pypi", "package": "p"}, "source pypi lacks version, sha256"),
        ({"source": "git", "url": "u"}, "source git lacks commit"),
        ({"source": "path"}, "source path lacks dir"),
        (PYPI | {"commit": COMMIT}, "source pypi has no key commit"),
        (PATH | {1: 2}, "source path has no key 1"),
        (PYPI | {"version": 0.3}, "version is 0.3, not text (llama_cpp in the config): write version in quotes"),
        (PYPI | {"version": "latest"}, "version is 'latest'"),
        (PYPI | {"package": "../x"}, "package is '../x'"),
        (PYPI | {"sha256": SHA[:-1]}, "give all 64 hex digits"),
        (GIT | {"commit": "master"}, "commit is 'master' (llama_cpp in the config): give all 40 hex digits"),
        (GIT | {"url": "--upload-pack=evil"}, "give the address or path of a git repository"),
        (PATH | {"dir": " "}, "dir is ' ', not text"),
    ],
)
def test_bad_values_are_told_in_one_line(value: Any, message: str) -> None:
    with pytest.raises(BuildError) as caught:
        parse_spec(value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_ids_are_readable_and_stable() -> None:
    assert toolchain_id(parse_spec(PYPI)).startswith("llama-cpp-python-0.3.36-")
    assert toolchain_id(parse_spec(PYPI)) == toolchain_id(parse_spec(dict(reversed(PYPI.items()))))
    assert toolchain_id(parse_spec(GIT)).startswith("git-0c1e57098bba-")
    assert len(toolchain_id(parse_spec(PATH))) == len("path-") + 12


def test_ids_follow_the_content_not_its_address() -> None:
    mirror = toolchain_id(parse_spec(GIT | {"url": "/srv/mirror"}))
    assert mirror == toolchain_id(parse_spec(GIT))
    assert toolchain_id(parse_spec(PYPI)) != toolchain_id(parse_spec(PYPI | {"sha256": "0" * 64}))
    assert toolchain_id(parse_spec(PATH)) != toolchain_id(parse_spec(PATH | {"build": "/opt/b"}))


def test_an_id_needs_neither_disk_nor_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("touched the machine")

    monkeypatch.setattr(builtins, "open", forbidden)
    monkeypatch.setattr(subprocess, "Popen", forbidden)
    for method in ("stat", "exists", "open", "resolve"):
        monkeypatch.setattr(Path, method, forbidden)
    assert [toolchain_id(parse_spec(value))[:4] for value in (PYPI, GIT, PATH)] == ["llam", "git-", "path"]


def test_flags_are_a_fixed_baseline() -> None:
    for machine, words in {"AMD64": "-march=x86-64-v3", "aarch64": "-DGGML_CPU_ARM_ARCH=armv8.2-a"}.items():
        flags = " ".join(build_flags(machine))
        assert words in flags
        assert "-ffp-contract=off" in flags
        assert "-DGGML_NATIVE=OFF" in flags
        assert "native" not in flags.replace("GGML_NATIVE", "")
    with pytest.raises(BuildError, match=r"no fixed compiler flags for riscv64 .* use source: path"):
        build_flags("riscv64")


def test_a_config_file_is_read(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"pairs: {{}}\nllama_cpp: {json.dumps(PYPI)}\n")
    assert read_spec(config) == parse_spec(PYPI)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no such file"),
        ("pairs: {}\n", "no key llama_cpp at the top"),
        ("- llama_cpp\n", "no key llama_cpp at the top"),
        ("llama_cpp: [\n", "not valid YAML"),
    ],
)
def test_a_bad_config_file_is_told_in_one_line(tmp_path: Path, text: str | None, message: str) -> None:
    config = tmp_path / "config.yaml"
    if text is not None:
        config.write_text(text)
    with pytest.raises(BuildError, match=message) as caught:
        read_spec(config)
    assert str(config) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_command_line_says_errors_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["source", "--spec", "{", "--out", str(tmp_path)]) == 1
    assert main(["build", "--spec", json.dumps(PATH), "--out", str(tmp_path)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("error: not JSON")
    assert lines[1] == "error: no program given (--program): use one of llama-quantize, llama-server"
