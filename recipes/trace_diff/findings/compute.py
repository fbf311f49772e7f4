"""What explains a change of computation: kernels that run longer, more often, or are other ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from nsys_llm.report.causes import Cause
from nsys_llm.report.findings import cells
from nsys_llm.report.records import Tables, records
from nsys_llm.taxonomy.wall_classes import COMPUTE
from nsys_llm.view.text import counted, format_ns, format_percent, listed, quoted

from ..tables.comparability import ALIKE_PCT, LEAST_CHANGE_PCT
from ..tables.sizes import sizes_of
from ..tables.verdicts import IMPROVE, REGRESS
from .change import LEAST_SHARE, ClassCost, Clock, Explained, changed, number_of, times
from .texts import (
    LEAST_SLOWDOWN_PCT,
    RANK_POINTS,
    SAME_GRID_PCT,
    SAME_RATIO_PCT,
    SAME_RATIO_SHARE_PCT,
    SPLIT_RATIO,
)

#: Kernels that are named at most.
_MOST_NAMES: Final = 3
#: A change is that of one rank if it has so much of it; ours.
_ONE_RANK_SHARE: Final = 0.75
#: Calls run at other sizes if less of them have a size that the other run has, too; ours.
_LEAST_COMMON: Final = 0.5


@dataclass(frozen=True)
class _Part:
    """Part of a change of computation: some kernels, ns a step and rank."""

    rule: str
    change_ns: float
    what: str
    name: str
    numbers: dict[str, float]


def explain_compute(tables: Tables, clock: Clock, cost: ClassCost) -> Explained:
    """Return what explains the change of computation."""
    frame = _frame(tables)
    rank = _one_rank(tables, clock, cost)
    if rank is not None:
        return rank
    throughout = _throughout(frame)
    if throughout is not None and throughout[0] * cost.mean_ns > 0:
        pct, what = throughout
        return Explained(
            "slower_throughout" if pct > 0 else "faster_throughout",
            what,
            Cause("kernels", detail="all"),
            numbers={"moved_pct": abs(pct)},
        )
    parts = sorted(_parts(frame), key=lambda part: (-abs(part.change_ns), part.name))
    large = [part for part in parts if part.change_ns * cost.mean_ns > 0]
    large = [part for part in large if abs(part.change_ns) >= LEAST_SHARE * abs(cost.mean_ns)]
    if not large:
        return _in_all(frame, cost)
    shown = large[:_MOST_NAMES]
    numbers = {
        f"kernel{place}_{key}": value
        for place, part in enumerate(shown)
        for key, value in {**part.numbers, "change_ns": part.change_ns}.items()
    }
    first = shown[0]
    what = "; ".join(f"{part.what} ({changed(part.change_ns)})" for part in shown)
    return Explained(
        first.rule,
        what,
        Cause("kernels", detail=first.name),
        first.name,
        {"name": quoted(first.name)},
        numbers,
    )


def _frame(tables: Tables) -> pd.DataFrame:
    """Return the kernels that compute, as they are compared, with what sizes tell."""
    kernels = tables["kernels"]
    kernels = kernels[~kernels["communication"]]
    sizes = sizes_of(tables["configs"]).reindex(kernels["name"])
    frame = pd.DataFrame(
        {
            name: kernels[column].to_numpy()
            for name, column in {
                "name": "name", "category": "category", "operation": "operation",
                "status": "status", "verdict": "verdict",
                "before": "baseline_compared_ns", "after": "input_compared_ns",
                "change": "compared_change_ns", "n0": "baseline_compared_calls",
                "n1": "input_compared_calls", "threads0": "baseline_compared_threads",
                "threads1": "input_compared_threads",
            }.items()
        }
    )  # fmt: skip
    frame = frame.assign(
        resized=sizes["common"].to_numpy("float64") < _LEAST_COMMON,
        geometry=sizes["geometry"].to_numpy(object),
        ratio=(frame["after"] / frame["n1"]) / (frame["before"] / frame["n0"]),
    )
    return frame[(frame["before"] > 0) | (frame["after"] > 0)]


def _parts(frame: pd.DataFrame) -> Iterator[_Part]:
    both = (frame["n0"] > 0) & (frame["n1"] > 0)
    for row in records(frame[both]):
        yield _of_kernel(row)
    alone = frame[~both]
    if alone.empty:
        return
    sides = {
        category: set((rows["n1"] > 0).tolist()) for category, rows in alone.groupby("category")
    }
    # Fused kernels do the work of several categories: what is only new and what is only gone.
    single = [category for category, statuses in sides.items() if len(statuses) == 1]
    exchanged = {status for category in single for status in sides[category]} == {True, False}
    groups = [(c, [c]) for c in sides if not (exchanged and c in single)]
    if exchanged:
        some = alone[alone["category"].isin(single) & (alone["n0"] > 0)]
        groups.append((str(some.groupby("category")["before"].sum().idxmax()), single))
    for category, of in groups:
        yield _exchange(str(category), alone[alone["category"].isin(of)])


def _of_kernel(row: Any) -> _Part:
    """Return what changed in a kernel of both runs."""
    name, n0, n1 = quoted(row["name"]), row["n0"], row["n1"]
    if isinstance(row["operation"], str):
        name = f"{name} ({row['operation']})"
    numbers = {"baseline_n": n0, "input_n": n1, "ratio": row["ratio"],
               "ratio_pct": 100 * (row["ratio"] - 1)}  # fmt: skip
    counts = f"{number_of(n0)} -> {number_of(n1)} calls"
    more = 100 * abs(n1 / n0 - 1) > ALIKE_PCT
    if row["resized"] is True:
        grids = row["threads1"] / row["threads0"] if row["threads0"] else np.nan
        split = 100 * abs(grids - 1) <= SAME_GRID_PCT
        if split and not 1 / SPLIT_RATIO < n1 / n0 < SPLIT_RATIO:
            rule = "split_launches" if n1 > n0 else "merged_launches"
            how = "split into smaller" if n1 > n0 else "merged into larger"
            what = f"{name} is {how} launches of the same total grid, {counts}"
        else:
            rule, geometry = "other_sizes", quoted(row["geometry"])
            what = f"{name} runs at another size, {geometry}, {counts}"
        return _Part(rule, row["change"], what, row["name"], numbers)
    longer = abs(row["ratio"] - 1) * 100 >= LEAST_CHANGE_PCT
    count_ns = (n1 - n0) * row["before"] / n0
    if more and abs(count_ns) >= abs(row["change"] - count_ns):
        rule = "more_calls" if n1 > n0 else "fewer_calls"
        return _Part(rule, row["change"], f"{name}: {counts}", row["name"], numbers)
    if row["verdict"] in (REGRESS, IMPROVE) or not longer:
        rule = "slower_calls" if row["ratio"] > 1 else "faster_calls"
        what = f"{name} takes {times(row['ratio'])} per call in {number_of(n1)} calls"
    else:
        rule = "uneven_calls"
        what = (
            f"{name} takes {times(row['ratio'])} per call in the mean of {number_of(n1)} calls, "
            "and the typical call does not"
        )
    return _Part(rule, row["change"], what, row["name"], numbers)


def _exchange(category: str, rows: pd.DataFrame) -> _Part:
    come, gone = rows[rows["n1"] > 0], rows[rows["n0"] > 0]
    come_ns, gone_ns = float(come["after"].sum()), float(gone["before"].sum())
    parts = []
    if len(come):
        largest = str(come.sort_values("after", ascending=False)["name"].iloc[0])
        parts.append(
            f"{counted(len(come), f'new {quoted(category)} kernel')}, the largest "
            f"{quoted(largest)}, {format_ns(come_ns)}"
        )
    if len(gone):
        parts.append(f"{counted(len(gone), 'kernel')} of {format_ns(gone_ns)} gone")
    numbers = {"new_n": float(len(come)), "gone_n": float(len(gone)),
               "new_ns": come_ns, "gone_ns": gone_ns}  # fmt: skip
    return _Part("other_kernels", come_ns - gone_ns, ", ".join(parts), category, numbers)


def _throughout(frame: pd.DataFrame) -> tuple[float, str] | None:
    """Return by how many percent nearly all kernels changed alike, in a clause."""
    rows = frame[(frame["n0"] > 0) & (frame["n1"] > 0)]
    alike_n = (rows["n1"] / rows["n0"] - 1).abs() <= 0.01
    rows, whole_ns = rows[alike_n & ~rows["resized"]], float(rows["before"].sum())
    if len(rows) < 3 or not whole_ns:
        return None
    common = float(rows["after"].sum() / rows["before"].sum())
    moved_pct = 100 * abs(common - 1)
    # Kernels that did not change are not alike, however little the others did.
    apart = 100 * (rows["ratio"] / common - 1).abs()
    alike_ns = float(rows.loc[apart <= min(SAME_RATIO_PCT, moved_pct / 2), "before"].sum())
    if moved_pct < LEAST_SLOWDOWN_PCT or 100 * alike_ns < SAME_RATIO_SHARE_PCT * whole_ns:
        return None
    what = "longer" if common > 1 else "shorter"
    clause = f"nearly all kernels take {format_percent(moved_pct)} {what}"
    return 100 * (common - 1), clause


def _one_rank(tables: Tables, clock: Clock, cost: ClassCost) -> Explained | None:
    """Return the rank whose computation changed unlike that of the others; None if none did."""
    gpus = clock.by_gpu(COMPUTE)
    row = gpus[cost.rank, cost.device_id]
    others = [gpu["change_ns"] for key, gpu in gpus.items() if key[0] != cost.rank]
    if not others or not row["baseline_ns"]:
        return None
    usual_ns = float(np.median(others)) if len(others) > 1 else others[0]
    beyond_ns = row["change_ns"] - usual_ns
    apart = 100 * abs(beyond_ns) / row["baseline_ns"] >= RANK_POINTS
    if not apart or abs(beyond_ns) < _ONE_RANK_SHARE * abs(row["change_ns"]):
        return None
    pct = 100 * row["change_ns"] / row["baseline_ns"]
    usual_pct = 100 * usual_ns / row["baseline_ns"]
    names = _kernels_of(tables, cost.rank)
    by = f", by {listed([quoted(name) for name in names])}" if names else ""
    what = (
        f"on rank {cost.rank} alone {times(1 + pct / 100)} "
        f"({round(usual_pct, 1) + 0.0:+.1f} % on the others){by}"
    )
    return Explained(
        "one_rank",
        what,
        Cause("rank", cost.rank, cost.device_id, "slow_gpu"),
        names[0] if names else None,
        {"rank": cost.rank},
        {"own_pct": pct, "ratio": 1 + pct / 100, "usual_pct": usual_pct},
        rank=cost.rank,
    )


def _kernels_of(tables: Tables, rank: int) -> list[str]:
    """Return the kernels whose change of length is nearly all on one rank, largest first."""
    talks = tables["kernels"].set_index("name")["communication"]
    rows = tables["rank_kernels"]
    rows = rows[~rows["name"].map(talks)]
    effects = rows.assign(
        size=rows["per_call_effect_ns"].abs(),
        alone=rows["per_call_effect_ns"].abs().where(rows["rank"] == rank, 0),
    )
    sums = effects.groupby("name")[["size", "alone"]].sum()
    sums = sums[(sums["size"] > 0) & (sums["alone"] >= _ONE_RANK_SHARE * sums["size"])]
    return [str(name) for name in sums.sort_values("alone", ascending=False).index[:2]]


def _in_all(frame: pd.DataFrame, cost: ClassCost) -> Explained:
    """Return the category with most of the change, where no kernel stands out."""
    sums = frame.groupby("category")["change"].sum() * (1 if cost.mean_ns > 0 else -1)
    category = str(sums.idxmax()) if len(sums) else "kernels"
    changed_n = int((frame["change"] * cost.mean_ns > 0).sum())
    what = f"{counted(changed_n, 'kernel')}, most in {quoted(category)}"
    return Explained(
        "compute",
        what,
        Cause("kernels", detail=category),
        category,
        {"name": quoted(category)},
        {"kernels_n": float(changed_n)},
        cells("wall_change", {"rank": None, "wall_class": COMPUTE, "detail": None,
                              "change_ns": cost.mean_ns},
              ("rank", "wall_class", "detail"), ("change_ns",)),
    )  # fmt: skip
