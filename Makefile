# Vernier: every target sets up what it needs. `make` alone lists them.

VENV   := .venv
BIN    := $(VENV)/bin

# SYSTEM_TORCH=1 keeps the PyTorch of $(PYTHON), as in vendors' containers; later calls remember it until SYSTEM_TORCH=0.
SYSTEM_TORCH ?= $(if $(wildcard $(VENV)/.made-system-torch),1,0)
ifeq ($(filter 0 1,$(SYSTEM_TORCH)),)
$(error SYSTEM_TORCH is 1 or 0, not "$(SYSTEM_TORCH)")
endif
ifeq ($(SYSTEM_TORCH),1)
PYTHON      ?= $(shell command -v python3)
SUFFIX      := -system-torch
MAKE_VENV    = $(PYTHON) containers/system_torch.py $(VENV)
CONSTRAINTS := $(VENV)/constraints.txt
MYPY        := @echo "mypy left out: types are checked with the PyTorch of constraints.txt"
else
PYTHON      ?= $(shell command -v python3.11 || command -v python3)
SUFFIX      :=
MAKE_VENV    = $(PYTHON) -m venv --clear $(VENV)
CONSTRAINTS := constraints.txt
MYPY        := $(BIN)/python -m mypy
endif
MADE  := $(VENV)/.made$(SUFFIX)
READY := $(VENV)/.ready$(SUFFIX)
DEV   := $(VENV)/.ready-dev$(SUFFIX)

# EXTRAS=onnx,tensorboard installs these extras of pyproject.toml too; docs/install.md says what each is for.
EXTRAS ?=

# LOCKED=1 installs files whose hashes are in requirements.lock (make dev: requirements-dev.lock too), and PyTorch, whose
# build depends on the machine: with TORCH_LOCK=FILE, a requirements file with the hash of yours, it is checked too.
LOCKED ?= 0
PIP    := env -u PIP_CONSTRAINT $(BIN)/python -m pip --quiet --disable-pip-version-check install
ifeq ($(LOCKED),1)
ifeq ($(SYSTEM_TORCH),1)
$(error LOCKED=1 installs exact versions and SYSTEM_TORCH=1 keeps those of the system. Leave out one of them)
endif
ifneq ($(EXTRAS),)
$(error LOCKED=1 has the hashes of what make install and make dev install. Leave out EXTRAS, or use make dev LOCKED=1)
endif
$(READY) $(DEV): requirements.lock requirements-dev.lock
define INSTALL
	$(PIP) --require-hashes --no-deps $(if $(filter $(DEV),$@),--requirement requirements-dev.lock) --requirement requirements.lock
	$(PIP) $(if $(TORCH_LOCK),--require-hashes --requirement $(TORCH_LOCK),--constraint constraints.txt torch)
	$(PIP) --no-deps --no-build-isolation --editable .
endef
else
INSTALL = $(PIP) --constraint $(CONSTRAINTS) --editable '.$(if $(filter $(DEV),$@),[dev])'
endif

.DEFAULT_GOAL := help
.PHONY: help install dev demo test test-device quick lint bench docs pages wheel figures containers test-torch test-xla chaos soak fuzz mutants sbom clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 18

install: $(READY)  ## what users need, in .venv; EXTRAS=onnx,tensorboard adds extras
	$(if $(EXTRAS),$(PIP) --constraint $(CONSTRAINTS) --editable '.[$(EXTRAS)]')
	@echo "Vernier is installed in $(VENV). To have the command vernier in this shell:"
	@echo "source $(BIN)/activate"

dev: $(DEV)  ## what developers need: all of that, the extras that tests use, and the tools for tests and documentation

$(MADE): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Vernier needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	$(MAKE_VENV)
	@touch $@

