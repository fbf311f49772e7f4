"""The table kernels as its readers need it: sums or times per step, whichever the runs allow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from nsys_llm.sides import COMPARED
from nsys_llm.view.text import NOT_KNOWN, quoted

__all__ = ["Basis", "Tables", "basis_of", "both_sides"]

Tables = Mapping[str, pd.DataFrame]


@dataclass(frozen=True)
class Basis:
    """Kernels with what changed, on one basis.

    Attributes:
        kernels: Columns name, category, operation, communication, status, verdict, baseline_n,
            input_n, ratio (of means), p50_pct (change of the median), q, and in ns before, after,
            change, count, per_call.
        steps: Steps of both sides where times and numbers are a step and rank; None where they are
            over all ranks.
    """

    kernels: pd.DataFrame
    steps: tuple[int, int] | None

    @property
    def per_step(self) -> bool:
        """Whether times and numbers are a step and rank."""
        return self.steps is not None

    @property
    def shares(self) -> tuple[int, int]:
        """What sums of both sides are divided by."""
        return self.steps or (1, 1)

    @property
    def before_ns(self) -> float:
        """Kernel time of the baseline."""
        return float(self.kernels["before"].sum())

    @property
    def after_ns(self) -> float:
        """Kernel time of the input."""
        return float(self.kernels["after"].sum())

    @property
    def a_step(self) -> str:
        """What to say after an amount."""
        return " a step and rank" if self.per_step else ""


def basis_of(tables: Tables) -> Basis:
    """Return the kernels per step where steps differ in number, else as sums."""
    kernels = tables["kernels"]
    steps = _steps(tables)
    if steps is not None and steps[0] == steps[1]:
        steps = None
    divisors = steps or (1, 1)
    columns = {
        name: kernels[name]
        for name in ("name", "category", "operation", "communication", "status", "verdict")
    }
    numbers = ("before", "after", "change", "count", "per_call")
    sums = (
        "baseline_total_ns",
        "input_total_ns",
        "change_ns",
        "count_effect_ns",
        "per_call_effect_ns",
    )
    steps_of = (
        "baseline_step_ns",
        "input_step_ns",
        "step_change_ns",
        "step_count_effect_ns",
        "step_per_call_effect_ns",
    )
    chosen = sums if steps is None else steps_of
    frame = pd.DataFrame(
        {
            **columns,
            "ratio": kernels["mean_ratio"].astype("float64"),
            "p50_pct": kernels["p50_change_pct"].astype("float64"),
            "q": kernels["q_value"].astype("float64"),
            "baseline_n": kernels["baseline_launches_n"] / divisors[0],
            "input_n": kernels["input_launches_n"] / divisors[1],
            **{
                name: kernels[column].astype("float64")
                for name, column in zip(numbers, chosen, strict=True)
            },
        }
    )
    return Basis(frame, steps)


def both_sides(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return what both sides of a check say, as names out of traces; a dash for nothing."""
    before, after = (
        quoted(row[side]) if isinstance(row[side], str) else NOT_KNOWN for side in COMPARED
    )
    return before, after


def _steps(tables: Tables) -> tuple[int, int] | None:
    """Return the steps of both sides where kernels are told per step."""
    kernels, runs = tables["kernels"], tables["runs"].set_index("side")["steps_n"]
    if kernels.empty or kernels["step_change_ns"].isna().all():
        return None
    return int(runs["baseline"]), int(runs["input"])
