# The loop, told in CONTRIBUTING.md. All of it needs an editable install: a plain one, as install.py
# makes it, would be checked as it was when it was installed. Set up once:
#   python3 -m venv .venv && . .venv/bin/activate && pip install -e '.[test]'

PYTHON ?= python3
# What is compiled once, tests with their assertions above all, each process would compile again.
unexport PYTHONDONTWRITEBYTECODE
# What takes long, or needs more than Python.
NOT_QUICK = not slow and not cluster and not nsys and not traces and not browser

.PHONY: quick check lint test nightly tests mutants campaigns matrix audit

# While writing: at most 90 s on two cores.
quick: lint
	$(PYTHON) -m pytest -q -n auto --dist loadfile --no-loadscope-reorder -m "$(NOT_QUICK)"

# Before a commit: what CI runs, in the Python that is active.
check: lint test

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m tests.import_contracts
	$(PYTHON) -m mypy shared/nsys_llm recipes install.py
	$(PYTHON) -m nsys_llm.install.derive --check

test:
	$(PYTHON) -m pytest -n auto --dist loadfile --no-loadscope-reorder --hypothesis-profile ci --durations 20

# What is too long for every commit, in parts that are written to a ledger: tests/nightly.py says more.
# None waits for another to pass; `make tests SHARD=3/4` runs one part.
nightly:
	$(MAKE) -k lint tests mutants campaigns matrix; code=$$?; \
	$(PYTHON) tests/nightly.py ledger; exit $$code

tests mutants campaigns matrix:
	$(PYTHON) tests/nightly.py $@ $(SHARD)

# Known weaknesses of what would be installed now, in an environment of its own. Needs a network.
audit:
	copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && \
	$(PYTHON) -m venv "$$copy/audit" && "$$copy/audit/bin/python" -m pip install -q pip-audit && \
	sed -n '/^dependencies = \[/,/^\]/s/^ *"\(.*\)",$$/\1/p' pyproject.toml > "$$copy/needs.txt" && \
	"$$copy/audit/bin/python" -m pip_audit --strict -r "$$copy/needs.txt"
