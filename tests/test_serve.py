"""Serving by the command line: what is printed, what is looked for before the start, and the embedded pair for real."""

import copy
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import config, llama_server, serve, serve_command
from scripts.core import BuildError
from scripts.memory_log import checkpoints, measured
from scripts.memory_model import checkpoint
from scripts.serve_settings import settings
from scripts.toolchain_probe import check_flags
from scripts.verify_gguf import open_gguf
from tests import fake_server, memory_samples
from tests.chain import KEY, OPTIONS, Chain
from tests.chain import copy as copy_of_the_project
from tests.errors_table import Said

RAW: dict[str, Any] = yaml.safe_load((config.ROOT / "demo" / "config.yaml").read_text())
DRAFT = "TinyQwen3.5-Coder-DFlash"


@pytest.fixture(name="work")
def folder_with_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with headers of a target and drafts where the pair's own would lie."""
    results = tmp_path / "results" / KEY
    for part in ("gguf", "source/target_gguf"):
        (results / part).mkdir(parents=True)
    memory_samples.target(results / "source" / "target_gguf" / "Target-Q8_0.gguf")
    memory_samples.draft(results / "gguf" / f"{DRAFT}-Q4_K_M.gguf")
    monkeypatch.chdir(tmp_path)
    fake_server.server(tmp_path / "bin" / "llama-server")
    write(tmp_path)
    return tmp_path


def write(folder: Path, **keys: Any) -> None:
    """The config, with serve keys of its own."""
    raw = copy.deepcopy(RAW)
    raw["pairs"][KEY]["serve"] = keys
    (folder / "config.yaml").write_text(yaml.safe_dump(raw))


def run(*arguments: str) -> int:
    return serve.main([KEY, "--server", "bin/llama-server", *arguments])


LOGGED = ["--no-repack", "--no-warmup", "-fit", "off", "-v"]
"""To log what is allocated, and to load each model once; weights may else be held again, arranged for this CPU."""

LOCAL = (
    f"bin/llama-server -m results/{KEY}/source/target_gguf/Target-Q8_0.gguf -md results/{KEY}/gguf/{DRAFT}-Q4_K_M.gguf "
    "--spec-type draft-dflash --spec-draft-n-max 15 --no-mmproj -fa on --jinja -ctxcp 2 -fitt 256 -c 4096 "
    "-ctk f16 -ctv f16 -ctkd f16 -ctvd f16 --host 127.0.0.1 --port 8080"
)


