# Everything a person or CI runs. Each target can be repeated safely and sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORES ?= $(shell getconf _NPROCESSORS_ONLN)
# The environment is remade when the pins or the interpreter change.
STAMP := $(VENV)/.ready-$(shell cat envs/requirements.txt | cksum | cut -d' ' -f1)

.DEFAULT_GOAL := help
.PHONY: help setup demo full-size build test test-fast toolchain mlx-env lint format docs clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make the virtual environment from the exact pins

$(STAMP): envs/requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: $$($(PYTHON) --version) is too old (PYTHON=$(PYTHON)): set PYTHON to Python 3.11 or newer"; exit 1; }
	@rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -r envs/requirements.txt
	@touch $@

demo: setup ## build and publish the embedded pair against a local Hub
	@$(BIN)/python -m demo.run --cores $(CORES)

full-size: setup ## build a draft of the real 9B size against a local Hub: speed, memory, bytes
	@$(BIN)/python -m demo.full_size --cores $(CORES)

build: setup ## build every pair of config.yaml from Hugging Face
	@$(BIN)/snakemake --cores $(CORES)

test: lint toolchain mlx-env ## lint, then every test
	@$(BIN)/python -m pytest

# Compiled before the tests, where its progress can be seen; what the cache has is not compiled again.
toolchain: setup ## compile the pinned llama.cpp, server included
	@$(BIN)/python -m scripts.toolchain source --config config.yaml --out results/toolchain/tests
	@$(BIN)/python -m scripts.toolchain build --config config.yaml --out results/toolchain/tests --program llama-quantize
	@$(BIN)/python -m scripts.toolchain build --config config.yaml --out results/toolchain/tests --program llama-server

# dflash-mlx decides what it needs, so it has an environment of its own; on Linux it runs on MLX's CPU backend.
mlx-env: setup ## make the MLX environment from the exact pins of envs/mlx.txt
	@$(BIN)/python -m scripts.mlx_env

test-fast: setup ## the tests that take under a minute
	@$(BIN)/python -m pytest -m "not slow"

lint: setup ## ruff, snakefmt, snakemake --lint and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint
	$(BIN)/mypy

format: setup ## let the formatters rewrite the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile workflow

docs: setup ## remake what is generated: tables of config and errors, conda environment, flow
	$(BIN)/python -m scripts.config --write-docs
	$(BIN)/python -m scripts.envs
	$(BIN)/python -m scripts.flow
	$(BIN)/python -m pytest -q --no-header -m "not slow" --write-errors

clean: ## remove outputs, logs and environments, never locks or the caches outside this folder
	rm -rf results logs benchmarks .snakemake $(VENV) .venv-mlx .pytest_cache .mypy_cache .ruff_cache .hypothesis
