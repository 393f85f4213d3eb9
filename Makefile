# The two commands: `make up` runs the example, `make test` runs the tests.
# Both make .venv and install what they need into it; a second call finds it there.

PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/python -m pip --quiet --quiet --disable-pip-version-check --no-input
PINNED := --constraint constraints.txt --build-constraint constraints.txt
ARGS ?=
# An area of tests/areas.toml: only its tests run.
AREA :=
DIST ?= dist
# Processes that run tests: half of the time they wait for what they have started.
PROCESSES ?= 5
# Compiled modules are kept, whatever the environment says: tests start hundreds of processes.
PYTEST := PYTHONDONTWRITEBYTECODE= $(VENV)/bin/python -m pytest --numprocesses $(PROCESSES) --durations 10
FILES := $(VENV)/bin/python tests/areas.py $(AREA)

# Runs a command; on a terminal it counts the seconds, so that nobody takes it for stuck.
define timed
timed() { \
  say=$$1; shift; \
  [ -t 1 ] || { echo "$$say"; "$$@"; return; }; \
  ( s=0; while kill -0 $$$$ 2> /dev/null; do \
    printf '\r%s: %s s' "$$say" $$s; s=$$((s + 1)); sleep 1; done ) & \
  ticker=$$!; trap 'kill $$ticker 2> /dev/null; echo; exit 130' INT TERM; \
  "$$@"; status=$$?; \
  kill $$ticker 2> /dev/null; echo; return $$status; }; timed
endef

.DEFAULT_GOAL := help
.PHONY: help up test test-all parts check docs dist pictures bench chaos simulate range soak protections lock clean

help: ## Show the targets.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

up: $(VENV)/.runs ## Run the example agent, with everything it needs, until Ctrl-C.
	@exec $(VENV)/bin/boyd up examples/watch/agent.toml

test: $(VENV)/.tests ## Run the tests, except the slow ones; ARGS="-k words" or AREA=archive chooses some.
	@files=$$($(FILES)) && $(PYTEST) -m "not long" $$files $(ARGS)

test-all: $(VENV)/.tests parts ## Run all tests, or those of AREA; ARGS="-m long" runs only those that `make test` skips.
	@files=$$($(FILES)) && $(PYTEST) $$files $(ARGS)

parts: $(VENV)/.tests ## Install what only some tests need: an OpenID provider and MCP servers with npm, a small model, celery-exporter, generators of clients.
	@$(VENV)/bin/python tests/kits/npm_kit.py
	@$(VENV)/bin/python tests/kits/celery_exporter_kit.py
	@$(VENV)/bin/python tests/kits/small_model_kit.py
	@$(VENV)/bin/python tests/kits/client_kit.py
	@$(VENV)/bin/python tests/kits/helm_kit.py

check: $(VENV)/.tests ## Check lint, format, types, imports between packages, and the examples.
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo
	@$(VENV)/bin/boyd check examples/watch/agent.toml examples/investigate/agent.toml examples/goals/agent.toml examples/procedure/agent.toml examples/causes/agent.toml > /dev/null
	@for from in celery stackstorm rundeck; do $(VENV)/bin/boyd check examples/from-$$from/agent.toml > /dev/null || exit 1; done

docs: $(VENV)/.tests ## Build the documentation as a site in ./site; a broken link is an error.
	@$(VENV)/bin/properdocs build --strict --config-file mkdocs.yml
	@echo "open site/index.html"

dist: $(VENV)/.tests ## Build what a release has from the last commit, into ./dist: the same bytes everywhere.
	@$(VENV)/bin/python deploy/release/artefacts.py $(DIST)

pictures: $(VENV)/.tests ## Take the pictures of the console for the documentation, with Chromium.
	@exec $(VENV)/bin/python docs/pictures.py

bench: $(VENV)/.peers ## Run the benchmarks, beside other libraries; ARGS="s9 s9-crowd".
	@exec $(VENV)/bin/python tests/benchmarks/run.py $(ARGS)

soak: $(VENV)/.tests ## Check that Redis does not grow over 10 000 iterations; ARGS="--iterations 2000".
	@exec $(VENV)/bin/python tests/faults/soak.py $(ARGS)

chaos: $(VENV)/.tests ## Kill, stop and disconnect processes under load for half an hour; ARGS="--minutes 5".
	@exec $(VENV)/bin/python tests/faults/chaos.py $(ARGS)

simulate: $(VENV)/.tests ## Run the protocol in virtual time through random schedules for MINUTES=5; SEED=effect:17 repeats one.
	@cd tests && PYTHONHASHSEED=0 PYTHONPATH=.:kits exec ../$(VENV)/bin/python -m simulation $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

range: $(VENV)/.tests ## Break real services and see what is decided, verified and undone; ARGS="--rounds 1".
	@exec $(VENV)/bin/python tests/range/run.py $(ARGS)

protections: $(VENV)/.tests ## Check that a test fails when any one protection is removed; ARGS="--only P6".
	@exec $(VENV)/bin/python tests/faults/protections.py $(ARGS)

lock: ## Renew the image's requirements and hashes from constraints.txt (needs uv).
	@set -e; compile="uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --constraint constraints.txt"; \
	{ echo "# Requirements of the image, with hashes; renewed by \`make lock\`."; \
	  $$compile pyproject.toml --extra calendars --extra conditions --extra dns --extra goals --extra intakes --extra mcp --extra notify --extra oidc --extra otel --extra postgresql --extra rabbitmq --extra signatures --extra tls; } > deploy/requirements.txt; \
	{ echo "# Requirements of \`boyd up\` on one machine, with hashes; renewed by \`make lock\`."; \
	  $$compile pyproject.toml --extra embedded; } > deploy/embedded-requirements.txt; \
	{ echo "# Requirements to build the image's wheel, with hashes; renewed by \`make lock\`."; \
	  printf 'build\nhatchling\n' | $$compile -; } > deploy/build-requirements.txt

clean: ## Remove .venv and all generated files.
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -path ./.git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

# Each file says that an installation is complete; the larger one includes the smaller.

$(VENV)/.pip: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null || { \
	  echo "Boyd needs Python 3.11 or later; \`$(PYTHON) -V\` says: $$($(PYTHON) -V 2>&1)" >&2; \
	  echo "Name another one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(timed) "making $(VENV) with $$($(PYTHON) -V)" $(PYTHON) -m venv --clear $(VENV)
	@$(timed) "updating pip" $(VENV)/bin/python -m pip --quiet --quiet \
	  --disable-pip-version-check install --constraint constraints.txt --upgrade pip
	@touch $@

$(VENV)/.runs: $(VENV)/.pip pyproject.toml
	@$(timed) "installing boyd" $(PIP) install $(PINNED) --editable ".[conditions,embedded,goals]"
	@touch $@

$(VENV)/.tests: $(VENV)/.runs
	@$(timed) "installing what tests and checks need" \
	  $(PIP) install $(PINNED) --editable ".[embedded,testing,goals]" --group dev
	@touch $@

$(VENV)/.peers: $(VENV)/.tests
	@$(timed) "installing what Boyd is compared with" $(PIP) install $(PINNED) --group peers
	@touch $@