def test_the_command_is_printed_and_nothing_else(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--print") == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == (f"{LOCAL}\n", "")
    assert run("--print", "--", "--alias", "my model", "-np", "1") == 0
    assert capsys.readouterr().out == f"{LOCAL} --alias 'my model' -np 1\n"


def test_what_was_tuned_is_used(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "results" / KEY / "serve.yaml").write_text("{for: code-edit, n_max: 6, kv_type: q8_0}")
    assert run("--print") == 0
    tuned = LOCAL.replace("n-max 15", "n-max 6").replace("-ctk f16 -ctv f16", "-ctk q8_0 -ctv q8_0")
    assert capsys.readouterr().out == f"{tuned}\n"


def test_repositories_and_modes(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(work, source="hub", modes={"Q4": {"quant": "Q4_K_M"}}, gpu_layers=99, threads=2, parallel=1, n_max=4)
    assert run("--mode", "Q4", "--print") == 0
    words = shlex.split(capsys.readouterr().out)
    repos = ["-hf", "tiny-coder/TinyQwen3.5-Coder-GGUF:Q4_K_M", "-hfd", f"demo-org/{DRAFT}-GGUF:Q4_K_M"]
    assert words[1:5] == repos
    assert words[-12:-4] == ["-ngl", "99", "-ngld", "99", "-t", "2", "-np", "1"]


@pytest.mark.parametrize("flag", fake_server.FLAGS)
def test_every_flag_is_looked_for(flag: str, work: Path, capsys: pytest.CaptureFixture[str], said: Said) -> None:
    source = "hub" if flag in ("-hf", "-hfd") else "local"
    write(work, source=source, gpu_layers=1, threads=1, parallel=1)
    fake_server.server(work / "bin" / "llama-server", without=[flag])
    assert run("--print") == 1
    error = capsys.readouterr().err.strip()
    assert error == (
        f"error: llama-server of 4711 (abcdef123) does not know {flag} (bin/llama-server): "
        "use llama.cpp with DFlash drafts (PR #22105) or newer"
    )
    if flag == "--spec-draft-n-max":
        said("Serving: a llama-server that is too old", error)


def test_a_flag_in_the_text_of_another_does_not_count(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (work / "bin" / "llama-server").read_text().replace("-fitt,  --other", "-fit, --other")
    (work / "bin" / "llama-server").write_text(text.replace("what it does", "what it does, see -fitt", 1))
    assert run("--print") == 1
    assert "does not know -fitt (" in capsys.readouterr().err


def test_a_server_without_dflash(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake_server.server(work / "bin" / "llama-server", spec="none,draft-simple")
    assert run("--print") == 1
    assert "of 4711 (abcdef123) does not know --spec-type draft-dflash (" in capsys.readouterr().err


def test_what_is_missing_is_named_before_the_start(work: Path, capsys: pytest.CaptureFixture[str], said: Said) -> None:
    def error(title: str, *arguments: str) -> str:
        assert run(*arguments) == 1
        line = capsys.readouterr().err.strip().splitlines()[-1]
        said(f"Serving: {title}", line)
        return line

    assert serve.main(["other"]) == 1
    assert f"no pair other (config.yaml): use one of: {KEY}" in capsys.readouterr().err
    assert serve.main([KEY]) == 1
    assert "llama-server is not there (results/toolchain/" in capsys.readouterr().err
    draft = work / "results" / KEY / "gguf" / f"{DRAFT}-Q4_K_M.gguf"
    whole = draft.read_bytes()[:100_000]
    draft.write_bytes(whole[:1000])
    assert "cut short" in error("a draft that is cut short")
    draft.unlink()
    assert "the draft is not there" in error("a draft that is not built yet")
    write(work, source="hub")
    raw = yaml.safe_load((work / "config.yaml").read_text())
    del raw["pairs"][KEY]["publish"]
    (work / "config.yaml").write_text(yaml.safe_dump(raw))
    assert "publish.repo): name the repository" in error("a draft on the Hub without a repository")


def test_the_server_takes_the_place_of_the_step(work: Path) -> None:
    """The stand-in prints its environment: no secret gets there, the Hub's token only where it downloads."""
    shown = (work / "bin" / "llama-server").read_text().replace("esac", "-m|-hf) env; echo pid $$ ;;\nesac")
    (work / "bin" / "llama-server").write_text(shown)
    secrets = {"HF_TOKEN": "hf_secret", "OTHER_API_KEY": "other_secret"}
    for source, token in (("local", False), ("hub", True)):
        write(work, source=source)
        command = [sys.executable, "-m", "scripts.serve", KEY, "--server", "bin/llama-server", "--no-plan"]
        environment = os.environ | secrets | {"PYTHONPATH": str(config.ROOT)}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as started:
            said = started.communicate(timeout=60)[0]
        assert started.returncode == 0
        assert ("hf_secret" in said) is token
        assert "other_secret" not in said
        assert f"pid {started.pid}\n" in said


def test_the_plan_follows_what_is_given_to_the_server(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = config.load(work / "config.yaml")["pairs"][KEY]
    binary = Path("bin/llama-server")
    start = serve.prepare(
        entry, Path("results", KEY), binary, None, "config.yaml", ["-np", "1", "-c", "8192", "-ub", "0"]
    )
    made = serve.plan(start, binary)
    assert (made.sizes.parallel, made.sizes.context, made.sizes.ubatch, made.sizes.n_max) == (1, 8192, 512, 15)
    assert (made.pool.gpu, made.margin) == (False, 0)


@pytest.fixture(scope="module", name="binary")
def server_binary(toolchain: Path) -> Path:
    return toolchain / "bin" / "llama-server"


@pytest.mark.slow
@pytest.mark.parametrize(("context", "kv_type"), [(2048, "f16"), (4096, "q8_0")])
def test_the_plan_is_what_the_embedded_pair_takes(
    context: int, kv_type: str, chain: Chain, pair_repos: Path, binary: Path, tmp_path: Path
) -> None:
    target, log = pair_repos / "finetune-gguf" / "TinyQwen3.5-Coder-Q8_0.gguf", tmp_path / "server.log"
    raw = copy.deepcopy(RAW)
    keys = {"context": context, "kv_type": kv_type, "draft_kv_type": kv_type, "draft_quant": "bf16", "threads": 1}
    raw["pairs"][KEY] |= {"serve": keys, "target_gguf": {"path": str(target)}}
    entry = config.validated(raw)["pairs"][KEY]
    start = serve.prepare(entry, chain.results, binary, None, "config", LOGGED)
    command = start.command.copy()
    del command[command.index("--host") : command.index("--port") + 2]
    with llama_server.running(command, log) as client:
        assert client.complete("type A struct {\n\tName string\n", 4).draft_n
    made = serve.plan(start, binary)
    seen = measured(log.read_text(errors="replace"))
    planned: dict[tuple[str, str], float]
    planned = {(item.model, item.what): item.bytes for item in made.items if (item.model, item.what) in seen}
    for name, size in planned.items():
        print(f"{context} {kv_type} {name}: planned {size / 2**20:.2f} MiB, allocated {seen[name] / 2**20:.2f} MiB")
    assert len(planned) == len(seen) == 7
    assert planned == {name: pytest.approx(size, rel=0.1) for name, size in seen.items()}
    assert sum(planned.values()) == pytest.approx(sum(seen.values()), rel=0.1)
    stored = checkpoints(log.read_text(errors="replace"))
    assert stored
    for tokens, size in stored:
        assert checkpoint(made.target, made.draft, made.sizes, tokens) == pytest.approx(size, rel=0.1)


@pytest.mark.slow
def test_the_embedded_pair_is_served(chain: Chain, pair_repos: Path, binary: Path, tmp_path: Path) -> None:
    port = llama_server.free_port()
    raw = copy.deepcopy(RAW)
    target = pair_repos / "finetune-gguf" / "TinyQwen3.5-Coder-Q8_0.gguf"
    raw["pairs"][KEY] |= {"target_gguf": {"path": str(target)}, "serve": {"port": port, "threads": 1, "parallel": 1}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(raw))
    command = [sys.executable, "-m", "scripts.serve", KEY, "--configfile", str(tmp_path / "config.yaml")]
    command += ["--server", str(binary)]  # the chain builds no server
    log = tmp_path / "served.log"
    with (
        log.open("w") as stream,
        subprocess.Popen(command, cwd=chain.folder, stdout=stream, stderr=subprocess.STDOUT) as started,
        llama_server.Client(f"http://127.0.0.1:{port}", 60) as client,
    ):
        try:
            until = time.monotonic() + 120
            while True:
                try:
                    client.call("GET", "/health")
                    break
                except BuildError:
                    assert started.poll() is None, log.read_text()
                    assert time.monotonic() < until, log.read_text()
                    time.sleep(0.1)
            answer = client.complete("type A struct {\n\tName string\n", 24)
            assert answer.predicted_n > 0
            assert answer.draft_n is not None
            assert answer.draft_n > 0
            started.send_signal(signal.SIGTERM)
            assert started.wait(30) == 0
        finally:
            started.kill()
    said = log.read_text()
    assert "| recurrent state" in said
    assert said.index("| recurrent state") < said.index("loading model")


@pytest.mark.slow
def test_the_real_server_knows_every_flag(binary: Path) -> None:
    check_flags(binary, fake_server.FLAGS)
    with pytest.raises(BuildError, match=r"llama-server of \S+ \(.*commit \w+\) does not know --none-such, -q9"):
        check_flags(binary, ["--none-such", "-m", "-q9"])


@pytest.mark.slow
def test_the_plan_of_the_9b_is_what_llama_server_allocates(
    chain: Chain, pair_repos: Path, binary: Path, tmp_path: Path
) -> None:
    """Files of the real shapes with holes for data, loaded and not run: the target's buffer grows with a request."""
    tokenizers = [
        {key: value for key, value in open_gguf(path).values.items() if key.startswith("tokenizer.ggml.")}
        for path in (
            pair_repos / "finetune-gguf" / "TinyQwen3.5-Coder-Q8_0.gguf",
            chain.results / "gguf" / f"{DRAFT}-bf16.gguf",
        )
    ]
    target = memory_samples.target(tmp_path / "target.gguf", tokenizer=tokenizers[0])
    draft = memory_samples.draft(tmp_path / "draft.gguf", tokenizer=tokenizers[1])
    entry = config.validated(copy.deepcopy(RAW))["pairs"][KEY]
    entry["serve"] |= {"kv_type": "q8_0", "draft_kv_type": "q8_0", "parallel": 1, "threads": 1}
    chosen = settings(entry, {}, "config")
    command = [*serve_command.command(chosen, target, draft, binary), *LOGGED]
    with llama_server.running(command, tmp_path / "server.log"):
        pass
    made = serve.plan(serve.Start(command, chosen, target, draft), binary)
    seen = dict(measured((tmp_path / "server.log").read_text(errors="replace")))
    del seen["target", "compute buffer"]
    planned: dict[tuple[str, str], float]
    planned = {(item.model, item.what): item.bytes for item in made.items if (item.model, item.what) in seen}
    for name, size in planned.items():
        print(f"9B {name}: planned {size / 2**20:.2f} MiB, allocated {seen[name] / 2**20:.2f} MiB")
    assert len(planned) == len(seen) == 6
    assert planned == {name: pytest.approx(size, rel=0.1) for name, size in seen.items()}
    target.unlink()
    draft.unlink()


@pytest.mark.slow
def test_what_snakemake_serves(tmp_path: Path) -> None:
    folder = copy_of_the_project(tmp_path / "copy")
    raw = copy.deepcopy(RAW)
    raw["pairs"][KEY]["target_gguf"] = {"path": "target.gguf"}
    memory_samples.target(folder / "target.gguf")
    (folder / "one.yaml").write_text(yaml.safe_dump(raw))
    raw["pairs"]["other"] = raw["pairs"][KEY] | {"name": "Other"}
    (folder / "two.yaml").write_text(yaml.safe_dump(raw))

    def planned(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "snakemake", "-n", "serve", "--configfile", *arguments, *OPTIONS]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)

    one = planned("one.yaml")
    assert one.returncode == 0, one.stderr
    assert {"serve", "quantize", "toolchain_build"} <= set(one.stdout.split())
    two = planned("two.yaml")
    assert two.returncode == 1
    assert two.stderr.splitlines()[-1].startswith("error: the config has 2 pairs (serve_pair in the config): name one")
