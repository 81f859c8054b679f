# Vernier: every target sets up what it needs. `make` alone lists them.

VENV   := .venv
BIN    := $(VENV)/bin

# SYSTEM_TORCH=1 keeps the PyTorch of $(PYTHON), as in vendors' containers; later calls remember it until SYSTEM_TORCH=0.
SYSTEM_TORCH ?= $(if $(wildcard $(VENV)/.ready-system-torch),1,0)
ifeq ($(filter 0 1,$(SYSTEM_TORCH)),)
$(error SYSTEM_TORCH is 1 or 0, not "$(SYSTEM_TORCH)")
endif
ifeq ($(SYSTEM_TORCH),1)
PYTHON      ?= $(shell command -v python3)
READY       := $(VENV)/.ready-system-torch
MAKE_VENV    = $(PYTHON) containers/system_torch.py $(VENV)
CONSTRAINTS := $(VENV)/constraints.txt
MYPY        := @echo "mypy left out: types are checked with the PyTorch of constraints.txt"
else
PYTHON      ?= $(shell command -v python3.11 || command -v python3)
READY       := $(VENV)/.ready
MAKE_VENV    = $(PYTHON) -m venv --clear $(VENV)
CONSTRAINTS := constraints.txt
MYPY        := $(BIN)/python -m mypy
endif

.DEFAULT_GOAL := help
.PHONY: help install demo test test-device quick lint bench docs wheel figures containers test-torch clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 18

install: $(READY)  ## make the environment in .venv; then `source .venv/bin/activate`, or use .venv/bin/vernier

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Vernier needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	$(MAKE_VENV)
	env -u PIP_CONSTRAINT $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS) --editable '.[dev]'
	@$(BIN)/python -c 'import torch; torch.ones(1).numpy()' || \
	  (echo "This PyTorch was built for another NumPy than the tests need: install without them, as containers/Dockerfile.ngc does." && exit 1)
	@touch $(READY)

demo: $(READY)  ## train on the built-in data set, evaluate, write a report
	@mkdir -p runs
	$(BIN)/vernier train --out runs --resume never
	@run=$$(ls -td runs/*-shapes-quick | grep -v -- -smoke- | head -n 1) && echo "" && echo "vernier eval $$run" && $(BIN)/vernier eval $$run \
	  && echo "" && echo "vernier report $$run" && $(BIN)/vernier report $$run -o $$run/report.html && echo "Open $$run/report.html in a browser."

test: $(READY)  ## lint, type-check and run every test
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(MYPY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal

test-device: $(READY)  ## the whole product on a device of this machine, with a report to send back: make test-device DEVICE=cuda
	@$(BIN)/python -m tests.device_suite "$(DEVICE)"

quick: $(READY)  ## lint, type-check and run the fast tests only
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(MYPY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m "not slow"

lint: $(READY)  ## ruff and mypy alone
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(MYPY)

bench: $(READY)  ## the benchmarks in benchmarks/, side by side with what one would write instead
	$(BIN)/python benchmarks/loop_overhead.py
	$(BIN)/python benchmarks/loader.py

docs: $(READY)  ## the documentation as a site in site/; a link that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

wheel: $(READY)  ## build the wheel in dist/ and use it in an empty environment
	PYTHON=$(PYTHON) .ci/try-wheel

test-torch:  ## the fast tests and the main commands with another PyTorch, in its own environment: make test-torch TORCH=2.9.1
	PYTHON=$(PYTHON) .ci/try-torch $(TORCH)

containers: $(READY)  ## build and run the recipes of containers/ on stand-ins for their base images (Debian, root, buildah)
	$(BIN)/python .ci/try_containers.py $(CONTAINERS)

figures: $(READY)  ## size of the source: modules per folder, tokens, longest function
	$(BIN)/python -m tests.house_figures

clean:  ## remove the environment and caches (never runs/)
	rm -rf $(VENV) .venv-torch site .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist src/*.egg-info tests/rgpu_plugin/build tests/rgpu_plugin/*.egg-info
