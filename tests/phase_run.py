"""Tables of nvtx_phase_attribution without writing them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import quick_run

RECIPE = "nvtx_phase_attribution"


def resolved(*words: str) -> dict[str, Any]:
    return quick_run.resolved(RECIPE, *words)


def quick(*words: str | Path) -> dict[str, Any]:
    """Return the tables of a run by its command line, see `quick_run.quick`."""
    return quick_run.quick(RECIPE, *words)
