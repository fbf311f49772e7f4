"""What explains a change of computation: kernels that run longer, more often, or are other ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsys_llm.report.causes import Cause
from nsys_llm.report.findings import cells
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.report.templates import filled, signed_ns
from nsys_llm.taxonomy.wall_classes import COMPUTE
from nsys_llm.view.text import listed, quoted

from ..tables.checks import ALIKE_PCT, SAME_GRID_PCT, SAME_WORK_PCT, apart_pct
from . import texts
from .change import LEAST_SHARE, ClassChange, Clock, number_of, numbered, times

#: Kernels that are named at most.
_MOST_NAMES: Final = 3
#: A change is that of one rank if it has so much of it; ours.
_ONE_RANK_SHARE: Final = 0.75
#: Columns of kernels, by their names here; times and calls are those that are compared.
_COLUMNS: Final = {
    "name": "name", "category": "category", "operation": "operation",
    "before": "baseline_compared_ns", "after": "input_compared_ns", "change": "compared_change_ns",
    "n0": "baseline_compared_calls", "n1": "input_compared_calls",
    "threads0": "baseline_compared_threads", "threads1": "input_compared_threads",
}  # fmt: skip


@dataclass(frozen=True)
class _Part:
    """Part of a change of computation: some kernels, ns a step and rank."""

    rule: str
    change_ns: float
    name: str
    fields: Mapping[str, Any]

    @property
    def what(self) -> str:
        return f"{filled(texts.WHAT[self.rule], self.fields)} ({signed_ns(self.change_ns)})"


def explain_compute(clock: Clock, change: ClassChange) -> ClassChange:
    """Explain the change of computation."""
    frame = _frame(clock.tables)
    explained = _one_rank(frame, clock, change) or _throughout(frame, change)
    if explained is not None:
        return explained
    parts = sorted(_parts(frame), key=lambda part: (-abs(part.change_ns), part.name))
    least_ns = LEAST_SHARE * abs(change.mean_ns)
    large = [part for part in parts if part.change_ns * change.mean_ns > 0]
    shown = [part for part in large if abs(part.change_ns) >= least_ns][:_MOST_NAMES]
    if not shown:
        return _in_all(frame, change)
    numbers = ({**part.fields, "change_ns": part.change_ns} for part in shown)
    what, name = "; ".join(part.what for part in shown), shown[0].name
    fields = {"name": name, "what": what, **numbered("kernel", numbers)}
    return change.by(shown[0].rule, Cause("kernels", detail=name), fields)


def _frame(tables: Tables) -> pd.DataFrame:
    """Return the kernels that compute, as they are compared, and whether launches have a size."""
    kernels = tables["kernels"]
    kernels = kernels[~kernels["communication"]]
    frame = pd.DataFrame({name: _plain(kernels[column]) for name, column in _COLUMNS.items()})
    size0, size1 = frame["threads0"] / frame["n0"], frame["threads1"] / frame["n1"]
    frame = frame.assign(
        size0=size0,
        size1=size1,
        resized=apart_pct(size0, size1) > SAME_WORK_PCT,
        ratio=(frame["after"] / frame["n1"]) / (frame["before"] / frame["n0"]),
    )
    return frame[(frame["before"] > 0) | (frame["after"] > 0)]


def _plain(values: pd.Series[Any]) -> npt.NDArray[Any]:
    """Return a column; numbers with nulls as floats, which pandas before 2.2 does not make."""
    if pd.api.types.is_numeric_dtype(values) and values.isna().any():
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    return values.to_numpy()


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
    name, operation = quoted(row["name"]), row["operation"]
    fields = {
        "kernel": f"{name} ({operation})" if isinstance(operation, str) else name,
        "before": number_of(row["n0"]),
        "after": number_of(row["n1"]),
        "longer": times(row["ratio"]),
        "size0": round(row["size0"]) if row["resized"] else None,
        "size1": round(row["size1"]) if row["resized"] else None,
        "baseline_n": row["n0"],
        "input_n": row["n1"],
        "longer_ratio": row["ratio"],
        "longer_pct": 100 * (row["ratio"] - 1),
    }
    return _Part(_rule_of(row), row["change"], row["name"], fields)


def _rule_of(row: Record) -> str:
    n0, n1 = row["n0"], row["n1"]
    if row["resized"] and apart_pct(row["threads0"], row["threads1"]) <= SAME_GRID_PCT:
        if n1 / n0 >= texts.SPLIT_RATIO:
            return "split_launches"
        if n1 / n0 <= 1 / texts.SPLIT_RATIO:
            return "merged_launches"
    count_ns = (n1 - n0) * row["before"] / n0
    if 100 * abs(n1 / n0 - 1) > ALIKE_PCT and abs(count_ns) >= abs(row["change"] - count_ns):
        return "more_calls" if n1 > n0 else "fewer_calls"
    if row["resized"]:
        return "other_sizes"
    return "slower_calls" if row["ratio"] > 1 else "faster_calls"


def _exchange(category: str, rows: pd.DataFrame) -> _Part:
    come, gone = rows[rows["n1"] > 0], rows[rows["n0"] > 0]
    come_ns, gone_ns = float(come["after"].sum()), float(gone["before"].sum())
    largest = come.sort_values("after", ascending=False)["name"]
    fields = {
        "come_n": len(come),
        "category": category,
        "largest": largest.iloc[0] if len(come) else None,
        "come_ns": come_ns,
        "both": ", " if len(come) and len(gone) else "",
        "gone_n": len(gone),
        "gone_ns": gone_ns,
    }
    return _Part("other_kernels", come_ns - gone_ns, category, fields)


def _throughout(frame: pd.DataFrame, change: ClassChange) -> ClassChange | None:
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
    alike_ns = float(rows.loc[apart <= min(texts.SAME_RATIO_PCT, abs(pct) / 2), "before"].sum())
    if (
        abs(pct) < texts.LEAST_SLOWDOWN_PCT
        or 100 * alike_ns < texts.SAME_RATIO_SHARE_PCT * whole_ns
    ):
        return None
    if pct * change.mean_ns <= 0:
        return None
    rule = "slower_throughout" if pct > 0 else "faster_throughout"
    return change.by(rule, Cause("kernels", detail="all"), {"moved_pct": abs(pct)})


def _one_rank(frame: pd.DataFrame, clock: Clock, change: ClassChange) -> ClassChange | None:
    """Explain by the rank whose computation changed unlike that of the others; None without one."""
    gpus, rank = clock.by_gpu(COMPUTE), change.rank
    row = gpus[rank, change.device_id]
    others = [gpu["change_ns"] for key, gpu in gpus.items() if key[0] != rank]
    if not others or not row["baseline_ns"]:
        return None
    usual_ns = float(np.median(others)) if len(others) > 1 else others[0]
    beyond_ns = row["change_ns"] - usual_ns
    apart = 100 * abs(beyond_ns) / row["baseline_ns"] >= texts.RANK_POINTS
    if not apart or abs(beyond_ns) < _ONE_RANK_SHARE * abs(row["change_ns"]):
        return None
    pct, usual_pct = (100 * ns / row["baseline_ns"] for ns in (row["change_ns"], usual_ns))
    moved = frame.assign(moved=frame["change"] * np.sign(beyond_ns)).sort_values("moved")[::-1]
    names = moved.loc[moved["moved"] >= LEAST_SHARE * abs(change.mean_ns), "name"].tolist()[:2]
    fields = {
        "rank": rank,
        "longer": times(1 + pct / 100),
        # No -0.0 %.
        "usual_pct": round(usual_pct, 1) + 0.0,
        "kernels": listed([quoted(name) for name in names]) if names else None,
        "name": names[0] if names else None,
        "longer_pct": pct,
        "longer_ratio": 1 + pct / 100,
    }
    return change.by("one_rank", Cause("rank", rank, change.device_id, note="slow_gpu"), fields)


def _in_all(frame: pd.DataFrame, change: ClassChange) -> ClassChange:
    """Explain by the category with most of the change, where no kernel stands out."""
    sums = frame.groupby("category")["change"].sum() * (1 if change.mean_ns > 0 else -1)
    category = str(sums.idxmax()) if len(sums) else "kernels"
    kernels_n = int((frame["change"] * change.mean_ns > 0).sum())
    of_mean = {"rank": None, "wall_class": COMPUTE, "detail": None, "change_ns": change.mean_ns}
    evidence = cells("wall_change", of_mean, ("rank", "wall_class", "detail"), ("change_ns",))
    fields = {"kernels_n": kernels_n, "name": category}
    return change.by("compute", Cause("kernels", detail=category), fields, evidence)
