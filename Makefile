# `make sweep` on a fresh machine; `make test` before landing. make sweep PYTHON=python3.12 picks the interpreter.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help sweep quick test test-all test-oldest check docs bench release clean

help:
	@echo 'make sweep   build $(VENV), install, run the shipped quickstart sweep'
	@echo 'make quick   run the tests that need no Ray, no server, no simulation and little computing'
	@echo 'make test    build $(VENV) with the test extras, run the checks and all tests but those of minutes'
	@echo 'make test-all  run the checks and all tests'
	@echo 'make test-oldest  run the tests with the oldest libraries that pyproject.toml allows'
	@echo 'make check   format, lint, types, layers'
	@echo 'make docs    run every command of the pages, build the site in docs/_build; warnings are errors'
	@echo 'make bench   run every benchmark in benchmarks/'
	@echo 'make release  build the distributions in dist/ and check them in a clean environment; publishes nothing'
	@echo 'make clean   remove $(VENV) and the caches; sweeps/ is kept'

sweep: $(VENV)/.installed
	$(BIN)/attnsweep run quickstart

# Three processes on two cores: the one with the tests of a Ray (tests/conftest.py) mostly waits; the others take
# the modules in the order of the folders, so that what fills the gaps at the end is small. Compiled modules are kept
# whatever the environment says: these processes, and hundreds that tests start, import them.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/pytest --dist loadgroup --no-loadscope-reorder --numprocesses

quick: $(VENV)/.installed-test
	$(PYTEST) 2 -m 'not ray and not server and not simulation and not slow and not scale'

test: check
	$(PYTEST) 3 -m 'not scale'

test-all: check
	$(PYTEST) 3

# The lower bounds of pyproject.toml but PyTorch's, in an environment of their own; old libraries warn of each other's.
# uv does not find PyTorch's build for CPUs, which pip does.
OLDEST := $(VENV)-oldest
test-oldest:
	$(PYTHON) -m venv --clear $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --no-deps --constraint constraints.txt uv torch
	grep '^torch' constraints.txt | $(OLDEST)/bin/python -m uv pip install --quiet --python $(OLDEST)/bin/python --resolution lowest-direct --constraint - --editable '.[test]'
	$(OLDEST)/bin/pytest --dist loadgroup --numprocesses 2 -W ignore::DeprecationWarning -m 'not scale and not simulation'

check: $(VENV)/.installed-test
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy --num-workers 2
	$(BIN)/lint-imports --no-logo

docs: $(VENV)/.installed-docs
	$(BIN)/python docs/execute.py
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --nitpicky --quiet docs docs/_build

bench: $(VENV)/.installed-test
	set -e; for benchmark in $(filter-out benchmarks/harness.py,$(wildcard benchmarks/*.py)); do echo "== $$benchmark" >&2; $(BIN)/python $$benchmark; done

# The wheel is built from the sdist, as `pip install` of an sdist does, and runs without the checkout.
CLEAN := $(CURDIR)/build/clean
release: check
	rm -rf dist build
	grep -q "^## \[$$($(BIN)/attnsweep --version | cut -d' ' -f2)\]" CHANGELOG.md
	$(BIN)/pytest --numprocesses 0 tests/across/test_packaging.py
	$(PYTHON) -m venv build/tools
	build/tools/bin/python -m pip install --quiet 'build>=1.2' 'twine>=6'
	build/tools/bin/python -m build
	build/tools/bin/python -m twine check --strict dist/*
	$(PYTHON) -m venv $(CLEAN)
	$(CLEAN)/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	cd build && $(CLEAN)/bin/attnsweep doctor && $(CLEAN)/bin/attnsweep run quickstart --local --trials 8 --dir sweeps/first

clean:
	rm -rf $(VENV) build dist docs/_build $(addprefix docs/reference/,command_line.md shipped.md columns.md) *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# Editable, so that a changed source file is what the next run imports, in Ray's workers too; the stamps make pip
# run again only when one of the two files that name versions changed.
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --constraint constraints.txt --editable '.[test]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --constraint constraints.txt --editable '.[docs]'
	@touch $@ $(VENV)/.installed

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "PYTHON: got $(PYTHON) ($$($(PYTHON) --version 2>&1)), expected Python 3.11 to 3.13; name one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# An environment that is here already keeps its interpreter; whoever names another one would test the wrong one.
ifneq ($(origin PYTHON),file)
.PHONY: same-python
same-python: $(BIN)/python
	@named=$$($(PYTHON) --version 2>&1); used=$$($(BIN)/python --version 2>&1); [ "$$named" = "$$used" ] || { echo "PYTHON: got $(PYTHON) ($$named), expected $$used, which $(VENV) has; name another environment: make $(MAKECMDGOALS) PYTHON=$(PYTHON) VENV=.venv-$(notdir $(PYTHON))" >&2; exit 1; }

$(VENV)/.installed $(VENV)/.installed-test $(VENV)/.installed-docs: | same-python
endif
