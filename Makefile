# `make check` runs what CI runs, in the Python that is active. It needs an editable install: a
# plain one, as install.py makes it, would be checked as it was when it was installed. Set up once:
#   python3 -m venv .venv && . .venv/bin/activate && pip install -e '.[test]'

PYTHON ?= python3

.PHONY: check lint test mutants matrix audit

check: lint test

# import-linter and mypy read the source folders as they are.
lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	PYTHONPATH=shared lint-imports
	$(PYTHON) -m mypy shared/nsys_llm recipes install.py
	$(PYTHON) -m nsys_llm.install.derive --check

test:
	$(PYTHON) -m pytest -n auto

# Plants known bugs one at a time, and says which of them no test notices. Ten minutes and more.
mutants:
	$(PYTHON) tests/mutants/run.py

# Every combination of Python and libraries that is allowed and found; some minutes each.
matrix:
	$(PYTHON) tests/matrix.py

# Known weaknesses of what would be installed now, in an environment of its own. Needs a network.
audit:
	copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && \
	$(PYTHON) -m venv "$$copy/audit" && "$$copy/audit/bin/python" -m pip install -q pip-audit && \
	sed -n '/^dependencies = \[/,/^\]/s/^ *"\(.*\)",$$/\1/p' pyproject.toml > "$$copy/needs.txt" && \
	"$$copy/audit/bin/python" -m pip_audit --strict -r "$$copy/needs.txt"
