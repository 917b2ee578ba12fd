.DEFAULT_GOAL := help
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "heaveto needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable . --group dev
	$(BIN)/python -m compileall -q core tui
	@touch $@

setup: $(STAMP) ## make the virtual environment in .venv

demo: $(STAMP) ## run the bundled demo flows (in the console when this is a terminal)
	$(BIN)/heaveto demo

test: $(STAMP) ## run the tests (without the long matrices)
	$(BIN)/python -m pytest -q -m 'not slow' -n 2 --dist=worksteal

crash: $(STAMP) ## run the whole crash, error and substitution matrices
	$(BIN)/python -m pytest -q tests/crash -n 2 --dist=worksteal

bench: $(STAMP) ## print the measured figures beside their baselines
	$(BIN)/python -m pytest -q -s tests/bench -m slow

INTEROP := .venv-interop
$(INTEROP)/.installed:
	$(PYTHON) -m venv $(INTEROP)
	$(INTEROP)/bin/python -m pip install --quiet 'lionagi==0.36.0'
	@touch $@

interop: $(STAMP) $(INTEROP)/.installed ## run live flows of lionagi 0.36 beside heaveto (needs a package index)
	LI=$(CURDIR)/$(INTEROP)/bin/li $(BIN)/python -m pytest -q tests/interop/flows.py

interop-smoke: $(STAMP) $(INTEROP)/.installed ## one of them, within a minute
	LI=$(CURDIR)/$(INTEROP)/bin/li $(BIN)/python -m pytest -q tests/interop/flows.py -k smoke

fmt: $(STAMP) ## format the code
	$(BIN)/ruff format core tui tests screenshots
	$(BIN)/ruff check --fix core tui tests screenshots

lint: $(STAMP) ## check format and style
	$(BIN)/ruff format --check core tui tests screenshots
	$(BIN)/ruff check core tui tests screenshots

types: $(STAMP) ## check the types
	$(BIN)/mypy

contracts: $(STAMP) ## check the import contracts
	$(BIN)/lint-imports

wheel: $(STAMP) ## build the wheel, install it in an empty environment and run it
	rm -rf build dist && $(BIN)/python -m build --wheel --outdir dist .
	rm -rf build/wheel-venv && $(PYTHON) -m venv build/wheel-venv
	build/wheel-venv/bin/python -m pip install --quiet dist/heaveto-*.whl
	cd build && wheel-venv/bin/heaveto --version && wheel-venv/bin/heaveto demo --headless >/dev/null
	@echo "wheel: built, installed and run"

check: test lint types contracts ## what CI runs, but for the wheel

clean: ## remove the environment and everything built
	rm -rf $(VENV) $(INTEROP) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

.PHONY: help setup demo test crash bench interop interop-smoke fmt lint types contracts wheel check clean
