"""The real thing: the pinned sdist from the package index, compiled (or taken from the user's own cache)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from scripts.toolchain import build, cache_root, fetch_source, parse_spec

PINNED = {
    "source": "pypi",
    "package": "llama-cpp-python",
    "version": "0.3.36",
    "sha256": "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_pinned_llama_cpp(tmp_path: Path) -> None:
    spec = parse_spec(PINNED)
    source = fetch_source(spec, tmp_path)
    assert source.figures["commit"] == "0c1e57098"
    assert (tmp_path / "llama.cpp" / "gguf-py" / "gguf" / "constants.py").is_file()
    quantize, server = (build(spec, tmp_path, program, 2) for program in ("llama-quantize", "llama-server"))
    assert {"BF16", "Q8_0", "Q4_K_M", "Q6_K"} <= set(quantize.figures["quant_types"])
    assert [check.name for check in server.checks] == ["llama-server draft-dflash", "llama-server --spec-draft-n-max"]
    for report in (source, quantize, server):
        assert report.ok
        assert not re.search(r'["= ]/\w', json.dumps(report.as_dict()))
    for program in ("llama-quantize", "llama-server"):
        content = (tmp_path / "bin" / program).read_bytes()
        assert str(cache_root()).encode() not in content
        assert b"llama.cpp/src/" in content  # the names of source files are there, without this machine's folders
