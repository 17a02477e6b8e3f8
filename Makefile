# From a bare clone: `make demo` shows a join at work, `make test` checks everything. Both set up what they need first.
#   make demo ARGS="--help"      options for the demo (bench likewise)
#   make test ARGS=tests/plan     files and options for pytest
#   make PYTHON=python3.12 ...   another Python for .venv

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
# Two workers: each file of tests stays in one of them, so a Spark session is shared within a file.
PYTEST_WORKERS ?= 2

export PYTHON

.PHONY: help demo test lint sanitize format bench doctor setup clean
.DEFAULT_GOAL := help

help:
	@echo 'make demo     see a join at work'
	@echo 'make test     run the tests'
	@echo 'make lint     ruff, mypy, cython-lint'
	@echo 'make sanitize the kernels under ASAN, UBSAN and bounds checks'
	@echo 'make bench    measure the fixed workloads'
	@echo 'make doctor   check this machine'
	@echo 'make clean    remove what was built'

setup:
	@.ci/bootstrap

demo: setup
	@$(BIN)/streamjoin demo $(ARGS)

bench:
	@.ci/bootstrap bench
	@$(BIN)/streamjoin bench $(ARGS)

doctor: setup
	@$(BIN)/streamjoin doctor --spark $(ARGS)

test:
	@.ci/bootstrap test
	@$(BIN)/python -m pytest -q -n $(PYTEST_WORKERS) --dist loadfile $(ARGS)

lint:
	@.ci/bootstrap test dev
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format --check -q .
	@$(BIN)/mypy --no-error-summary streamjoin_ds
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cython-lint --max-line-length 120 cython_kernels
	@echo 'lint: clean'

sanitize:
	@.ci/bootstrap test dev
	@PYTHON=$(BIN)/python .ci/sanitize $(ARGS)

format:
	@.ci/bootstrap test dev
	@$(BIN)/ruff check -q --fix .
	@$(BIN)/ruff format -q .

clean:
	@rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-output
	@find cython_kernels streamjoin_ds tests -name '*.so' -delete -o -name '__pycache__' -prune -exec rm -rf {} +
	@rm -f cython_kernels/kernels.c
