"""Whether a step of both runs does as much, by the numbers in the names of steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from nsys_llm.view.text import format_count

from .checks import SAME, STEP_TIMES, TOTALS, WORK, WORK_OF_ALL, Row, check_row
from .runs import Runs
from .workload_match import SAME_WORK_PCT

#: Labels that are named at most, those that changed most first.
_MOST_LABELS: Final = 3


@dataclass(frozen=True)
class _Amount:
    """What steps do of one thing on both sides, in the mean."""

    label: str
    before: float
    after: float

    @property
    def apart_pct(self) -> float:
        return 100 * abs(self.after - self.before) / max(self.before, self.after, 1e-9)


def work_rows(runs: Runs) -> Iterator[Row]:
    """Yield the checks of what a step does, and of what all steps do where that differs too."""
    amounts = _amounts(runs)
    if not amounts:
        yield check_row(WORK, [None, None], SAME, "the names of the steps tell no amounts")
        return
    if not _changed(runs, amounts):
        shown = _shown(amounts)
        yield check_row(WORK, shown, SAME, "about as much in a step")
        return
    apart = sorted(amounts, key=lambda amount: (-amount.apart_pct, amount.label))
    shown = _shown([item for item in apart if item.apart_pct > SAME_WORK_PCT] or apart)
    yield check_row(WORK, shown, STEP_TIMES, "a step does another amount of work")
    if runs.steps is not None and runs.steps[0] == runs.steps[1]:
        meaning = "as many steps with another amount of work each"
        yield check_row(WORK_OF_ALL, shown, TOTALS, meaning)


def _amounts(runs: Runs) -> list[_Amount]:
    """Return what the names of the steps of both runs tell; nothing where they are not the same."""
    if runs.steps is None:
        return []
    before, after = runs.baseline.step_numbers, runs.input.step_numbers
    return [
        _Amount(label, before[label][1] / before[label][0], after[label][1] / after[label][0])
        for label in sorted(before.keys() & after.keys())
    ]


def _changed(runs: Runs, amounts: list[_Amount]) -> bool:
    """Tell whether steps do another amount: of tokens where these are known, else of anything."""
    if runs.steps is None:
        return False
    tokens = runs.baseline.tokens_n, runs.input.tokens_n
    if tokens[0] is None or tokens[1] is None:
        return any(amount.apart_pct > SAME_WORK_PCT for amount in amounts)
    a_step = tokens[0] / runs.steps[0], tokens[1] / runs.steps[1]
    if 100 * abs(a_step[1] - a_step[0]) > SAME_WORK_PCT * max(a_step):
        return True
    # As many tokens, of another kind: a part of them moved by so much of them all.
    return any(
        100 * abs(amount.after - amount.before) > SAME_WORK_PCT * max(a_step)
        for amount in amounts
        if amount.label.endswith("tokens")
    )


def _shown(amounts: list[_Amount]) -> list[str | None]:
    some = amounts[:_MOST_LABELS]
    return [
        ", ".join(f"{item.label} {_number(item.before)}" for item in some),
        ", ".join(f"{item.label} {_number(item.after)}" for item in some),
    ]


def _number(value: float) -> str:
    return format_count(int(value)) if value.is_integer() else f"{value:.4g}"
