"""The environment: exactly pinned, and the same with and without conda; the demo pins what the project pins."""

import re

import pytest
import yaml

from scripts import config, envs, flow


def test_every_package_is_pinned_exactly() -> None:
    loose = [pin for pin in envs.pins() if not re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.!-]+", pin)]
    assert loose == []
    assert len(envs.pins()) > 50


def test_the_conda_environment_has_the_same_pins() -> None:
    assert envs.CONDA.read_text() == envs.conda(), "run `make docs`"
    dependencies = yaml.safe_load(envs.CONDA.read_text())["dependencies"]
    (pip,) = (entry["pip"] for entry in dependencies if isinstance(entry, dict))
    assert pip == envs.pins()


def test_the_environment_that_runs_has_the_pinned_versions() -> None:
    from importlib.metadata import version

    wrong = {pin: version(pin.split("==")[0]) for pin in envs.pins()}
    assert [pin for pin, found in wrong.items() if found.split("+")[0] != pin.split("==")[1]] == []


@pytest.mark.parametrize("name", ["demo/config.yaml", "demo/full-size.yaml"])
def test_the_demo_pins_the_same_llama_cpp(name: str) -> None:
    ours, demo = (config.load(config.ROOT / path)["llama_cpp"] for path in ("config.yaml", name))
    assert ours == demo


def test_the_picture_shows_the_rules_as_they_are() -> None:
    assert flow.DOT.read_text() == flow.rule_graph(), "run `make docs`"
    assert all(f">{name}<" in flow.SVG.read_text() for name in re.findall(r'^ {4}"(\w+)";', flow.DOT.read_text(), re.M))
