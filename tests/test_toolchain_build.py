"""The build driver on a tiny project with llama.cpp's targets: cache, lock, faults; and the programs' own answers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.core import BuildError, Progress, sha256_file
from scripts.toolchain import build, parse_spec, probe, quant_types, toolchain_id
from scripts.toolchain_build import check_cpu, find_compiler
from tests.toolchain.fakes import TINY, git, repository, script

FLAGS_OF_A_CPU = "flags\t\t: fpu sse2 fma bmi1 avx2 bmi2 f16c\n"
OLD_SERVER = """echo "version: 4711 (deadbeef)"; echo "--spec-type none,draft-simple  types"
echo "--draft-max N  removed, use --spec-draft-n-max or another" """


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose name has a blank, with a repository; its cache is filled by the first test that builds."""
    folder = tmp_path_factory.mktemp("shared folder")
    repository(folder / "llama.cpp")
    return folder


def spec_of(folder: Path) -> dict[str, Any]:
    return {"source": "git", "url": str(folder), "commit": git(folder, "rev-parse", "HEAD")}


def make(value: dict[str, Any], out: Path, program: str) -> dict[str, Any]:
    build(parse_spec(value), out, program, 1)  # type: ignore[arg-type]
    written: dict[str, Any] = json.loads((out / f"{program}.json").read_text())
    assert written["ok"] is True
    return written


def refused(value: dict[str, Any], out: Path, program: str = "llama-quantize") -> str:
    with pytest.raises(BuildError) as caught:
        build(parse_spec(value), out, program, 1)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert not (out / f"{program}.json").exists()
    return str(caught.value)


def test_one_target_is_compiled_and_objects_are_used_again(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DFLASH_CACHE", str(shared / "cache"))
    monkeypatch.setattr(Progress, "EVERY", 0.0)
    monkeypatch.setenv("CXXFLAGS", "-march=native")
    value = spec_of(shared / "llama.cpp")
    report = make(value, tmp_path, "llama-quantize")
    assert "compiling llama-quantize: 100% (4 of 4 files)" in capsys.readouterr().err
    objects = [path.name for path in (shared / "cache" / "builds").rglob("*.o")]
    assert sorted(objects) == ["quantize.cpp.o", "shared.cpp.o"]

    binary = tmp_path / "bin" / "llama-quantize"
    assert binary.is_symlink()
    assert report["binary_sha256"] == sha256_file(binary)
    said = subprocess.run([binary], capture_output=True, text=True, check=False).stdout
    commit = value["commit"][:9]
    assert f"of {commit}, llama.cpp/shared.cpp, llama.cpp/quantize.cpp" in said
    assert str(shared).encode() not in binary.read_bytes()

    assert report["id"] == toolchain_id(parse_spec(value))
    assert report["program"] == "llama-quantize"
    assert report["commit"] == value["commit"]
    assert report["quant_types"] == ["Q4_K_M", "Q8_0", "BF16"]
    assert f"-DLLAMA_BUILD_COMMIT={commit}" in report["flags"]
    assert not re.search(r'["= ]/\w', json.dumps(report))
    log = next((shared / "cache" / "builds").rglob("llama-quantize.log")).read_text()
    assert "-march=native" not in log

    make(value, tmp_path, "llama-server")
    steps = next((shared / "cache" / "builds").rglob("llama-server.log")).read_text()
    assert "server.cpp.o" in steps
    assert "shared.cpp.o" not in steps
    assert "configuring" not in capsys.readouterr().err


def test_the_cache_is_used_and_a_damaged_program_built_again(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DFLASH_CACHE", str(shared / "cache"))
    value = spec_of(shared / "llama.cpp")
    first = make(value, tmp_path / "a", "llama-quantize")
    capsys.readouterr()
    assert make(value, tmp_path / "b", "llama-quantize") == first
    assert "compiling" not in capsys.readouterr().err

    cached = (tmp_path / "b" / "bin" / "llama-quantize").resolve()
    with cached.open("ab") as stream:
        stream.write(b"x")
    assert make(value, tmp_path / "b", "llama-quantize") == first
    assert sha256_file(cached) == first["binary_sha256"]
    said = capsys.readouterr().err
    assert "the cached llama-quantize was changed: building it again" in said
    assert "compiling llama-quantize" in said

    # the one in the build folder must not be taken for good either
    cached.unlink()
    (cached.parents[1] / "build" / "bin" / "llama-quantize").write_bytes(b"x")
    assert make(value, tmp_path / "b", "llama-quantize") == first


def test_two_builds_at_once_compile_once(shared: Path, tmp_path: Path) -> None:
    environment = os.environ | {"DFLASH_CACHE": str(tmp_path / "cache")}
    spec = json.dumps(spec_of(shared / "llama.cpp"))
    command = [sys.executable, "-m", "scripts.toolchain", "build", "--spec", spec, "--program", "llama-quantize"]
    running = [
        subprocess.Popen(
            [*command, "--out", str(tmp_path / name)],
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=TINY.parents[2],
        )
        for name in ("a", "b")
    ]
    said = [process.communicate(timeout=120)[1] for process in running]
    assert [process.returncode for process in running] == [0, 0], said
    assert sum("compiling llama-quantize" in text for text in said) == 1
    reports = [(tmp_path / name / "llama-quantize.json").read_text() for name in ("a", "b")]
    assert reports[0] == reports[1]


def test_a_compile_error_names_log_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path / "cache"))
    folder, _, _ = repository(tmp_path / "llama.cpp", {"quantize.cpp": "int main() { return nonsense; }\n"})
    message = refused(spec_of(folder), tmp_path / "out")
    assert "llama-quantize did not compile: " in message
    assert re.search(r"quantize\.cpp:1:\d+: error: .*nonsense", message)
    log = re.search(r"\((\S+\.log)\): read this log", message)
    assert log
    assert "nonsense" in Path(log[1]).read_text()


