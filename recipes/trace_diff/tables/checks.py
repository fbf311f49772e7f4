"""One check of comparability: what it says of both sides, and what that means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

SAME: Final = "same"
#: Not recorded, so that nobody knows.
UNKNOWN: Final = "unknown"
DIFFERS: Final = "differs"
#: Sums over a run mean nothing against those of the other; what is per step or a share does.
TOTALS: Final = "totals"
ALL: Final = "all"

#: Times per step mean nothing against those of the other.
STEP_TIMES: Final = "per_step"
#: What keeps gates from being decided, and what each keeps from being compared.
BLOCKING: Final = {
    ALL: "The runs",
    TOTALS: "Sums over the runs",
    STEP_TIMES: "Kernel times per step",
}

#: The checks of launches, of steps, of windows, of what steps do, and of kernels' names.
KERNELS: Final = "kernels"
STEPS: Final = "steps"
WINDOW: Final = "window"
WORK: Final = "work of a step"
WORK_OF_ALL: Final = "work of all steps"
NAMES: Final = "kernel names in common"

Row = dict[str, str | None]


def check_row(check: str, sides: Sequence[str | None], status: str, meaning: str) -> Row:
    """Return a row of the table comparability."""
    before, after = sides
    return {
        "check": check,
        "baseline": before,
        "input": after,
        "status": status,
        "meaning": meaning,
    }
