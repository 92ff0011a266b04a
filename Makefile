# Everything a newcomer needs: `make run` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt

.PHONY: help setup run test test-slow lint coverage architecture golden bench torture browser clean

help: ## What there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

.venv/core: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) torch
	$(PIP) -e .
	@touch $@

.venv/dev: .venv/core
	$(PIP) -e '.[dev,report,images,flower]'
	@touch $@

setup: .venv/dev ## Create .venv with the package and all that tests need

run: .venv/core ## The main job: FedAvg, FedGWC and our own rule on digits
	$(BIN)/fedgwc run

lint: .venv/dev ## Style, spelling, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint ## Lint, types and tests
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow"

test-slow: .venv/dev ## The checks that take longer
	$(BIN)/pytest -n 2 --dist worksteal -m slow

coverage: .venv/dev ## Lines and branches that `make test` runs: a table, and build/coverage/index.html
	@mkdir -p build
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow" --cov --cov-report=term --cov-report=html

architecture: .venv/dev ## Draw the picture in ARCHITECTURE.md anew
	$(BIN)/python -m tests.architecture

golden: .venv/dev ## Whether results are, bit for bit, those of another commit: make golden BASE=v0.1.0
	@test -n "$(BASE)" || { echo "say which commit to compare with: make golden BASE=COMMIT"; exit 2; }
	@rm -rf build/golden && mkdir -p build/golden && git worktree prune && git worktree add -q --force --detach build/golden/base $(BASE)
	@PYTHONPATH=build/golden/base/src $(BIN)/python tests/golden/freeze.py build/golden/before.json > build/golden/before.log 2>&1 || { tail -5 build/golden/before.log; exit 1; }
	@PYTHONPATH=src $(BIN)/python tests/golden/freeze.py build/golden/now.json > build/golden/now.log 2>&1 || { tail -5 build/golden/now.log; exit 1; }
	@$(BIN)/python tests/golden/freeze.py --compare build/golden/before.json build/golden/now.json; code=$$?; git worktree remove --force build/golden/base; exit $$code

bench: .venv/dev ## What is measured, against whom
	$(BIN)/python -m benchmarks

torture: .venv/dev ## Kills, broken files, liars and load: measures docs/reliability.md anew
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.torture

browser: ## A headless browser for the report's tests (Debian)
	apt-get update -qq && apt-get install -y -qq chromium chromium-driver

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
