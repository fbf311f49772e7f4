"""The table kernels as its readers need it: sums or times per step, whichever the runs allow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from nsys_llm.report.records import Tables
from nsys_llm.trace.rank_sets import COMPARED
from nsys_llm.view.text import NOT_KNOWN, quoted

from ..tables.checks import SAME, WORK
from ..tables.kernels import BOTH
from ..tables.sizes import sizes_of
from ..tables.workload_match import COMMON_PCT

#: Launch sizes of a kernel changed if more than this share of its per-call effect is theirs; ours.
_MOVED_SHARE: Final = 0.05
#: A kernel runs at other sizes throughout if less than this share of the launches of a side has a
#: size that the other side has too; ours.
_LEAST_COMMON: Final = 0.5


@dataclass(frozen=True)
class Basis:
    """Kernels with what changed, on one basis.

    Attributes:
        kernels: Columns name, category, operation, communication, status, verdict, baseline_n,
            input_n, ratio (of means), p50_pct (change of the median), q, and in ns before, after,
            change, count, per_call. Of launch sizes (see `sizes`): same (the per-call effect at
            equal grids and blocks), size (the rest of it), sure (the tested part of same), ns;
            same_ratio, moved (sizes changed), resized (other sizes throughout), geometry,
            baseline_threads, input_threads.
        steps: Steps of both sides where times and numbers are a step and rank; None where they are
            over all ranks.
        same_work: Whether a step does as much on both sides, by the names of steps; None where
            they do not say.
    """

    kernels: pd.DataFrame
    steps: tuple[int, int] | None
    same_work: bool | None = None

    @property
    def other_work(self) -> bool:
        """Whether a step of the input is known to do another amount of work."""
        return self.same_work is False

    @property
    def other_programs(self) -> bool:
        """Whether the runs have less than half of a side's kernel time in kernels of both."""
        both = self.kernels[self.kernels["status"] == BOTH]
        return bool(
            100 * both["before"].sum() < COMMON_PCT * self.before_ns
            or 100 * both["after"].sum() < COMMON_PCT * self.after_ns
        )

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
    return Basis(_with_sizes(frame, tables["configs"], divisors), steps, _same_work(tables))


def _with_sizes(frame: pd.DataFrame, configs: pd.DataFrame, steps: tuple[int, int]) -> pd.DataFrame:
    """Add what launch sizes tell; a kernel of one side, or without sizes, has not moved."""
    sizes = sizes_of(configs)
    kernel_sizes = sizes[sizes["known"]].reindex(frame["name"]).reset_index(drop=True)
    known = kernel_sizes["same_ns"].notna()
    same = (kernel_sizes["same_ns"].astype("float64") / steps[1]).where(known, frame["per_call"])
    size = frame["per_call"] - same
    moved = known & (size.abs() > _MOVED_SHARE * frame["per_call"].abs())
    return frame.assign(
        same=same,
        size=size,
        sure=kernel_sizes["sure_ns"].astype("float64").fillna(0.0) / steps[1],
        same_ratio=kernel_sizes["same_ratio"].astype("float64"),
        moved=moved,
        resized=known & (kernel_sizes["common"].astype("float64") < _LEAST_COMMON),
        geometry=kernel_sizes["geometry"],
        baseline_threads=kernel_sizes["baseline_threads"].astype("float64") / steps[0],
        input_threads=kernel_sizes["input_threads"].astype("float64") / steps[1],
    )


def _same_work(tables: Tables) -> bool | None:
    """Return what the names of steps say of the work of a step."""
    if pd.notna(tables["verdict"]["work"].iloc[0]):
        return False
    rows = tables["comparability"].set_index("check")
    if WORK not in rows.index or pd.isna(rows.loc[WORK, "baseline"]):
        return None
    return bool(rows.loc[WORK, "status"] == SAME)


def both_sides(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return what both sides of a check say, as names out of traces; a dash for nothing."""
    before, after = (
        quoted(row[side]) if isinstance(row[side], str) else NOT_KNOWN for side in COMPARED
    )
    return before, after


def _steps(tables: Tables) -> tuple[int, int] | None:
    """Return the steps of both sides where kernels are told per step."""
    kernels, runs = tables["kernels"], tables["runs"].set_index("run")["steps_n"]
    if kernels.empty or runs[list(COMPARED)].isna().any():
        return None
    if kernels["step_change_ns"].isna().all():
        return None
    return int(runs["baseline"]), int(runs["input"])