def test_sources_cmake_does_not_accept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path / "cache"))
    folder, _, _ = repository(tmp_path / "llama.cpp", {"CMakeLists.txt": "nonsense()\n"})
    message = refused(spec_of(folder), tmp_path / "out")
    assert "CMake does not accept the sources: CMake Error at CMakeLists.txt:1 (nonsense)" in message


def test_a_build_without_dflash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path / "cache"))
    text = (TINY / "server.cpp").read_text().replace(",draft-dflash", "")
    folder, _, newer = repository(tmp_path / "llama.cpp", {"server.cpp": text})
    message = refused(spec_of(folder), tmp_path / "out", "llama-server")
    assert f"llama-server of llama.cpp commit {newer[:12]} ({newer}) does not know draft-dflash" in message
    assert not (tmp_path / "out" / "bin").exists()


def test_no_compiler_is_told_before_anything_is_fetched(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DFLASH_CACHE", str(tmp_path / "cache"))
    value = spec_of(shared / "llama.cpp")
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    message = refused(value, tmp_path / "out")
    assert "no C compiler (cc, gcc, clang) (PATH): install g++ (Debian: apt install g++) or set CXX and CC" in message
    script(tmp_path / "cc", "echo fake 1.0")
    assert "no C++ compiler (c++, g++, clang++) (PATH): install g++" in refused(value, tmp_path / "out")
    assert not (tmp_path / "cache").exists()


def test_a_chosen_compiler_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -pipe")
    with pytest.raises(BuildError, match=r"no C\+\+ compiler: CXX is no-such-compiler, which is not there"):
        find_compiler()


def test_a_chosen_compiler_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", f"'{script(tmp_path / 'a b' / 'c++', 'echo mine 1.0; echo more')}' -pipe")
    assert find_compiler().cxx == [str(tmp_path / "a b" / "c++"), "-pipe"]
    assert find_compiler().identity.startswith("mine 1.0\n")
    script(tmp_path / "a b" / "c++", "exit 1")
    with pytest.raises(BuildError, match=r"the C\+\+ compiler does not run"):
        find_compiler()


def test_an_unfit_cpu_is_told_by_feature() -> None:
    check_cpu(FLAGS_OF_A_CPU, "x86_64")
    check_cpu("processor: 0\n", "x86_64")
    with pytest.raises(BuildError, match=r"this CPU lacks avx2, f16c \(/proc/cpuinfo\): use another machine"):
        check_cpu(FLAGS_OF_A_CPU.replace("avx2", "avx").replace("f16c", ""), "x86_64")
    with pytest.raises(BuildError, match="this CPU lacks asimddp"):
        check_cpu("Features\t: fp asimd asimdhp\n", "arm64")


@pytest.mark.parametrize(("program", "threads"), [("llama-bench", 1), ("llama-server", 0)])
def test_arguments_out_of_range(tmp_path: Path, program: str, threads: int) -> None:
    with pytest.raises(BuildError, match="unknown program 'llama-bench'" if threads else "0 threads"):
        build(parse_spec({"source": "path", "dir": str(tmp_path)}), tmp_path, program, threads)  # type: ignore[arg-type]


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TINY, tmp_path / "mine"))


