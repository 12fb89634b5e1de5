# Every target does its own set-up: environment, installation, servers, migrations. Nothing is left running.
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
CANDIDATES := $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python)
FITS := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore

.DEFAULT_GOAL := help
.PHONY: help setup demo up test check schemas format bench clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## install into .venv (the others do it themselves)

demo: $(STAMP) ## about 28,000 real airports on a real stack; ROWS=n, PLAY=leads|approvals|parent
	@$(PY) -m examples.demo $(if $(PLAY),--play $(PLAY)) $(if $(ROWS),--rows $(ROWS)) $(ARGS)

up: $(STAMP) ## the whole stack in the foreground, until Ctrl-C
	@$(PY) -m workers.cli.main up $(ARGS)

test: $(STAMP) ## all tests; ARGS="-k name" passes on to pytest
	@$(PY) -m pytest $(ARGS)

check: $(STAMP) ## format, lint, types, import contracts, sizes
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m pyright
	$(VENV)/bin/lint-imports
	$(PY) -m pytest -q tests/architecture

schemas: $(STAMP) ## write the JSON schemas of messages and events anew
	@$(PY) -m runtime.message_schemas

format: $(STAMP) ## format and mend what can be mended
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

BENCHES := $(basename $(notdir $(shell grep -l '^if __name__' bench/*.py)))
bench: $(STAMP) ## one benchmark; BENCH=name, ROWS=n where it takes rows
	@if [ -n "$(BENCH)" ] && [ -n "$(filter $(BENCH),$(BENCHES))" ]; then $(PY) -m bench.$(BENCH) $(if $(ROWS),--rows $(ROWS)) $(ARGS); \
	else echo "name a benchmark: make bench BENCH=name, one of: $(BENCHES)" >&2; exit 2; fi

clean: ## remove .venv and .playlane
	rm -rf $(VENV) .playlane

$(STAMP): pyproject.toml
	@set -e; \
	if ! $(PY) -c '$(FITS)' >/dev/null 2>&1 || ! $(PY) -m pip --version >/dev/null 2>&1; then \
	  found=; \
	  for candidate in $(CANDIDATES); do \
	    if "$$candidate" -c '$(FITS)' >/dev/null 2>&1; then found=$$candidate; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo "playlane needs Python 3.11, 3.12 or 3.13 with its venv module, and found none among: $(CANDIDATES);" \
	      "install one (Debian and Ubuntu: python3-venv) or name it with make PYTHON=/path/to/python3" >&2; \
	    exit 1; \
	  fi; \
	  "$$found" -m venv --clear $(VENV); \
	fi; \
	echo "installing playlane into $(VENV); this happens once"; \
	$(PY) -m pip install --quiet --editable '.[servers,examples,dev]'; \
	touch $@
