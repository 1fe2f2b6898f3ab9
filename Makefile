# The commands of this project; `make` alone lists them. They require make and Python 3.11 or newer.
# Everything else is installed into .venv, and again after a change of pyproject.toml or of the
# version in tidelog/__init__.py.

# The first interpreter that is new enough; choose another one with `make PYTHON=/path/to/python3`.
PYTHON ?= $(shell for name in python3 python3.11 python3.12 python3.13 python3.14 python; do \
	"$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo "$$name" && break; done)
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install

export PYRIGHT_PYTHON_GLOBAL_NODE := false # node comes with pyright, whatever the machine has
unexport PYTHONDONTWRITEBYTECODE # tests start hundreds of processes: each would compile everything

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo test check format format-check lint types contracts limits wheel bench clean

help: ## Show this list
	@echo "usage: make TARGET [ARGS=\"...\"]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/installed ## Run the demonstration on temporary data
	@$(BIN)/tidelog demo $(ARGS)

test: $(VENV)/installed-dev ## Run the tests: make test ARGS="tests/wire -k frame"
	@$(BIN)/python -m pytest --numprocesses=auto $(ARGS)

.PHONY: test-spark
test-spark: $(VENV)/installed-dev ## Run the tests that need Java: make test-spark ARGS="-k stream"
	@TIDELOG_SPARK_TESTS=1 $(BIN)/python -m pytest --numprocesses=2 --dist=loadfile \
		-W default -rs tests/system/spark $(ARGS)

.PHONY: test-prometheus
test-prometheus: $(VENV)/installed-dev ## Run the tests that need Prometheus, which make test skips without it
	@REQUIRE_PROMETHEUS=1 $(BIN)/python -m pytest -rs tests/system/prometheus $(ARGS)

.PHONY: test-postgresql
test-postgresql: $(VENV)/installed-dev ## Run the tests that need PostgreSQL, which make test skips without it
	@REQUIRE_POSTGRESQL=1 $(BIN)/python -m pytest -rs tests/system/postgresql $(ARGS)

.PHONY: spark-trial
spark-trial: $(VENV)/installed-dev ## Kill brokers, executors and drivers during Spark jobs, needs Java
	@TIDELOG_SPARK_TRIALS=1 $(BIN)/python -m pytest -p no:randomly -W default -rs \
		--timeout 3000 tests/system/spark_trials tests/system/spark/test_drivers.py $(ARGS)

.PHONY: sqs-trial
sqs-trial: $(VENV)/installed-sqs-trial ## Run Celery and SDKs of other languages on the SQS front, needs npm and Maven
	@TIDELOG_SQS_TRIALS=1 $(BIN)/python -m pytest -p no:randomly -rsP \
		--timeout 1800 tests/system/sqs_trials $(ARGS)

check: format-check lint types contracts limits wheel ## Run all checks except the tests

format: $(VENV)/installed-dev ## Format the code and apply safe fixes
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format .

format-check: $(VENV)/installed-dev
	@$(BIN)/ruff format --check .

lint: $(VENV)/installed-dev ## Check all rules of Ruff
	@$(BIN)/ruff check .

types: $(VENV)/installed-dev ## Check types with mypy and pyright, both strict
	@$(BIN)/python -m mypy . & mypy=$$!; \
	$(BIN)/python -m pyright --pythonpath $(BIN)/python; status=$$?; \
	wait $$mypy && exit $$status # Each takes one core.

contracts: $(VENV)/installed-dev ## Check the import contracts between packages
	@$(BIN)/lint-imports --no-logo

limits: $(VENV)/installed-dev ## Check the limits on size and shape of the code
	@$(BIN)/python -m pytest --quiet tests/test_style.py tests/test_architecture.py \
		tests/test_commits.py tests/test_language.py

wheel: $(VENV)/installed-dev ## Build the wheel and check its contents
	@rm -rf build/wheel
	@$(BIN)/python -m hatchling build --target wheel --directory build/wheel
	@$(BIN)/check-wheel-contents build/wheel

.PHONY: dist
DIST := build/dist
dist: $(VENV)/installed-release ## Build the release twice into build/dist and compare
	@rm -rf $(DIST) $(DIST)-again
	@for folder in $(DIST) $(DIST)-again; do \
		SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m hatchling build \
			--target sdist --target wheel --directory $$folder || exit 1; done
	@for built in $(DIST)/*; do cmp $$built $(DIST)-again/$${built##*/} || exit 1; done
	@echo "both builds are equal"
	@$(BIN)/python -m twine check --strict $(DIST)/*
	@$(BIN)/check-wheel-contents $(DIST)

.PHONY: test-pythons
PYTHONS := python3.11 python3.12 python3.13 python3.14
test-pythons: $(VENV)/installed-dev ## Run the installed wheel on other Pythons: make test-pythons PYTHONS="python3.14"
	@for python in $(PYTHONS); do \
		"$$python" -c 'import sys; print(sys.version)' 2>/dev/null || { \
			echo "$$python: not on this machine"; continue; }; \
		TIDELOG_TEST_PYTHON="$$python" $(BIN)/python -m pytest --quiet \
			tests/system/integration/test_installed.py $(ARGS) || exit 1; done

.PHONY: docs docs-serve
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs
docs: $(VENV)/installed-dev ## Build the documentation site into build/site; a broken link fails
	@$(MKDOCS) build --strict $(ARGS)

docs-serve: $(VENV)/installed-dev ## Serve the documentation site on http://127.0.0.1:8000
	@$(MKDOCS) serve $(ARGS)

.PHONY: matrices
matrices: $(VENV)/installed-dev ## Write the tests of each invariant, statement and difference from SQS into docs/
	@$(BIN)/python -m tests.matrices
	@$(BIN)/python -m tests.differences

.PHONY: generate
generate: $(VENV)/installed-dev ## Write tidelog/blocking/calls, dashboards, and docs/ of settings, metrics, simulation and mutations
	@$(BIN)/python -m tools.face_calls
	@$(BIN)/python -m tools.dashboards
	@$(BIN)/python -m tools.config_docs > docs/configuration.md
	@$(BIN)/python -m tools.metrics_docs > docs/metrics.md
	@$(BIN)/python -m tests.simulation.results.page > docs/simulation-results.md
	@$(BIN)/python -m tests.mutation_score.page > docs/mutation-score.md

bench: $(VENV)/installed-dev ## Run the benchmarks and write bench/README.md
	@$(BIN)/python -m bench $(ARGS)

.PHONY: mutation-score
ROOM := isr
SAMPLE := 60
mutation-score: $(VENV)/installed-mutation ## Count mutations that tests detect: make mutation-score ROOM=raft SEED=1 SAMPLE=60
	@$(BIN)/python -m tests.mutation_score $(ROOM) --seed $(or $(SEED),1) --sample $(SAMPLE) $(ARGS)

.PHONY: bench-peers
bench-peers: $(VENV)/installed-peers ## Benchmark tidelog and other brokers: make bench-peers ARGS="--quick rates --peers kafka"
	@$(BIN)/python -m bench.peers $(ARGS)

.PHONY: sim swarm mutants
KIND := broker
SIMULATION := $(BIN)/python -m tests.simulation
RECORDING = $(if $(RECORD),--record)
sim: $(VENV)/installed-dev ## Run one simulation: make sim KIND=raft SEED=7, or PLAN=FILE
	@$(SIMULATION) $(KIND) $(if $(SECONDS),--seconds $(SECONDS)) \
		$(if $(PLAN),--plan $(PLAN),--seed $(or $(SEED),0)) $(ARGS)

swarm: $(VENV)/installed-dev ## Run many simulations: make swarm KIND=cluster SEEDS=1000 FIRST=0 SECONDS=60, or BUDGET=MINUTES; RECORD=1
	@$(SIMULATION) $(KIND) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEEDS),--seeds $(SEEDS)) \
		$(if $(FIRST),--first $(FIRST)) $(if $(BUDGET),--budget $(BUDGET)) $(RECORDING) $(ARGS)

mutants: $(VENV)/installed-dev ## Test the simulator by mutations: make mutants KIND=raft MUTATIONS="vote-twice" RECORD=1
	@$(SIMULATION) $(if $(filter file,$(origin KIND)),all,$(KIND)) $(RECORDING) $(ARGS) --mutations $(MUTATIONS)

.PHONY: powercut history netns
CUTS := 20
powercut: $(VENV)/installed-dev ## Cut the power of a real file system, as root: make powercut CUTS=100
	@$(BIN)/python -m tests.system.powercut --cuts $(CUTS) $(ARGS)

history: $(VENV)/installed-dev ## Check a history of real clients with broker faults: make history SECONDS=600
	@$(BIN)/python -m tests.system.histories --seconds $(or $(SECONDS),60) $(ARGS)

.PHONY: queue-trial
MINUTES := 10
queue-trial: $(VENV)/installed-dev ## Kill the leaders of queues on three brokers: make queue-trial MINUTES=10
	@$(BIN)/python -m tests.system.queue_trials --minutes $(MINUTES) $(ARGS)

.PHONY: versions
versions: $(VENV)/installed-dev ## Upgrade three brokers, go back, and raise the level: make versions OLD=COMMIT
	@$(BIN)/python -m tests.system.versions $(if $(OLD),--old $(OLD)) $(ARGS)

.PHONY: scenarios
scenarios: $(VENV)/installed-dev ## Repeat scenarios in which other brokers lost records: make scenarios ARGS="--only 2"
	@$(BIN)/python -m tests.system.scenarios $(ARGS)

.PHONY: access-model
access-model: $(VENV)/installed-dev ## Compare 100,000 random sets of access rules with a naive model: make access-model SEED=2
	@$(BIN)/python -m tests.coordinator.security.access_model 100000 $(or $(SEED),1)

.PHONY: fuzz
fuzz: $(VENV)/installed-dev ## Attack brokers and clients with hostile peers for ten minutes: make fuzz ARGS="--seconds 60 --seed 2"
	@$(BIN)/python -m tests.fuzz $(ARGS)

netns: $(VENV)/installed-dev ## Inject faults into brokers in network namespaces, as root: make netns MINUTES=10 ARGS="--brokers 5"
	@$(BIN)/python -m tests.system.netns --minutes $(MINUTES) $(ARGS)

clean: ## Remove .venv, build products and caches
	rm -rf $(VENV) build dist .*_cache .hypothesis .coverage*

$(VENV)/made:
	@test -n "$(PYTHON)" || { \
		echo "tidelog needs Python 3.11 or newer and finds none:" \
			"install one, or run make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
		"tidelog needs Python 3.11 or newer and %s is %s: run make PYTHON=/path/to/python3" \
		% (sys.executable, sys.version.split()[0]))'
	@echo "making $(VENV) with $$("$(PYTHON)" --version)"
	@"$(PYTHON)" -m venv --clear $(VENV)
	@touch $@

$(VENV)/installed: $(VENV)/made pyproject.toml tidelog/__init__.py
	@echo "installing tidelog into $(VENV)"
	@$(PIP) --editable .
	@touch $@

$(VENV)/installed-dev: $(VENV)/made pyproject.toml tidelog/__init__.py
	@echo "installing tidelog and the development tools into $(VENV)"
	@$(PIP) --editable '.[dev]'
	@touch $(VENV)/installed $@

$(VENV)/installed-release: $(VENV)/installed-dev
	@echo "installing the release checks into $(VENV)"
	@$(PIP) --editable '.[dev,release]'
	@touch $@

$(VENV)/installed-mutation: $(VENV)/installed-dev
	@echo "installing the mutation tool into $(VENV)"
	@$(PIP) --editable '.[dev,mutation]'
	@touch $@

$(VENV)/installed-peers: $(VENV)/installed
	@echo "installing the clients of other brokers into $(VENV)"
	@$(PIP) --editable '.[peers,spark]'
	@touch $@

$(VENV)/installed-sqs-trial: $(VENV)/installed-dev
	@echo "installing Celery and aioboto3 into $(VENV)"
	@$(PIP) --editable '.[dev,sqs-trial]'
	@touch $@
