# Everything starts from a fresh clone: each target sets up what it needs.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup java classes lock demo newest oldest test test-quick lint types integration planner bench property mutation house clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# The tools that build packages come first, so that they are locked too.
INSTALL := $(BIN)/python -m pip install -qq --no-build-isolation
FROM_LOCK = $(PYTHON) -m venv $(VENV) \
	&& $(INSTALL) --require-hashes -r requirements-build.lock \
	&& $(INSTALL) --require-hashes -r $(1) && $(INSTALL) --no-deps --editable .

$(STAMP): requirements.lock pyproject.toml spark_conf/pyspark_plake.py
	$(call FROM_LOCK,requirements.lock)
	@touch $@

# The demo's share of the same lock, where the whole is not installed yet.
$(VENV)/.demo: requirements-demo.lock pyproject.toml spark_conf/pyspark_plake.py
	[ -f $(STAMP) ] || { $(call FROM_LOCK,requirements-demo.lock); }
	@touch $@

setup: $(STAMP) java ## Make the virtual environment with everything, and install Java where it is missing

java:
	@sh integration/java.sh

# It takes 47 s of a processor and gives 6 s to each JVM: make test has five, make integration more.
classes: setup ## Keep Spark's classes for the JVMs of tests, for who runs the tests often
	@. integration/java_home.sh && $(BIN)/python -m tests.java_classes >/dev/null 2>&1 || true

lock: $(STAMP) ## Resolve the lock anew, for Python 3.10 to 3.14 on Linux and macOS
	@$(BIN)/python integration/lock.py

demo: $(VENV)/.demo java ## Run the main job on 336,776 real flights
	@. integration/java_home.sh && $(BIN)/python integration/demo.py

newest: ## Run make test with the newest packages that pyproject.toml allows
	rm -rf .venv-newest && $(PYTHON) -m venv .venv-newest
	.venv-newest/bin/python -m pip install -qq --editable '.[dev]'
	@touch .venv-newest/.installed
	@$(MAKE) test VENV=.venv-newest

oldest: setup ## Run the tests with the oldest packages that pyproject.toml allows
	@. integration/java_home.sh && $(BIN)/python integration/oldest_versions.py

WORKERS ?= 3

# Hundreds of processes load the package: its bytecode is kept. A test that waits inside of a C
# library cannot be interrupted: its worker ends and is replaced, a minute after pytest's timeout.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q --dist loadscope \
	-o faulthandler_timeout=660 -o faulthandler_exit_on_timeout=true

test: setup lint ## Style, types and all tests, by three workers (two of them have Spark)
	@. integration/java_home.sh && $(PYTEST) -n $(WORKERS) -m 'not long'

test-quick: $(STAMP) ## The tests that take seconds; no Spark, no Java
	@$(PYTEST) -n 2 -m 'not spark and not slow and not long'

lint: $(STAMP) ## Style, by ruff
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { $(BIN)/ruff format --diff . ; exit 1; }

types: $(STAMP) ## Types, by mypy
	@$(BIN)/mypy

property: $(STAMP) ## The property tests with 10,000 examples each instead of 20
	@HYPOTHESIS_PROFILE=property $(BIN)/python -m pytest -q -m 'hypothesis and not spark'

mutation: $(STAMP) ## Put wrong rules into the code, one at a time: the tests must fail for each
	@$(BIN)/python integration/mutation.py

house: $(STAMP) ## Count how heavy the package is
	@$(BIN)/python integration/house.py

planner: $(STAMP) ## Compile the planner extension (needs a JDK), or check the jar that is here
	@$(BIN)/python -m lakehouse_source.spark.planner.build

integration: classes ## The long forms: other Spark versions, Connect, the oldest packages, every condition, many writers
	@. integration/java_home.sh && $(BIN)/python integration/spark_versions.py
	@. integration/java_home.sh && $(BIN)/python integration/spark_connect.py
	@. integration/java_home.sh && $(BIN)/python integration/dbt_suites.py
	@. integration/java_home.sh && $(BIN)/python integration/statements.py
	@. integration/java_home.sh && $(BIN)/python -m integration.cluster --tasks 200 --files 2000 --planned 10000
	@. integration/java_home.sh && $(BIN)/python integration/stream_kills.py --kills 96
	@. integration/java_home.sh && $(BIN)/python integration/copy_kills.py --kills 100
	@$(BIN)/python integration/advisories.py
	@$(MAKE) oldest
	@$(MAKE) newest
	@mkdir -p dist && $(BIN)/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml \
		--mc-type library --output-reproducible -o dist/sbom.json
	@$(BIN)/python integration/iceberg_clients.py
	@. integration/java_home.sh && PLAKE_ALL_CONDITIONS=1 $(BIN)/python -m pytest -q tests/doors/test_conditions.py
	@if ! command -v chromium >/dev/null && [ "$$(id -u)" = 0 ]; then apt-get update -qq && apt-get install -y -qq chromium; fi
	@. integration/java_home.sh && $(BIN)/python -m pytest -q -m long
	@. integration/java_home.sh && HYPOTHESIS_PROFILE=property $(BIN)/python -m pytest -q -m 'hypothesis and spark'
	@$(BIN)/python integration/fuzz_parquet.py --mutants 10000
	@$(BIN)/python integration/damage.py --mutants 1000
	@. integration/java_home.sh && $(BIN)/python integration/fuzz_texts.py
	@if command -v npm >/dev/null; then npm install --silent --no-audit --no-fund --prefix integration/.azurite azurite@3.37.0; fi
	@$(BIN)/python -m pytest -q tests/edges/test_object_stores.py
	@$(BIN)/python integration/benchmarks/micro_batches.py --batches 10000
	@PLAKE_WRITERS=8 PLAKE_COMMITS=200 $(BIN)/python -m pytest -q tests/verbs/test_concurrency.py

bench: setup ## Measurements beside others' systems: an hour, then read integration/benchmarks/report.md
	@. integration/java_home.sh && $(BIN)/python -m integration.benchmarks $(BENCH)

clean: ## Remove what was made here
	rm -rf $(VENV) .venv-newest build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse artifacts
	find . -name __pycache__ -prune -exec rm -rf {} +
