"""Which reports a run compares with which: its sides, from what was typed. Pure.

A recipe over one set of ranks has one side, "". A recipe that compares has a baseline and an
input, each a set of ranks of its own, and any number of further runs of the baseline, which tell
how much runs differ that should be equal. The side travels with the path of each report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from nsys_llm.core.errors import UsageError

BASELINE: Final = "baseline"
INPUT: Final = "input"
#: What is compared; all other sides only tell how much runs differ anyway.
COMPARED: Final = (BASELINE, INPUT)


def repeat_side(number: int) -> str:
    """Return the side of a further run of the baseline, counted from 1."""
    return f"{BASELINE}-{number}"


def entries_by_side(options: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """Return what was typed for each side.

    Args:
        options: By name. Without the option `baseline` all of `input` is one set. With it, but
            not given, two entries of `input` are baseline and input. Each entry of `baselines` is
            a run of its own.

    Raises:
        UsageError: There is no baseline to compare with.
    """
    given: list[str] = list(options["input"])
    if "baseline" not in options:
        return {"": given}
    baseline = options["baseline"]
    if baseline is None:
        if len(given) != 2:
            raise UsageError(
                "two runs are compared: give --baseline and --input, or two entries after "
                f"--input, first the baseline; there {'is' if len(given) == 1 else 'are'} "
                f"{len(given)}."
            )
        baseline, given = given[:1], given[1:]
    repeats = {
        repeat_side(number): [entry]
        for number, entry in enumerate(options.get("baselines") or (), start=1)
    }
    return {BASELINE: list(baseline), INPUT: given, **repeats}
