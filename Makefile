# With Python 3.11 or newer and pip on the machine, every target does its own set-up.

PYTHON ?= python3
OUT ?= demo
BIN := .venv/bin
INSTALLED := .venv/.installed
CODE := src tests examples docs/generate.py docs/pictures.py docs/subset_font.py $(wildcard benchmarks recipes)
SPELLED := src docs Makefile pyproject.toml $(wildcard *.md benchmarks examples recipes .github)

# torch's threads spin while they wait: one per process, and passive, or they take processor time from one another.
export OMP_NUM_THREADS := 1
export OMP_WAIT_POLICY := passive

.DEFAULT_GOAL := help
.PHONY: help setup demo demos test check bench docs format clean lint types imports quick-tests shapes

help: ## show this list
	@echo "make TARGET, where TARGET is one of"
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 14

setup: $(INSTALLED) ## make .venv and install foci into it, with everything pinned in constraints.txt

demo: setup ## train a translator on built-in phrases, translate, and show what it looks at, in ./demo/translate
	$(BIN)/foci demo translate --out $(OUT)

demos: setup ## measure what every demo promises over three seeds, about an hour of one core (nightly); one: make demos ONLY=vqa
	$(BIN)/python -m recipes.demos $(if $(ONLY),--only $(ONLY)) --out $(or $(RUNS),demos)

test: setup lint types imports shapes ## everything: all tests, style, types, shapes and import directions
	$(BIN)/pytest -q -n 2

check: setup lint types imports quick-tests ## the quick loop for developers: no slow tests, no pass over the shapes

bench: setup ## measure foci against its peers on this machine, and write docs/benchmarks.md; groups and options: python -m benchmarks --help
	$(BIN)/python -m benchmarks

docs: setup ## write what is generated: parts of README.md and docs/
	$(BIN)/python docs/generate.py

format: setup ## format the code
	$(BIN)/ruff check --fix --quiet $(CODE)
	$(BIN)/ruff format $(CODE)

clean: ## remove .venv, pictures and caches
	rm -rf .venv demo demos gallery build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

lint: setup
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/codespell $(SPELLED)

types: setup
	$(BIN)/mypy

imports: setup
	$(BIN)/lint-imports

quick-tests: setup
	$(BIN)/pytest -q -n 2 -m "not slow"

# The shapes in the signatures are checked at run time, in this pass only; tests/conftest.py names its tests.
shapes: setup
	PYTHONPATH=tests/support $(BIN)/pytest -q -n 2 -m "shapes and not slow" tests \
		-p annotated_pass --jaxtyping-packages=foci,beartype.beartype

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "foci needs Python 3.11 or newer; name one with: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@
