"""A stand-in for an nsys that fails, and tells of folders as the real one does."""

from __future__ import annotations

FAILING_NSYS = """#!{python}
import sys
report, made = sys.argv[-1], sys.argv[sys.argv.index("--output") + 1]
sys.exit(f"Failed to create '{{made}}': Error on file '{{report}}': unknown format.")
"""
