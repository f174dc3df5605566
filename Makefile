# One short command for each wish; CI runs the same lines. `make` alone lists them.
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13 python3.14; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { command -v "$$p"; break; }; done)
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
PYTEST ?= $(BIN)/python -m pytest
SOURCES := pyproject.toml constraints.txt connectors/client/pyproject.toml

.DEFAULT_GOAL := help
.PHONY: help setup setup-taps setup-test demo up test check fmt soak bench bench-growth bench-peers profile clean

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.runtime  ## virtual environment with what the service needs to run

setup-taps: $(VENV)/.taps  ## the same, with Faust for the taps

setup-test: $(VENV)/.test  ## the same, with what tests and checks need

demo: setup $(if $(TAPS),setup-taps)  ## the whole show: local Kafka, all roles, sample transcripts in, sessions and events out; leaves nothing running (TAPS=1: and a tap)
	@$(BIN)/session-streams demo $(if $(TAPS),--taps)

up: setup $(if $(TAPS),setup-taps)  ## keep it running: local Kafka and all roles; prints addresses and a ready API key; Ctrl-C stops (TAPS=1: and a tap)
	@$(BIN)/session-streams up $(if $(TAPS),--taps)

test: setup-test  ## all tests, on a real local broker
	@$(PYTEST) -n 3 --dist loadfile --no-loadscope-reorder $(ARGS)

check: setup-test  ## format, lint, types, layers
	@$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

fmt: setup-test  ## format and fix what can be fixed
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

soak: setup-test  ## the long tests: every seeded kill point, large recordings
	@$(PYTEST) -m soak --timeout 3600 $(ARGS)

bench: setup-test  ## measure; results are printed and recorded, not asserted (ONLY=append,reads RUNS=3)
	@$(INSTALL) --editable '.[bench]' --editable connectors/client
	@$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY)) $(if $(RUNS),--runs $(RUNS)) $(ARGS)

bench-growth: setup-test  ## growth curves and the long run; half an hour (ONLY=sessions,sizes,partitions,authorities,agent-checkpoints,bundle,long RUNS=3)
	@$(INSTALL) --editable '.[bench]' --editable connectors/client
	@$(BIN)/python -m benchmarks.growth $(if $(ONLY),--only $(ONLY)) $(if $(RUNS),--runs $(RUNS)) $(ARGS)

bench-peers: setup-test  ## the plain fold in Kafka Streams, Quix Streams, Faust and our loop, side by side (ONLY=streams,ours RUNS=3); benchmarks/peers/README.md
	@$(INSTALL) --editable '.[bench]' --editable connectors/client
	@$(BIN)/python -m benchmarks.peers $(if $(ONLY),--only $(ONLY)) $(if $(RUNS),--runs $(RUNS)) $(ARGS)

profile: setup-test  ## where the time of a role goes, as a flame graph under build/ (WHAT=authority, gateway, gateway-batches, projector)
	@$(INSTALL) --editable '.[bench]' --editable connectors/client
	@$(BIN)/python -m benchmarks.profiling $(or $(WHAT),authority) $(ARGS)

clean:  ## remove the environment, caches and local data (a running `make up` must be stopped first)
	rm -rf $(VENV) .session-streams .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build *.egg-info

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed (python3.11, python3.12 ... on PATH, or PYTHON=/path/to/python)"; exit 1; }
	@"$(PYTHON)" -m venv $(VENV)

$(VENV)/.runtime: $(VENV)/bin/python $(SOURCES)
	@echo "installing what the service needs into $(VENV)"
	@$(INSTALL) --editable . --editable connectors/client
	@touch $@

$(VENV)/.taps: $(VENV)/.runtime
	@echo "installing what the taps need into $(VENV)"
	@$(INSTALL) --editable '.[taps]' --editable connectors/client
	@touch $@

$(VENV)/.test: $(VENV)/.runtime
	@echo "installing what the tests need into $(VENV)"
	@$(INSTALL) --editable '.[test,taps]' --editable connectors/client
	@touch $@
