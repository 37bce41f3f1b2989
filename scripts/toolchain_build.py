"""Compile one program of a pinned llama.cpp: only its target, with fixed flags, cached and locked."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from scripts import process
from scripts.core import (
    BuildError,
    Progress,
    Report,
    atomic,
    disk_full,
    read_json,
    say,
    sha256_file,
    write_json,
    writing,
)
from scripts.toolchain_cache import cache_root, locked, point
from scripts.toolchain_probe import probe, quant_types
from scripts.toolchain_source import Source, ensure_source, spec_label
from scripts.toolchain_spec import (
    PROGRAMS,
    GitSpec,
    PathSpec,
    Program,
    PypiSpec,
    Spec,
    architecture,
    build_flags,
    describe,
    digest,
    source_key,
    toolchain_id,
)

_NEEDED = {
    "x86_64": ("avx2", "fma", "f16c", "bmi2"),
    "arm64": ("asimddp", "asimdhp"),
}
"""CPU features of the fixed flags, as /proc/cpuinfo names them."""

_STEP = re.compile(r"^\[(\d+)/(\d+)\]")


@dataclass(frozen=True)
class Compiler:
    """The C and C++ compiler a build uses, as argument lists, and what they say they are."""

    c: list[str]
    cxx: list[str]
    identity: str


@dataclass(frozen=True)
class _Tools:
    """All a build needs of this machine."""

    compiler: Compiler
    cmake: str
    ninja: str


def build(spec: Spec, out: Path, program: Program, threads: int) -> Report:
    """Compile ``program`` unless the cache has it, link it as ``out/bin/<program>``; writes ``out/<program>.json``.

    ``threads`` is the number of files compiled at a time (each may take 1 to 2 GB of memory). A ``path`` source is
    not compiled: its build folder must hold the program. Figures: id, source, version, commit and what pins the
    source, architecture, compiler, flags, program, binary_sha256, binary_bytes, and quant_types of llama-quantize.

    Raises:
        BuildError: no compiler, an unfit CPU, sources or programs that lack DFlash, a compile error.
    """
    if program not in PROGRAMS:
        raise BuildError(f"unknown program {program!r}", "--program", f"use one of {', '.join(PROGRAMS)}")
    if threads < 1:
        raise BuildError(f"{threads} threads", "--threads", "use at least 1")
    if isinstance(spec, PathSpec):
        source, binary = ensure_source(spec), _built_already(spec, program)
        how: dict[str, Any] = {"compiler": None, "flags": None}
        recorded = sha256_file(binary)
    else:
        tools = _tools()  # all that may be missing is said before anything is downloaded
        source = ensure_source(spec)
        binary, recorded = _compiled(spec, source, program, tools, threads)
        how = {"compiler": tools.compiler.identity.splitlines()[0], "flags": _flags(source)}
    report = Report(figures={"id": toolchain_id(spec), **source.figures, "program": program})
    report.checks += probe(binary, None if isinstance(spec, PathSpec) else f"{describe(spec)} ({source.commit})")
    report.figures |= {"architecture": architecture(), **how}
    report.figures |= {"binary_sha256": recorded, "binary_bytes": binary.stat().st_size}
    if program == "llama-quantize":
        report.figures["quant_types"] = quant_types(binary)
    point(out / "bin" / program, binary)
    report.write(out / f"{program}.json")
    return report


def _built_already(spec: PathSpec, program: Program) -> Path:
    for candidate in (spec.build / "bin" / program, spec.build / program):
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    command = f"cmake -S {spec.dir} -B {spec.build} && cmake --build {spec.build} --target {program}"
    raise BuildError(f"no {program} in the build folder", spec.build, f"run: {command}")


def find_compiler() -> Compiler:
    """The compilers of ``$CC`` and ``$CXX``, else the first of the usual names on PATH.

    Raises:
        BuildError: there is none, or it does not run.
    """
    c = _command("CC", ("cc", "gcc", "clang"), "C")
    cxx = _command("CXX", ("c++", "g++", "clang++"), "C++")
    return Compiler(c, cxx, f"{_first_line(cxx, 'C++')}\n{_first_line(c, 'C')}")


def _command(variable: str, names: Sequence[str], language: str) -> list[str]:
    do = "install g++ (Debian: apt install g++) or set CXX and CC"
    if chosen := shlex.split(os.environ.get(variable, "")):
        path = shutil.which(chosen[0])
        if not path:
            raise BuildError(f"no {language} compiler: {variable} is {chosen[0]}, which is not there", variable, do)
        return [path, *chosen[1:]]
    for name in names:
        if path := shutil.which(name):
            return [path]
    raise BuildError(f"no {language} compiler ({', '.join(names)})", "PATH", do)


def _first_line(command: Sequence[str], language: str) -> str:
    answer = subprocess.run([*command, "--version"], capture_output=True, text=True, errors="replace", check=False)
    if answer.returncode or not answer.stdout.strip():
        raise BuildError(f"the {language} compiler does not run", command[0], "install g++ or set CXX and CC")
    return answer.stdout.splitlines()[0].strip()


def check_cpu(cpuinfo: str, machine: str) -> None:
    """Check the text of ``/proc/cpuinfo`` for what the fixed flags need; a text that lists no features passes.

    Raises:
        BuildError: the CPU lacks some, which it would notice only when a compiled program crashes.
    """
    found = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", cpuinfo, flags=re.MULTILINE)
    lacking = [name for name in _NEEDED.get(machine, ()) if found and name not in found[1].split()]
    if lacking:
        do = "use another machine, or your own build with source: path"
        raise BuildError(f"this CPU lacks {', '.join(lacking)}", "/proc/cpuinfo", do)


def _tools() -> _Tools:
    compiler = find_compiler()
    cpuinfo = Path("/proc/cpuinfo")  # not everywhere; elsewhere the probe notices a program that cannot run
    if cpuinfo.is_file():
        check_cpu(cpuinfo.read_text(encoding="utf-8", errors="replace"), architecture())
    return _Tools(compiler, _tool("cmake"), _tool("ninja"))


def _tool(name: str) -> str:
    """A program beside this Python (where the PyPI packages put it), else on PATH."""
    beside = str(Path(sys.executable).parent)
    path = shutil.which(name, path=beside) or shutil.which(name)
    if not path:
        raise BuildError(f"{name} is not installed", "PATH", f"run: {Path(sys.executable).name} -m pip install {name}")
    return path


def _flags(source: Source) -> list[str]:
    """The CMake arguments as a report shows them: with the commit, without folders of this machine."""
    return [flag.replace("<commit>", (source.commit or "")[:9]) for flag in build_flags()]


def _compiled(
    spec: PypiSpec | GitSpec, source: Source, program: Program, tools: _Tools, threads: int
) -> tuple[Path, str]:
    """The program in the cache and its sha256; compiled when it is not there or not what was recorded."""
    # LDFLAGS are CMake's to use; compilers of conda cannot do without theirs
    parts = [source_key(spec), build_flags(), tools.compiler.identity, architecture(), os.environ.get("LDFLAGS")]
    folder = cache_root() / "builds" / f"{spec_label(spec)}-{digest(parts)[:16]}"
    binary = folder / "bin" / program
    if known := _intact(binary):
        return binary, known
    with locked(folder / ".lock", f"{program} of {describe(spec)}"), writing(folder):
        if known := _intact(binary):  # another process may have built it meanwhile
            return binary, known
        made = folder / "build" / "bin" / program
        made.unlink(missing_ok=True)  # so that a damaged one is linked again
        with (folder / f"{program}.log").open("w", encoding="utf-8") as log:
            started = time.monotonic()
            _configure(folder, source, tools, log)
            _ninja(folder, program, tools, threads, log)
            log.write(f"done in {time.monotonic() - started:.0f} s\n")
        if not made.is_file():
            raise BuildError(f"compiling made no bin/{program}", log.name, "pin another version of llama.cpp")
        with atomic(binary) as temporary:
            shutil.copyfile(made, temporary)
        binary.chmod(0o755)
        known = sha256_file(binary)
        write_json(_record(binary), {"sha256": known})
        say(f"{program} of {describe(spec)} is built")
    return binary, known


def _record(binary: Path) -> Path:
    return binary.with_name(f"{binary.name}.json")


def _intact(binary: Path) -> str | None:
    """The sha256 of a cached program that is what its record says; None for any other."""
    if not (binary.is_file() and _record(binary).is_file() and os.access(binary, os.X_OK)):
        return None
    found = sha256_file(binary)
    if found != read_json(_record(binary))["sha256"]:
        say(f"the cached {binary.name} was changed: building it again")
        return None
    return found


def _configure(folder: Path, source: Source, tools: _Tools, log: IO[str]) -> None:
    """Run CMake, unless the build folder was configured in just this way: its objects are then used again."""
    build_folder, stamp = folder / "build", folder / "configured.json"
    folders = {"<source>": source.tree, "<build>": build_folder}
    arguments = [_filled(flag, folders) for flag in _flags(source)]
    arguments += [f"-DCMAKE_MAKE_PROGRAM={tools.ninja}", "-S", str(source.tree), "-B", str(build_folder)]
    command = [tools.cmake, "-G", "Ninja", *arguments]
    compilers = {"CC": shlex.join(tools.compiler.c), "CXX": shlex.join(tools.compiler.cxx)}
    wanted = {"command": command, **compilers}
    if stamp.is_file() and read_json(stamp) == wanted and (build_folder / "build.ninja").is_file():
        return
    stamp.unlink(missing_ok=True)
    shutil.rmtree(build_folder, ignore_errors=True)
    say("configuring llama.cpp")
    log.write(f"{shlex.join(command)}\n")
    _logged(command, log, "CMake does not accept the sources", env=process.environment({**compilers, "LC_ALL": "C"}))
    write_json(stamp, wanted)


def _filled(flag: str, folders: dict[str, Path]) -> str:
    """A flag with real folders; those within compiler flags are quoted, as a shell will split them."""
    name, _, value = flag.partition("=")
    words = value.split(" ")
    for placeholder, folder in folders.items():
        words = [word.replace(placeholder, str(folder)) for word in words]
    return f"{name}={' '.join(shlex.quote(word) for word in words)}" if "FLAGS" in name else flag


def _ninja(folder: Path, program: Program, tools: _Tools, threads: int, log: IO[str]) -> None:
    command = [tools.ninja, "-C", str(folder / "build"), "-j", str(threads), program]
    environment = process.environment({"NINJA_STATUS": "[%f/%t] ", "LC_ALL": "C"})
    say(f"compiling {program} with {threads} threads: once, and some files take a minute")
    with Progress(f"compiling {program}", 0, "files") as progress:
        _logged(command, log, f"{program} did not compile", env=environment, progress=progress)


def _logged(
    command: list[str], log: IO[str], failure: str, env: dict[str, str], progress: Progress | None = None
) -> None:
    """Run a command with its output in the log; a failure is told by its first error line."""
    errors: list[str] = []

    def on_line(line: str) -> None:
        if (step := _STEP.match(line)) and progress is not None:
            progress.total = int(step[2])
            progress.set(int(step[1]))
        elif re.search(r"\berror\b:?", line, flags=re.IGNORECASE) and not step:
            errors.append(line)

    code, _ = process.stream(command, on_line, log=log, env=env)
    if code and process.out_of_space(errors, Path(log.name)):
        raise disk_full(Path(log.name).parent)
    if code:
        first = next((line for line in errors if re.search(r"\berror:", line)), (errors or ["see the log"])[0])
        do = "read this log; if memory ran out, use fewer --threads"
        raise BuildError(f"{failure}: {first}", log.name, do)
