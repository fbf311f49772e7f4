"""What explains a change of computation: kernels that run longer, more often, or are other ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from nsys_llm.report.causes import Cause
from nsys_llm.report.findings import cells
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.taxonomy.wall_classes import COMPUTE
from nsys_llm.view.text import counted, format_ns, format_percent, listed, quoted

from ..tables.config_changes import sizes_of
from ..tables.kernels import IMPROVE, REGRESS
from ..tables.same_work import ALIKE_PCT, LEAST_CHANGE_PCT
from .change import LEAST_SHARE, Change, Clock, changed, number_of, times
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
#: Columns of kernels, by their names here; times and calls are those that are compared.
_COLUMNS: Final = {
    "name": "name", "category": "category", "operation": "operation", "verdict": "verdict",
    "before": "baseline_compared_ns", "after": "input_compared_ns", "change": "compared_change_ns",
    "n0": "baseline_compared_calls", "n1": "input_compared_calls",
    "threads0": "baseline_compared_threads", "threads1": "input_compared_threads",
}  # fmt: skip


@dataclass(frozen=True)
class _Part:
    """Part of a change of computation: some kernels, ns a step and rank."""

    rule: str
    change_ns: float
    what: str
    name: str
    numbers: dict[str, float]


def explain_compute(clock: Clock, change: Change) -> Change:
    """Explain the change of computation."""
    frame = _frame(clock.tables)
    explained = _one_rank(clock, change) or _throughout(frame, change)
    if explained is not None:
        return explained
    parts = sorted(_parts(frame), key=lambda part: (-abs(part.change_ns), part.name))
    least_ns = LEAST_SHARE * abs(change.mean_ns)
    large = [part for part in parts if part.change_ns * change.mean_ns > 0]
    shown = [part for part in large if abs(part.change_ns) >= least_ns][:_MOST_NAMES]
    if not shown:
        return _in_all(frame, change)
    numbers = {
        f"kernel{place}_{key}": value
        for place, part in enumerate(shown)
        for key, value in {**part.numbers, "change_ns": part.change_ns}.items()
    }
    what = "; ".join(f"{part.what} ({changed(part.change_ns)})" for part in shown)
    rule, name = shown[0].rule, shown[0].name
    cause, fields = Cause("kernels", detail=name), {"name": quoted(name)}
    return change.by(rule, what, cause, name=name, fields=fields, numbers=numbers)


def _frame(tables: Tables) -> pd.DataFrame:
    """Return the kernels that compute, as they are compared, with what sizes tell."""
    kernels = tables["kernels"]
    kernels = kernels[~kernels["communication"]]
    sizes = sizes_of(tables["configs"]).reindex(kernels["name"])
    frame = pd.DataFrame({name: kernels[column].to_numpy() for name, column in _COLUMNS.items()})
    frame = frame.assign(
        resized=sizes["common"].to_numpy("float64") < _LEAST_COMMON,
        geometry=sizes["geometry"].to_numpy(object),
        ratio=(frame["after"] / frame["n1"]) / (frame["before"] / frame["n0"]),
    )
    return frame[(frame["before"] > 0) | (frame["after"] > 0)]


def _parts(frame: pd.DataFrame) -> Iterator[_Part]:
    both = (frame["n0"] > 0) & (frame["n1"] > 0)
    yield from map(_of_kernel, records(frame[both]))
    alone = frame[~both]
    if alone.empty:
        return
    sides = {name: set((rows["n1"] > 0).tolist()) for name, rows in alone.groupby("category")}
    # Fused kernels do the work of several categories: what is only new and what is only gone.
    single = [category for category, statuses in sides.items() if len(statuses) == 1]
    exchanged = {status for category in single for status in sides[category]} == {True, False}
    groups = [(c, [c]) for c in sides if not (exchanged and c in single)]
    if exchanged:
        some = alone[alone["category"].isin(single) & (alone["n0"] > 0)]
        groups.append((str(some.groupby("category")["before"].sum().idxmax()), single))
    for category, of in groups:
        yield _exchange(str(category), alone[alone["category"].isin(of)])


def _of_kernel(row: Record) -> _Part:
    """Return what changed in a kernel of both runs."""
    rule, what = _rule_of(row)
    ratio = row["ratio"]
    numbers = {"baseline_n": row["n0"], "input_n": row["n1"], "ratio": ratio,
               "ratio_pct": 100 * (ratio - 1)}  # fmt: skip
    return _Part(rule, row["change"], what, row["name"], numbers)


def _rule_of(row: Record) -> tuple[str, str]:
    name, n0, n1, ratio = quoted(row["name"]), row["n0"], row["n1"], row["ratio"]
    if isinstance(row["operation"], str):
        name = f"{name} ({row['operation']})"
    counts = f"{number_of(n0)} -> {number_of(n1)} calls"
    if row["resized"] is True:
        grids = row["threads1"] / row["threads0"] if row["threads0"] else np.nan
        same_grid = 100 * abs(grids - 1) <= SAME_GRID_PCT
        if same_grid and n1 / n0 >= SPLIT_RATIO:
            return "split_launches", (
                f"{name} is split into smaller launches of the same total grid, {counts}"
            )
        if same_grid and n1 / n0 <= 1 / SPLIT_RATIO:
            return "merged_launches", (
                f"{name} is merged into larger launches of the same total grid, {counts}"
            )
        return "other_sizes", f"{name} runs at another size, {quoted(row['geometry'])}, {counts}"
    count_ns = (n1 - n0) * row["before"] / n0
    if 100 * abs(n1 / n0 - 1) > ALIKE_PCT and abs(count_ns) >= abs(row["change"] - count_ns):
        return "more_calls" if n1 > n0 else "fewer_calls", f"{name}: {counts}"
    longer, calls = f"{name} takes {times(ratio)} per call in", f"{number_of(n1)} calls"
    if row["verdict"] in (REGRESS, IMPROVE) or abs(ratio - 1) * 100 < LEAST_CHANGE_PCT:
        return "slower_calls" if ratio > 1 else "faster_calls", f"{longer} {calls}"
    return "uneven_calls", f"{longer} the mean of {calls}, and the typical call does not"


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


def _throughout(frame: pd.DataFrame, change: Change) -> Change | None:
    """Explain by nearly all kernels that changed alike; None where they did not."""
    rows = frame[(frame["n0"] > 0) & (frame["n1"] > 0)]
    alike_n = (rows["n1"] / rows["n0"] - 1).abs() <= 0.01
    rows = rows[alike_n & ~rows["resized"]]
    whole_ns = float(rows["before"].sum())
    if len(rows) < 3 or not whole_ns:
        return None
    common = float(rows["after"].sum() / rows["before"].sum())
    pct = 100 * (common - 1)
    # Kernels that did not change are not alike, however little the others did.
    apart = 100 * (rows["ratio"] / common - 1).abs()
    alike_ns = float(rows.loc[apart <= min(SAME_RATIO_PCT, abs(pct) / 2), "before"].sum())
    if abs(pct) < LEAST_SLOWDOWN_PCT or 100 * alike_ns < SAME_RATIO_SHARE_PCT * whole_ns:
        return None
    if pct * change.mean_ns <= 0:
        return None
    what = (
        f"nearly all kernels take {format_percent(abs(pct))} {'longer' if pct > 0 else 'shorter'}"
    )
    rule = "slower_throughout" if pct > 0 else "faster_throughout"
    return change.by(rule, what, Cause("kernels", detail="all"), numbers={"moved_pct": abs(pct)})


def _one_rank(clock: Clock, change: Change) -> Change | None:
    """Explain by the rank whose computation changed unlike that of the others; None without one."""
    gpus, rank = clock.by_gpu(COMPUTE), change.rank
    row = gpus[rank, change.device_id]
    others = [gpu["change_ns"] for key, gpu in gpus.items() if key[0] != rank]
    if not others or not row["baseline_ns"]:
        return None
    usual_ns = float(np.median(others)) if len(others) > 1 else others[0]
    beyond_ns = row["change_ns"] - usual_ns
    apart = 100 * abs(beyond_ns) / row["baseline_ns"] >= RANK_POINTS
    if not apart or abs(beyond_ns) < _ONE_RANK_SHARE * abs(row["change_ns"]):
        return None
    pct, usual_pct = (100 * ns / row["baseline_ns"] for ns in (row["change_ns"], usual_ns))
    names = _kernels_of(clock.tables, rank)
    by = f", by {listed([quoted(name) for name in names])}" if names else ""
    return change.by(
        "one_rank",
        f"on rank {rank} alone {times(1 + pct / 100)} "
        f"({round(usual_pct, 1) + 0.0:+.1f} % on the others){by}",
        Cause("rank", rank, change.device_id, "slow_gpu"),
        name=names[0] if names else None,
        fields={"rank": rank},
        numbers={"own_pct": pct, "ratio": 1 + pct / 100, "usual_pct": usual_pct},
    )


def _kernels_of(tables: Tables, rank: int) -> list[str]:
    """Return the kernels whose change of length is nearly all on one rank, largest first."""
    talks = tables["kernels"].set_index("name")["communication"]
    rows = tables["rank_kernels"]
    rows = rows[~rows["name"].map(talks)]
    size = rows["per_call_effect_ns"].abs()
    effects = rows.assign(size=size, alone=size.where(rows["rank"] == rank, 0))
    sums = effects.groupby("name")[["size", "alone"]].sum()
    sums = sums[(sums["size"] > 0) & (sums["alone"] >= _ONE_RANK_SHARE * sums["size"])]
    return [str(name) for name in sums.sort_values("alone", ascending=False).index[:2]]


def _in_all(frame: pd.DataFrame, change: Change) -> Change:
    """Explain by the category with most of the change, where no kernel stands out."""
    sums = frame.groupby("category")["change"].sum() * (1 if change.mean_ns > 0 else -1)
    category = str(sums.idxmax()) if len(sums) else "kernels"
    changed_n = int((frame["change"] * change.mean_ns > 0).sum())
    what = f"{counted(changed_n, 'kernel')}, most in {quoted(category)}"
    of_mean = {"rank": None, "wall_class": COMPUTE, "detail": None, "change_ns": change.mean_ns}
    evidence = cells("wall_change", of_mean, ("rank", "wall_class", "detail"), ("change_ns",))
    cause, fields = Cause("kernels", detail=category), {"name": quoted(category)}
    numbers = {"kernels_n": float(changed_n)}
    return change.by(
        "compute", what, cause, evidence, name=category, fields=fields, numbers=numbers
    )
