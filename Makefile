# Vernier: every target sets up what it needs. `make` alone lists them.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help install demo test quick lint bench docs wheel figures clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 18

install: $(READY)  ## make the environment in .venv; then `source .venv/bin/activate`, or use .venv/bin/vernier

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Vernier needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

demo: $(READY)  ## train on the built-in data set, evaluate, write a report
	@mkdir -p runs
	$(BIN)/vernier train --out runs --resume never
	@run=$$(ls -td runs/*-shapes-quick | grep -v -- -smoke- | head -n 1) && echo "" && echo "vernier eval $$run" && $(BIN)/vernier eval $$run \
	  && echo "" && echo "vernier report $$run" && $(BIN)/vernier report $$run -o $$run/report.html && echo "Open $$run/report.html in a browser."

test: $(READY)  ## lint, type-check and run every test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2

quick: $(READY)  ## lint, type-check and run the fast tests only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 -m "not slow"

lint: $(READY)  ## ruff and mypy alone
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)  ## the benchmarks in benchmarks/, side by side with what one would write instead
	$(BIN)/python benchmarks/loop_overhead.py
	$(BIN)/python benchmarks/loader.py

docs: $(READY)  ## the documentation as a site in site/; a link that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

wheel: $(READY)  ## build the wheel in dist/ and use it in an empty environment
	PYTHON=$(PYTHON) .ci/try-wheel

figures: $(READY)  ## size of the source: modules per folder, tokens, longest function
	$(BIN)/python -m tests.house_figures

clean:  ## remove the environment and caches (never runs/)
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist src/*.egg-info
