# `make help` lists what there is. Every target that needs the environment brings it up first; stamp files make that free
# when nothing changed.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:

PIP_FLAGS := --quiet --disable-pip-version-check --no-input
# pytest-xdist workers. The suite compiles in child processes, so more than the cores only adds memory.
JOBS ?= 2
PYTEST := -m pytest -n $(JOBS) --dist loadfile
export PYTHON

REQUIREMENTS := third_party/py/requirements-py312-jaxlib0.12.txt
REQUIREMENTS_OLDEST := third_party/py/requirements-py311-jaxlib0.10.txt

# $(call venv,FOLDER,VERSION,REQUIREMENTS): a virtual environment of exactly these pins, with this checkout installed in
# place. A folder of another Python version, or whose interpreter has gone, is made anew.
define venv
@$(1)/bin/python -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != "$(2)")' 2>/dev/null \
  || { interpreter=$$(tools/find_python.sh $(2)); \
       echo "creating $(1) with $$interpreter; the first time downloads about 900 MB"; \
       "$$interpreter" -m venv --clear $(1); }
$(1)/bin/python -m pip install $(PIP_FLAGS) -r $(3)
$(1)/bin/python -m pip install $(PIP_FLAGS) --no-deps --no-build-isolation --editable .
@touch $@
endef

.PHONY: help setup demo test test-py311 lint format types check bench bazel-test pins clean

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

setup: .venv/.stamp ## create .venv from the pinned requirements

.venv/.stamp: $(REQUIREMENTS) pyproject.toml
	$(call venv,.venv,3.12,$<)

.venv311/.stamp: $(REQUIREMENTS_OLDEST) pyproject.toml
	$(call venv,.venv311,3.11,$<)

demo: setup ## plan a transformer training step for an H200 (no GPU needed)
	.venv/bin/jax-cmdbuf plan examples/train_step.py:train_step --target=h200

test: setup ## run the tests that need no GPU
	.venv/bin/python $(PYTEST)

test-py311: .venv311/.stamp ## the same on the oldest supported Python and jaxlib
	.venv311/bin/python $(PYTEST)

lint: setup ## ruff: rules and formatting
	.venv/bin/ruff check
	.venv/bin/ruff format --check

format: setup ## let ruff rewrite the files
	.venv/bin/ruff check --fix
	.venv/bin/ruff format

types: setup ## mypy --strict
	.venv/bin/mypy

check: lint types test ## all of what .ci/run demands

bench: setup ## print the measurements in benchmarks/
	@for script in benchmarks/*.py; do echo "== $$script"; .venv/bin/python "$$script"; done

bazel-test: setup ## the tests again, under Bazel (docs/bazel.md)
	bazel test //...

pins: ## resolve the direct requirements afresh and rewrite the pinned sets
	tools/pin.sh 3.12 third_party/py/requirements-py312-jaxlib0.12
	tools/pin.sh 3.11 third_party/py/requirements-py311-jaxlib0.10

clean: ## remove what the targets above made
	rm -rf .venv .venv311 .mypy_cache .ruff_cache .pytest_cache .hypothesis
