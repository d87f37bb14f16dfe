# The few verbs of the house. Each works on a fresh machine with Python 3.11 or newer and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FAULTS := tests/real/test_faults_kill.py tests/real/test_faults_outage.py
# Tests on real parts mostly wait, so two run at a time, each with servers of its own; on a busy machine one is tried again,
# and the summary says which were.
REAL := -n 2 --dist loadfile --reruns 2 --reruns-delay 1 -rR

.PHONY: help demo demo-real test coverage faults soak check services bench bench-real lock clean
help: ## What can be done here
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

# Both environments are stamped by the lock they were made from, so a changed lock makes them anew.
$(VENV)/.run: requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; try: make $(MAKECMDGOALS) PYTHON=python3.11"; rm -rf $(VENV); exit 3; }
	@echo "Installing from requirements.lock (hashes checked; half a minute to two) ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.run
	@echo "Installing the tools for tests from requirements-dev.lock (hashes checked) ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@

demo: $(VENV)/.run ## Handle a scenario of real fault codes and show what became of each
	@$(BIN)/fault-agent demo --out demo-out --replace

demo-real: $(VENV)/.run ## The same on a real Kafka and a real API server, both roles as processes (needs services)
	@PYTHONPATH=tests $(BIN)/python -m services.demo

test: $(VENV)/.dev check ## Lint, types, import contracts and the whole suite; real parts where there are services
	@$(BIN)/python -m pytest -n 2 --ignore tests/real $(PYTEST_ARGS)
	@$(BIN)/python -m pytest tests/real $(REAL) $(PYTEST_ARGS)

coverage: $(VENV)/.dev ## Which lines the suite reaches, without the real parts (slower by half)
	@$(BIN)/python -m pytest -n 2 --ignore tests/real --cov=agent --cov-branch --cov-report=term $(PYTEST_ARGS)

faults: $(VENV)/.dev ## Of these only kills and outages of both roles on real parts (needs services, about 5 minutes)
	@$(BIN)/python -m pytest $(FAULTS) $(REAL) $(PYTEST_ARGS)

soak: $(VENV)/.dev ## The same, longer: twenty kills each, outages of a minute, three brokers (needs services, about an hour)
	@TEST_SOAK=1 $(BIN)/python -m pytest $(FAULTS) tests/real/test_kafka_brokers.py $(REAL) $(PYTEST_ARGS)

check: $(VENV)/.dev ## Format, lint, types, import contracts, drift of generated files
	@$(BIN)/ruff format --check -q .
	@$(BIN)/ruff check -q .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python policies/generate.py --check
	@$(BIN)/python schemas/generate.py --check

services: ## Build the real services of the tests, once per machine (first time about 10 minutes)
	@$(PYTHON) tests/services/prepare.py $(SERVICES)

bench: $(VENV)/.dev ## Measure beside the limit, print ratios
	@PYTHONPATH=tests $(BIN)/python -m bench.run $(BENCH_ARGS)

bench-real: $(VENV)/.run ## Measure both roles on a real Kafka and a real API server (needs services, about 8 minutes)
	@PYTHONPATH=tests $(BIN)/python -m bench.real $(BENCH_ARGS)

lock: ## Make both lock files anew from pyproject.toml (needs pip-tools)
	pip-compile -q --generate-hashes --strip-extras --allow-unsafe --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-header --build-deps-for=editable --build-deps-for=wheel -o requirements.lock pyproject.toml
	pip-compile -q --generate-hashes --strip-extras --allow-unsafe --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-header --extra dev --build-deps-for=editable --build-deps-for=wheel -o requirements-dev.lock pyproject.toml

clean: ## Remove what the other verbs made
	rm -rf $(VENV) demo-out .coverage .mypy_cache .ruff_cache .hypothesis .import_linter_cache
