# `make` lists the targets. `make book` and `make test` do all set-up themselves.
#
# PYTHON  the interpreter that .venv is made with, for example: make book PYTHON=python3.12
# PORT    where `make serve` listens
# URL     for `make repository`

PYTHON ?=
PORT ?= 8000
URL ?=

VENV_PYTHON := .venv/bin/python
READY := .venv/ready

.DEFAULT_GOAL := help
.PHONY: help book serve test test-all test-newest test-lowest test-notebooks audit mutants bench numerics gpu format repository clean clean-all

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | while IFS='|' read -r name words; do printf 'make %-14s %s\n' "$$name" "$$words"; done

# A stamp: set-up runs again only when what it installs has changed.
$(READY): requirements.txt constraints.txt pyproject.toml tools/steps.py
	@python=$$(sh tools/find_python.sh "$(PYTHON)") && "$$python" tools/steps.py set-up
	@touch $@

book: $(READY) ## build the book into _build/html
	@$(VENV_PYTHON) tools/steps.py book

serve: book ## build the book and serve it on this machine
	@$(VENV_PYTHON) tools/serve.py "$(PORT)"

test: $(READY) ## check format, lint, spelling, types, imports; run the tests; build the book; test its pages
	@$(VENV_PYTHON) tools/steps.py test

test-all: $(READY) ## the same, with the tests that are too long for every run, test-newest and test-lowest
	@$(VENV_PYTHON) tools/steps.py test-all

test-newest: ## the tests of the mathematics on the newest Python, in an environment of their own
	@python=$$(sh tools/find_python.sh "$(PYTHON)") && "$$python" tools/steps.py test-newest

test-lowest: ## the tests of the mathematics on the lowest torch that pyproject.toml allows
	@python=$$(sh tools/find_python.sh "$(PYTHON)") && "$$python" tools/steps.py test-lowest

test-notebooks: $(READY) ## every chapter alone, as in Colab, on the plotly that is newest today
	@$(VENV_PYTHON) tools/steps.py test-notebooks

audit: ## ask the advisory database about every version that is pinned
	@python=$$(sh tools/find_python.sh "$(PYTHON)") && "$$python" tools/steps.py audit

mutants: $(READY) ## change the mathematics at random and see whether the tests notice (a quarter of an hour)
	@$(VENV_PYTHON) benchmarks/mutation.py

bench: $(READY) ## measure what rotations cost, beside other people's (forty minutes, idle): results/rotation_speed
	@$(VENV_PYTHON) tools/steps.py bench

numerics: $(READY) ## measure how exact rotations are up to position 1,000,000, and other people's: results/numerics
	@$(VENV_PYTHON) tools/steps.py numerics

gpu: $(READY) ## ask a GPU everything that there is to ask, in eight minutes: results/gpu_*
	@$(VENV_PYTHON) tools/steps.py gpu

format: $(READY) ## format the code, mend what ruff can mend, strip the notebooks' outputs
	@$(VENV_PYTHON) -m nbstripout book/*.ipynb
	@$(VENV_PYTHON) -m ruff check --fix .
	@$(VENV_PYTHON) -m ruff format .

repository: ## point every file at another repository: make repository URL=https://github.com/owner/name
	@python=$$(sh tools/find_python.sh "$(PYTHON)") && "$$python" tools/repository.py "$$URL"

clean: ## remove the built book and the tools' caches
	rm -rf _build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

clean-all: clean ## remove .venv, its kin and .bench too
	rm -rf .venv .venv-* .bench
