# Every target makes its own environment first; a second call reuses it.
.DEFAULT_GOAL := help
SHELL := /bin/bash
EDITION ?= pocket
FOLDER ?= notebooks
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TORCH := $(shell grep '^torch==' constraints.txt)
PIP := $(shell grep '^pip==' constraints.txt)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help book published lab test check format fetch bench clean

help:  ## show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile
	@echo
	@echo "  EDITION=pocket|standard|paper chooses the edition (now: $(EDITION));"
	@echo "  ATTNLIB_CACHE and ATTNLIB_MIRROR name the folders for fetched and for local data."

book: $(READY)  ## run the chapters of EDITION and build its pages
	@$(BIN)/attnlib book $(EDITION)

published: $(READY)  ## build the pages of the published edition without running anything
	@$(BIN)/attnlib published

lab: $(READY)  ## open the notebooks in a browser, to run and change them
	@test -x $(BIN)/jupyter-lab || $(BIN)/python -m pip install -qq -c constraints.txt -e './experiments[lab]'
	@$(BIN)/jupyter-lab $(if $(filter 0,$(shell id -u)),--allow-root) $(FOLDER)

test: $(READY)  ## run the tests on two processes
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -q $(ARGS)

check: $(READY)  ## lint, formatting, types, and who may import whom
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m pytest -q tests/attnlib/test_packaging.py

format: $(READY)  ## rewrite the code in the project's format
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

fetch: $(READY)  ## fetch what EDITION needs, so that it can be built without a network
	@$(BIN)/attnlib fetch $(EDITION)

bench: $(READY)  ## time attnlib beside the baselines
	@$(BIN)/attnlib bench

clean:  ## remove what was built, and keep the environment and the fetched assets
	@rm -rf _build .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	@find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +

$(READY): pyproject.toml experiments/pyproject.toml constraints.txt
	@test -n "$(PYTHON)" && "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "attnlib needs Python 3.11 or newer, found $$("$(PYTHON)" -V 2>&1 || echo none); name one with 'make PYTHON=/path/to/python3.11'." >&2; exit 1; }
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	@echo "Setting up $(VENV) (once; a few minutes) ..."
	@$(BIN)/python -m pip install --quiet $(PIP)
	@$(BIN)/python -m pip install --quiet $(TORCH)
	@$(BIN)/python -m pip install -qq -c constraints.txt -e '.[dev]' -e ./experiments
	@touch $@
