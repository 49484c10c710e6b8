# `make demo` and `make test` do everything on a machine that has Python (3.10 or newer, with its headers), make and a C++ compiler.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Each pytest worker runs kernels on threads of its own.
JOBS ?= 2
CXX_FILES = $(shell find src tests benchmarks -name '*.h' -o -name '*.cpp')

.DEFAULT_GOAL := help
.PHONY: help install sim demo test sanitize lint format bench clean

help:  ## Show the targets.
	@sed -n 's/^\([a-z]*\):.*##/\1\t/p' Makefile

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml requirements/dev-constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -q -c requirements/dev-constraints.txt -e '.[demo,dev]'
	touch $@

install: $(STAMP)  ## Make .venv and install the package into it, editable, with what development needs.

sim: $(STAMP)  ## Compile the sim, unless the cache has it.
	$(BIN)/anyaccel sim build

demo: sim  ## Train on real handwritten digits, on two simulated devices.
	$(BIN)/anyaccel run --sim 2 examples/digits.py

test: sim  ## Run every test: first those that need no sim, then those that run inside it.
	$(BIN)/pytest -n $(JOBS) -m 'not sim'
	ANYACCEL_SIM=4 $(BIN)/pytest -n $(JOBS) -m sim

# torch and Python are not instrumented: what they leak is theirs. Only tests without child processes are meant here.
SANITIZE = ANYACCEL_SIM_SANITIZE=address,undefined
PRELOAD = $(foreach library,asan stdc++,$(shell $(CXX) -print-file-name=lib$(library).so))
SANITIZED = random_programs operators memory_order asynchrony device_errors random_numbers remembered_shapes module bad_input

sanitize: $(STAMP)  ## Run the sim's tests with the sim under AddressSanitizer and UBSan; compiles for minutes. Needs gcc.
	$(SANITIZE) $(BIN)/anyaccel sim build
	$(SANITIZE) ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD="$(PRELOAD)" ANYACCEL_SIM=4 \
		$(BIN)/pytest -m sim $(SANITIZED:%=tests/sim/test_%.py)

lint: $(STAMP)  ## Check style and types.
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(CXX_FILES)

format: $(STAMP)  ## Put everything into the house style.
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/clang-format -i $(CXX_FILES)

bench: sim  ## Measure against torch's CPU, as ratios; takes a few minutes.
	$(BIN)/python -m benchmarks

clean:  ## Remove what make has made, but not the sim's cache.
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache
