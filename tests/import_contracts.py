"""Checks the contracts on imports in pyproject.toml: `python -m tests.import_contracts`.

Run it from the root of the repository. The source folders are read as they are there: an installed
package holds the recipes as a part of itself.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> int:
    """Return 1 if a contract is broken, and print which import breaks it."""
    sys.path[:0] = [str(Path("shared").resolve()), str(Path.cwd())]
    from importlinter.cli import lint_imports

    return lint_imports(no_cache=True)


if __name__ == "__main__":
    sys.exit(main())
