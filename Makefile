# From a bare clone: `make demo` shows a join at work, `make check` checks what is quick, `make test` all. Each sets up
# what it needs first.
#   make demo ARGS="--help"      options for the demo (bench likewise)
#   make test ARGS=tests/plan     files and options for pytest
#   make test-spark VERSION=4.0   the tests that need Spark, on another release of it
#   make PYTHON=python3.12 ...   another Python for .venv

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
# Two workers: each file of tests stays in one of them, so a Spark session is shared within a file.
PYTEST_WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -q -n $(PYTEST_WORKERS)
# In the order of tests/support/longest.py: by itself it begins with the files of most tests, and ends with the longest.
BY_FILE := --dist loadfile --no-loadscope-reorder
# What `make check` tests: no Spark, no Java, no data from outside, nothing that takes more than a second.
QUICK := not (spark or delta or shared or slow or long or campaign or bench)
# What `make test-all` tests.
ALL := not (campaign or bench)

export PYTHON
# Tests start hundreds of processes of Python. Each would compile the package anew: seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo check test test-all test-spark coverage lint docs sanitize format bench doctor wheel constraints release-check setup clean
.DEFAULT_GOAL := help

help:
	@echo 'make demo     see a join at work'
	@echo 'make check    lint, and the tests that need neither Spark nor Java and are quick: two minutes'
	@echo 'make test     run the tests, as CI does: half an hour at most'
	@echo 'make test-all with long runs from end to end: 50 minutes at most'
	@echo 'make test-spark VERSION=4.0  run the tests that need Spark on 3.5, 4.0 or 4.1'
	@echo 'make coverage run the tests, and print the lines that they miss'
	@echo 'make lint     ruff, mypy, cython-lint, codespell, import rules'
	@echo 'make docs     build the site into build/docs'
	@echo 'make sanitize the kernels under ASAN, UBSAN and bounds checks'
	@echo 'make bench    measure the fixed workloads'
	@echo 'make doctor   check this machine'
	@echo 'make wheel    build the wheel, and try it without a compiler'
	@echo 'make constraints   pin what is installed, with hashes, after a change of pyproject.toml'
	@echo 'make release-check whether this commit can be released: a quarter of an hour, as root'
	@echo 'make clean    remove what was built'

setup:
	@.ci/bootstrap

demo:
	@.ci/bootstrap page bench
	@$(BIN)/streamjoin demo $(ARGS)

bench:
	@.ci/bootstrap test
	@$(BIN)/python -m tests.bench $(ARGS)

doctor: setup
	@$(BIN)/streamjoin doctor --spark $(ARGS)

wheel:
	@.ci/wheel $(ARGS)

constraints:
	@.ci/constraints $(ARGS)

release-check:
	@.ci/release $(ARGS)

test:
	@.ci/bootstrap test
	@$(BIN)/python -m tests.support.class_archive
	@$(PYTEST) $(BY_FILE) $(ARGS)

test-all:
	@.ci/bootstrap test s3-test connect-test
	@$(MAKE) --no-print-directory test ARGS="-m '$(ALL)' $(ARGS)"

test-spark:
	@.ci/bootstrap test
	@.ci/spark $(VERSION) $(ARGS)

# No Spark session is shared, so each test goes to the worker that is free. A fifth of Hypothesis' examples.
check: lint
	@$(PYTEST) --dist worksteal --hypothesis-profile quick -m '$(QUICK)' $(ARGS)

# Of this process and its workers; what runs in processes that tests start (Spark's too) is not counted.
coverage:
	@.ci/bootstrap test
	@$(BIN)/python -m tests.support.class_archive
	@$(PYTEST) $(BY_FILE) --cov --cov-report term-missing:skip-covered $(ARGS)

lint:
	@.ci/bootstrap test dev
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format --check -q .
	@$(BIN)/mypy --no-error-summary streamjoin_ds tests/bench/suites
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cython-lint --max-line-length 120 cython_kernels
	@$(BIN)/codespell
	@$(BIN)/python -m pytest -q -p no:cacheprovider tests/test_rooms.py >build/rooms.log || { cat build/rooms.log; exit 1; }
	@echo 'lint: clean'

# A warning is an error, a link without a target among them. Nothing is fetched.
docs:
	@.ci/bootstrap docs
	@$(BIN)/python -m docs.site $(ARGS)

sanitize:
	@.ci/bootstrap test dev
	@PYTHON=$(BIN)/python .ci/sanitize $(ARGS)

format:
	@.ci/bootstrap test dev
	@$(BIN)/ruff check -q --fix .
	@$(BIN)/ruff format -q .

clean:
	@rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage demo-output
	@find cython_kernels streamjoin_ds tests -name '*.so' -delete -o -name '__pycache__' -prune -exec rm -rf {} +
	@rm -f cython_kernels/kernels.c cython_kernels/messages.c cython_kernels/pages.c