def test_a_build_of_the_users_is_probed_and_linked(mine: Path, tmp_path: Path) -> None:
    binary = script(
        mine / "build" / "bin" / "llama-server", "echo ' --spec-type a,draft-dflash'; echo --spec-draft-n-max N"
    )
    report = make({"source": "path", "dir": str(mine)}, tmp_path / "out", "llama-server")
    assert (tmp_path / "out" / "bin" / "llama-server").resolve() == binary
    assert (report["compiler"], report["flags"]) == (None, None)
    assert report["binary_sha256"] == sha256_file(binary)
    assert [check["name"] for check in report["checks"]] == [
        "llama-server draft-dflash",
        "llama-server --spec-draft-n-max",
    ]


def test_a_build_folder_of_its_own(mine: Path, tmp_path: Path) -> None:
    binary = script(tmp_path / "b" / "llama-quantize", "echo '15 or Q4_K_M : x'; echo '7 or Q8_0'; echo '32 or BF16'")
    make({"source": "path", "dir": str(mine), "build": str(tmp_path / "b")}, tmp_path / "out", "llama-quantize")
    assert (tmp_path / "out" / "bin" / "llama-quantize").resolve() == binary


def test_a_missing_program_is_told_with_the_command(mine: Path, tmp_path: Path) -> None:
    message = refused({"source": "path", "dir": str(mine)}, tmp_path / "out")
    run = f"run: cmake -S {mine} -B {mine / 'build'} && cmake --build {mine / 'build'} --target llama-quantize"
    assert message == f"no llama-quantize in the build folder ({mine / 'build'}): {run}"


def test_a_server_that_is_too_old(mine: Path, tmp_path: Path) -> None:
    script(mine / "build" / "bin" / "llama-server", OLD_SERVER)
    message = refused({"source": "path", "dir": str(mine)}, tmp_path / "out", "llama-server")
    assert "llama-server of 4711 (deadbeef) does not know draft-dflash, --spec-draft-n-max" in message
    assert message.endswith("use llama.cpp with DFlash drafts (PR #22105) or newer")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("llama-quantize", "echo nothing", "lists no quantization types"),
        ("llama-quantize", "echo '15 or Q4_K_M : x'", "does not know BF16, Q8_0"),
        ("llama-server", "", "--help says nothing"),
        ("llama-server", "kill -ILL $$", "this CPU lacks instructions it was built for"),
        ("llama-server", "kill -SEGV $$", "does not run: signal 11"),
        ("llama-server", "echo cannot open libggml.so >&2; exit 127", "does not run: cannot open libggml.so"),
        ("llama-bench", "", "not a known program: llama-bench"),
    ],
)
def test_programs_that_do_not_answer(tmp_path: Path, name: str, text: str, message: str) -> None:
    binary = script(tmp_path / name, text)
    with pytest.raises(BuildError) as caught:
        probe(binary)
    assert message in str(caught.value)
    assert str(binary) in str(caught.value)


def test_a_program_that_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "llama-quantize").write_bytes(b"\x7fELF")
    with pytest.raises(BuildError, match="does not run: "):
        quant_types(tmp_path / "llama-quantize")
