"""The configuration: defaults, and one line for every way to get it wrong."""

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import config
from scripts.core import BuildError
from tests.errors_table import Said

GOOD: dict[str, Any] = yaml.safe_load((config.ROOT / "config.yaml").read_text())
PAIR = "qwopus3.5-9b-coder"


def _broken(path: str, value: Any = None) -> dict[str, Any]:
    """The project's config with one key set to a value, or removed when the value is None."""
    broken = copy.deepcopy(GOOD)
    *folders, last = path.split("/")
    node: Any = broken
    for folder in folders:
        node = node[folder]
    if value is None:
        del node[last]
    else:
        node[last] = value
    return broken


def test_the_projects_own_config_is_valid_and_filled() -> None:
    filled = config.load(config.ROOT / "config.yaml")
    assert filled["locks"] == "locks"
    assert filled["frozen"] is False
    assert filled["pairs"][PAIR]["publish"]["create_pr"] is False


def test_defaults_do_not_change_the_given_config() -> None:
    given = copy.deepcopy(GOOD)
    config.validated(given)
    assert given == GOOD


def _unserved(**changes: Any) -> dict[str, Any]:
    """The good config without a target to serve, one key of the pair changed."""
    given = _broken(f"pairs/{PAIR}/target_gguf")
    given["pairs"][PAIR] |= changes
    return given


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("no pairs", _broken("pairs"), "key pairs is missing in the top level"),
    ("a pair without a name", _broken(f"pairs/{PAIR}/name"), f"key name is missing in pairs.{PAIR}"),
    ("no expected mask token", _broken(f"pairs/{PAIR}/expect/mask_token_id"), "key mask_token_id is missing"),
    ("no expected block size", _broken(f"pairs/{PAIR}/expect/block_size"), "key block_size is missing"),
    (
        "a misspelt key",
        _broken(f"pairs/{PAIR}/qants", ["bf16"]),
        f"unknown key qants in pairs.{PAIR} .*did you mean quants",
    ),
    ("an unknown key", _broken("zzz", 1), "unknown key zzz in the top level .*use one of: pairs"),
    (
        "a repo without owner",
        _broken(f"pairs/{PAIR}/draft/repo", "no-owner"),
        "draft.repo: 'no-owner' does not match",
    ),
    ("an empty list of quants", _broken(f"pairs/{PAIR}/quants", []), "quants: .* non-empty"),
    ("a quant twice", _broken(f"pairs/{PAIR}/quants", ["bf16", "bf16"]), "non-unique"),
    ("a number in quotes", _broken(f"pairs/{PAIR}/expect/mask_token_id", "248077"), "is not of type 'integer'"),
    (
        "a served target given twice",
        _broken(f"pairs/{PAIR}/target_gguf/path", "x.gguf"),
        "target_gguf gives repo and quant and path",
    ),
    (
        "a served target without quant",
        _broken(f"pairs/{PAIR}/target_gguf/quant"),
        "target_gguf gives repo .*: give repo and quant, or",
    ),
    (
        "a pair to measure without a target",
        _unserved(bench=True),
        "bench is true and there is no target to measure with",
    ),
    ("a gate without a target", _unserved(gate=True), "gate is true and there is no target to measure with"),
    ("an empty served target", _broken(f"pairs/{PAIR}/target_gguf", {}), "target_gguf gives nothing"),
    (
        "a range of ids backwards",
        _broken(f"pairs/{PAIR}/expect/added_token_ids", [9, 3]),
        "runs from 9 to 3",
    ),
    (
        "a branch as commit",
        _broken("llama_cpp", {"source": "git", "url": "x", "commit": "main"}),
        "'main' does not match",
    ),
    ("a sha256 that is none", _broken("llama_cpp/sha256", "abc"), "llama_cpp.sha256: 'abc' does not match"),
    ("no sha256", _broken("llama_cpp/sha256"), "key sha256 is missing in llama_cpp"),
    (
        "an unknown source",
        _broken("llama_cpp/source", "svn"),
        "llama_cpp.source is 'svn' .*: use one of: pypi, git, path",
    ),
]


@pytest.mark.parametrize(("given", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_a_bad_config_is_one_line(given: dict[str, Any], message: str, said: Said) -> None:
    with pytest.raises(BuildError, match=message) as caught:
        config.validated(given, "config.yaml")
    assert "\n" not in str(caught.value)
    assert "(config.yaml)" in str(caught.value)
    said("Configuration: {id}", caught.value)


def test_two_pairs_with_one_name(said: Said) -> None:
    given = copy.deepcopy(GOOD)
    given["pairs"]["other"] = copy.deepcopy(given["pairs"][PAIR])
    with pytest.raises(BuildError, match=r"have one name, Qwopus3\.5-9B-Coder-DFlash") as caught:
        config.validated(given)
    said("Configuration: two pairs with one name", caught.value)


@pytest.mark.parametrize("text", ["pairs: [", "just text", "[]", ""])
def test_not_a_config_file_is_one_line(text: str, tmp_path: Path, said: Said) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(BuildError) as caught:
        config.load(tmp_path / "config.yaml")
    assert "\n" not in str(caught.value)
    said(f"Configuration: a file that holds {text!r}", caught.value)


def test_a_missing_config_file_is_one_line(tmp_path: Path, said: Said) -> None:
    with pytest.raises(BuildError, match="cannot read the config: No such file") as caught:
        config.load(tmp_path / "config.yaml")
    said("Configuration: a file that is not there", caught.value)


def test_every_key_has_a_description() -> None:
    assert [key for key, _, text in config.rows() if not text] == []


def test_the_table_of_keys_is_made_from_the_schema() -> None:
    assert config.DOCS.read_text() == config.document(), "run `make docs`"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (_broken(f"pairs/{PAIR}/qants", ["bf16"]), "error: unknown key qants"),
        (_broken(f"pairs/{PAIR}/quants", ["bf16", "Q4_K_N"]), "error: llama-quantize knows no quant 'Q4_K_N'"),
        (_broken(f"pairs/{PAIR}/quants", ["IQ2_XXS"]), "error: IQ2_XXS needs an importance matrix"),
        (
            _broken(f"pairs/{PAIR}/target_gguf", {"path": "none.gguf"}),
            f"error: pairs.{PAIR}.target_gguf.path: no such file (none.gguf): name",
        ),
    ],
    ids=["a misspelt key", "an unknown quant", "a quant that needs an importance matrix", "a served file not there"],
)
def test_snakemake_says_a_bad_config_in_one_line(
    given: dict[str, Any], message: str, tmp_path: Path, said: Said
) -> None:
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(given))
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "-n", "--configfile", str(tmp_path / "bad.yaml")],
        cwd=config.ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(message)
    assert "Traceback" not in done.stderr
    said("Configuration: {id}, as Snakemake says it", last)