$(READY) $(DEV): $(MADE) setup.py $(wildcard src/vernier/kernels/*.cpp src/vernier/kernels/*.h)
	$(INSTALL)
	@test -e src/vernier/kernels/libkernels.so || \
	  echo "No C++ compiler was found, so machine.backend=compiled, machine.convolution=winograd and restart markers are not available. Install g++, then: make clean install"
	@$(BIN)/python -c 'import torch; torch.ones(1).numpy()' || \
	  (echo "This PyTorch was built for another NumPy than the one here. Without the tools for tests the NumPy of the system stays: make clean install SYSTEM_TORCH=1" && exit 1)
	@touch $(READY) $@

demo: $(READY)  ## train on the built-in data set, evaluate, write a report
	@mkdir -p runs
	$(BIN)/vernier train --out runs --resume never
	@run=$$(ls -td runs/*-shapes-quick | grep -v -- -smoke- | head -n 1) && echo "" && echo "vernier eval $$run" && $(BIN)/vernier eval $$run \
	  && echo "" && echo "vernier report $$run" && $(BIN)/vernier report $$run -o $$run/report.html && echo "Open $$run/report.html in a browser."

test: $(DEV)  ## lint, type-check and run every test
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(MYPY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal --durations 15

test-device: $(DEV)  ## the whole product on a device of this machine, with a report to send back: make test-device DEVICE=cuda
	@$(BIN)/python -m tests.device_suite "$(DEVICE)"

test-xla:  ## the device suite on XLA's client for the CPU, in an environment of its own; hours on a small machine
	PYTHON=$(PYTHON) .ci/try-xla

quick: $(DEV)  ## lint, type-check and run the fast tests only
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(MYPY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m "not slow"

lint: $(DEV)  ## ruff and mypy alone
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(MYPY)

bench: $(DEV)  ## the benchmarks in benchmarks/, side by side with what one would write instead
	$(BIN)/python benchmarks/loop_overhead.py
	$(BIN)/python benchmarks/loader.py

chaos: $(DEV)  ## kill trainings 1,000 times, cut the power in 100,000 ways, fail every file operation; compare the results (an hour or more)
	$(BIN)/python -m tests.chaos.kills
	$(BIN)/python -m tests.chaos.power_cuts
	$(BIN)/python -m tests.chaos.faults
	$(BIN)/python -m tests.chaos.operations

soak: $(DEV)  ## train for 30 minutes with a fault every 30 seconds
	$(BIN)/python -m tests.chaos.soak

fuzz: $(DEV)  ## a million damaged files for every reader, and JPEGs by grammar
	$(BIN)/python -m tests.fuzz
	$(BIN)/python -m tests.fuzz.acceptance

mutants: $(DEV)  ## break features of the five systems on purpose: their proofs must fail
	$(BIN)/python -m tests.five_systems.mutants

sbom: $(DEV)  ## list what an installation consists of, as CycloneDX in dist/
	$(BIN)/python .ci/sbom.py

docs: $(DEV)  ## the documentation as a site in site/; a link that leads nowhere is an error
	$(BIN)/python -m zensical build --strict

pages: $(DEV)  ## write the generated pages of docs/ again; OUTPUTS=PAGE (all: OUTPUTS=.) also runs the commands whose output they show
	$(BIN)/python -m tests.documentation $(if $(OUTPUTS),--outputs "$(OUTPUTS:.=)")

wheel: $(DEV)  ## build the wheel in dist/ and use it in an empty environment
	PYTHON=$(PYTHON) .ci/try-wheel

test-torch:  ## the fast tests and the main commands with another PyTorch, in its own environment: make test-torch TORCH=2.9.1
	PYTHON=$(PYTHON) .ci/try-torch $(TORCH)

containers: $(DEV)  ## build and run the recipes of containers/ on stand-ins for their base images (Debian, root, buildah)
	$(BIN)/python .ci/try_containers.py $(CONTAINERS)

figures: $(DEV)  ## size of the source by part: modules, lines, tokens, public names, comments
	$(BIN)/python -m tests.house_figures

clean:  ## remove the environment and caches (never runs/)
	rm -rf $(VENV) .venv-torch site .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist src/*.egg-info src/vernier/kernels/*.so tests/rgpu_plugin/build tests/rgpu_plugin/*.egg-info
