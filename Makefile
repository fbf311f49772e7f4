# The loop, told in CONTRIBUTING.md. All of it needs an editable install: a plain one, as install.py
# makes it, would be checked as it was when it was installed. Set up once:
#   python3 -m venv .venv && . .venv/bin/activate && pip install -e '.[test]'

PYTHON ?= python3
NSYS ?= $(NSYS_LLM_TEST_NSYS)
# What takes long, or needs more than Python.
NOT_QUICK = not slow and not cluster and not nsys and not traces and not browser

.PHONY: quick check lint test nightly matrix mutants campaigns audit

# While writing: under two minutes on two cores.
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
	$(PYTHON) -m pytest -n auto --dist loadfile --no-loadscope-reorder --hypothesis-profile ci

# What is too long for every commit; hours. CONTRIBUTING.md lists it.
nightly: lint
	$(PYTHON) -m pytest -n auto --dist loadfile --no-loadscope-reorder --hypothesis-profile nightly --nightly
	$(MAKE) mutants campaigns matrix

# Plants known bugs one at a time, and says which of them no test notices.
mutants:
	$(PYTHON) tests/mutants/run.py

# Hostile input, and what may happen to a run; minutes here, longer as docs/robustness.md says.
campaigns:
	for target in archives files names options pages parquet parquet-reader patterns sqlite \
		sqlite-reader; do $(PYTHON) tests/campaigns/fuzz.py $$target --seconds 300 || exit 1; done
	$(PYTHON) tests/campaigns/faults.py --injections 230
	$(if $(NSYS),$(PYTHON) tests/campaigns/faults.py --injections 24 --nsys $(NSYS))

# Every combination of Python and libraries that is allowed and found; some minutes each.
matrix:
	$(PYTHON) tests/matrix.py

# Known weaknesses of what would be installed now, in an environment of its own. Needs a network.
audit:
	copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && \
	$(PYTHON) -m venv "$$copy/audit" && "$$copy/audit/bin/python" -m pip install -q pip-audit && \
	sed -n '/^dependencies = \[/,/^\]/s/^ *"\(.*\)",$$/\1/p' pyproject.toml > "$$copy/needs.txt" && \
	"$$copy/audit/bin/python" -m pip_audit --strict -r "$$copy/needs.txt"
