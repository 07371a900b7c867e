# Muniment. GNU make 3.81 or newer; nothing else but Python 3.11 to 3.13 is needed.
.DEFAULT_GOAL := help
.PHONY: help run demo stop test check lint types contracts migrations docs translations bench pictures lock clean .run-packages .dev-packages
MAKEFLAGS += --no-print-directory
unexport VIRTUAL_ENV PYTHONHOME PYTHONPATH

PY := .venv/bin/python
PYTHON ?=
# What pytest is given: make test ARGS="tests/memory -k retract"
ARGS ?=
# What make run installs besides: make run EXTRAS="llm pii"
EXTRAS ?=

# The first Python that is new enough makes .venv; afterwards .venv's own looks after it.
define install
	@for python in $(PY) $(PYTHON) python3.13 python3.12 python3.11 python3; do \
	  "$$python" -I -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1 || continue; \
	  exec "$$python" -I config/install.py $(1); \
	done; echo "muniment: no Python 3.11, 3.12 or 3.13 found; name one with make PYTHON=/path/to/python3" >&2; exit 2
endef

.run-packages:
	$(call install,run $(EXTRAS))

.dev-packages:
	$(call install,dev $(EXTRAS))

help: ## Show what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' Makefile

run: .run-packages ## Set everything up, print the demonstration, serve on 127.0.0.1 until Ctrl-C
	@$(PY) -m config.launch run --with-parent

demo: .run-packages ## Set everything up, print the demonstration, stop
	@$(PY) -m config.launch demo --with-parent

stop: .run-packages ## Stop what runs on MUNIMENT_HOME
	@$(PY) -m config.launch stop

test: .dev-packages ## Run the tests on a PostgreSQL of their own (ARGS="..." goes to pytest)
	@$(PY) -m pytest $(if $(DATABASE_URL),,-n auto --maxprocesses 4 --dist loadfile) $(ARGS)

check: lint types contracts migrations docs test ## Everything that must hold: lint, types, contracts, migrations, docs, tests

lint: .dev-packages ## Style and formatting
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

types: .dev-packages ## Types
	@$(PY) -m mypy .

contracts: .dev-packages ## Who may import whom
	@$(PY) -c 'from importlinter.cli import lint_imports_command as lint; lint()'

migrations: .dev-packages ## Models and migrations agree
	@MUNIMENT_ROLE=owner $(PY) -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run

docs: .dev-packages ## The documents name what is there
	@$(PY) -m pytest tests/docs

translations: .dev-packages ## Bring the catalogues of translations up to date (needs GNU gettext)
	@$(PY) -W ignore manage.py makemessages --all --add-location file --no-wrap --ignore tests --ignore benchmarks --ignore docs --ignore build
	@$(PY) -W ignore manage.py compilemessages --locale de --ignore .venv

bench: .dev-packages ## Measure, side by side with others; writes benchmarks/results.json
	@$(PY) -m benchmarks $(ARGS)

pictures: .dev-packages ## Take the pictures of README and guides anew (needs Chromium)
	@set -e; fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
	MUNIMENT_PICTURES="$$fresh" $(PY) -m pytest tests/browser/test_pages.py tests/browser/test_desk.py tests/browser/test_procedures.py; \
	for name in overview-light desk-item-light desk-conflict-dark candidate-shown-light candidate-shown-dark subject-light subject-then-dark key-shown-light second-factor-set-up-light procedure-shown-light procedure-active-light; do \
	  cp "$$fresh/$$name.png" docs/pictures/; done; \
	$(PY) -m tests.browser.small docs/pictures

lock: .run-packages ## Resolve the dependencies anew into all locks
	@set -e; fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
	$(PY) -m venv "$$fresh/venv"; "$$fresh/venv/bin/python" -m pip install -qq --disable-pip-version-check uv; \
	resolve() { UV_SYSTEM_CERTS=1 "$$fresh/venv/bin/python" -m uv pip compile --quiet --universal --python-version 3.11 \
	  --no-emit-index-url --no-emit-find-links --generate-hashes --custom-compile-command "make lock" "$$@"; }; \
	resolve pyproject.toml --output-file requirements.lock $(ARGS); \
	resolve pyproject.toml --extra test --extra check --constraint requirements.lock --output-file requirements-dev.lock $(ARGS); \
	for extra in llm pii sso; do \
	  resolve pyproject.toml --extra $$extra --constraint requirements.lock --constraint requirements-dev.lock --output-file requirements-$$extra.lock $(ARGS); \
	done

clean: ## Remove .venv and caches; the data folder stays
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .static build
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
