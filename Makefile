# Needs Python 3.11 to 3.13, make and PyPI. Everything is installed into $(VENV) on first use.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
INPUTS := pyproject.toml constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench bench-gpu bench-smoke experiments-smoke ib-tools wheel constraints clean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "make %-12s %s\n", $$1, $$2 }'

demo: $(VENV)/.demo ## A training step on 992 GPUs of a DGX H100 SuperPOD, whole and with a spine out
	@$(BIN)/fabric run demo

test: $(VENV)/.dev ## Run every test, doctest and notebook
	@$(BIN)/python -m pytest -n 2 --dist loadfile
	@$(BIN)/python -m pytest --nbmake notebooks

lint: $(VENV)/.dev ## Check format, style, types and floors
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/pyright --pythonpath $(BIN)/python
	@$(BIN)/lint-imports

bench: $(VENV)/.demo ## Measure speed and memory: JSON lines on stdout, a table on stderr
	@$(BIN)/python -m experiments.bench --table

bench-gpu: ## Check and time the solver on an accelerator, with whatever python3 has JAX on it
	@python3 -m experiments.bench.gpu

bench-smoke: $(VENV)/.demo ## Run every measurement once at its smallest size, without timing
	@$(BIN)/python -m experiments.bench --smoke

experiments-smoke: $(VENV)/.demo ## Run every experiment at its smallest size
	@for name in $$($(BIN)/python -m experiments list | cut -d' ' -f1); do \
	  $(BIN)/python -m experiments $$name --smoke --format json >/dev/null || exit 1; done

ib-tools: ## Install the InfiniBand simulator and OpenSM (Debian, Ubuntu) for the tests that use them
	@command -v apt-get >/dev/null || { \
	  echo "ib-tools installs Debian packages; elsewhere install ibsim, opensm and infiniband-diags." >&2; exit 1; }
	@# The package starts a subnet manager where it can, and this machine may hang on a real subnet.
	@root=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  [ -e /usr/sbin/opensm ] || [ ! -d /etc/systemd/system ] || \
	    $$root ln -sn /dev/null /etc/systemd/system/opensm.service || true; \
	  $$root apt-get update -qq && \
	  $$root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq ibsim-utils opensm infiniband-diags

wheel: $(VENV)/.demo ## Build the wheel into dist/
	@rm -rf dist
	@$(PIP) wheel --no-deps --wheel-dir dist .
	@ls dist

constraints: ## Resolve the development install afresh and pin it in constraints.txt
	@rm -rf $(VENV)
	@$(MAKE) --no-print-directory $(BIN)/python
	@$(PIP) install -e '.[dev]' 'jax==0.10.1'
	@head -n 1 constraints.txt > constraints.new
	@$(BIN)/python -m pip --disable-pip-version-check freeze --exclude-editable | grep '==' >> constraints.new
	@mv constraints.new constraints.txt
	@touch $(VENV)/.demo $(VENV)/.dev

clean: ## Remove the environment, builds and caches
	@rm -rf $(VENV) .ci-venv build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find fabric tests experiments -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' || { \
	  echo "fabric needs Python 3.11 to 3.13, but \`$(PYTHON)\` is $$($(PYTHON) -V 2>&1). Name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "\`$(PYTHON) -m venv\` failed; on Debian and Ubuntu install python3-venv first." >&2; exit 1; }

$(VENV)/.demo: $(INPUTS) | $(BIN)/python
	@echo "installing fabric into $(VENV) (about a minute, once)" >&2
	@$(PIP) install -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: $(INPUTS) | $(BIN)/python
	@echo "installing fabric and its development tools into $(VENV) (about a minute, once)" >&2
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $(VENV)/.demo $@
