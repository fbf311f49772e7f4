"""What changed in kernels: how often they run, how long, and which ones. Reads tables only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pandas as pd

from nsys_llm.view.text import counted, format_ns, format_percent, quoted

from ..tables.verdicts import IMPROVE, INSUFFICIENT, REGRESS
from ..tables.workload_match import ALIKE_PCT, LEAST_CHANGE_PCT, alike_sizes, common_ratio
from .change import Clue, changed, count_fields, matters, ratio_fields, times
from .normalization import Basis
from .sizes import calls_of, named_kernel, number_of, size_clues
from .texts import STANDS_OUT

#: q below which calls differ by more than chance; the default of --alpha.
_SURE: Final = 0.05


def kernel_clues(basis: Basis) -> list[Clue]:
    """Return the changes of kernels other than communication, in no order."""
    return [
        *_fewer_of_all(basis),
        *_per_call(basis),
        *_few_calls(basis),
        *_uneven_calls(basis),
        *_counts(basis),
        *_other_kernels(basis),
        *size_clues(basis),
    ]


def alike_ratio(basis: Basis) -> float | None:
    """Return the ratio of launch numbers that most kernels share, None where they share none.

    None too where it is about 1.
    """
    kernels = basis.kernels
    both = kernels[(kernels["status"] == "both") & (kernels["baseline_n"] > 0)]
    if basis.per_step or basis.other_programs:
        return None
    n0, n1, before, threads0, threads1 = (
        both[name].to_numpy(np.float64)
        for name in ("baseline_n", "input_n", "before", "baseline_threads", "input_threads")
    )
    return common_ratio(n0, n1, before, alike_sizes(threads0, n0, threads1, n1))


def work_ratio(basis: Basis) -> float:
    """Return how much more of everything the input did, as far as sums tell of it."""
    if basis.steps is not None:
        return basis.steps[1] / basis.steps[0]
    return alike_ratio(basis) or 1.0


def _fewer_of_all(basis: Basis) -> Iterator[Clue]:
    ratio = alike_ratio(basis)
    if ratio is None:
        return
    kernels = basis.kernels
    count_ns = float(kernels.loc[kernels["status"] == "both", "count"].sum())
    fewer = "less" if ratio < 1 else "more"
    yield Clue(
        "less_of_all" if ratio < 1 else "more_of_all",
        count_ns,
        f"kernels run {format_percent(100 * abs(ratio - 1))} {fewer} often, nearly all of them "
        f"alike: the input did {fewer} of the same work ({changed(count_ns)})",
    )


def _per_call(basis: Basis) -> Iterator[Clue]:
    """Yield kernels whose calls got longer or shorter, for real."""
    kernels = basis.kernels
    rows = kernels[~kernels["communication"] & (kernels["status"] == "both") & ~kernels["resized"]]
    for row in _records(rows, "same"):
        if not _is_real(row):
            continue
        ratio = row["same_ratio"] if row["moved"] else row["ratio"]
        out = ratio >= STANDS_OUT or ratio <= 1 / STANDS_OUT
        if not out and not matters(row["same"], basis):
            continue
        where = " at the same grids and blocks" if row["moved"] else ""
        yield Clue(
            _per_call_rule(row["same"], basis),
            row["same"],
            f"{named_kernel(row)} takes {times(ratio)} per call{where} in {calls_of(row, basis)} "
            f"({changed(row['same'])})",
            name=row["name"],
            category=row["category"],
            stands_out=out,
            numbers={**count_fields(row), **ratio_fields(ratio)},
        )


def _is_real(row: Any) -> bool:
    """Tell whether calls of the same size changed beyond chance.

    Where sizes changed, medians of all calls tell nothing: the tests of configurations do.
    """
    if row["moved"]:
        return bool(row["sure"] * row["same"] > 0 and 2 * abs(row["sure"]) >= abs(row["same"]))
    return row["verdict"] in (REGRESS, IMPROVE) and bool(row["per_call"] * row["p50_pct"] > 0)


def _per_call_rule(change_ns: float, basis: Basis) -> str:
    if basis.other_work:
        return "calls_at_other_work"
    return "slower_calls" if change_ns > 0 else "faster_calls"


def _few_calls(basis: Basis) -> Iterator[Clue]:
    """Yield kernels whose calls got longer or shorter, with too few of them for a test."""
    kernels = basis.kernels
    rows = kernels[
        (kernels["verdict"] == INSUFFICIENT) & (kernels["status"] == "both") & ~kernels["moved"]
    ]
    for row in _records(rows[~rows["communication"]], "per_call"):
        if not _moved(row) or not matters(row["per_call"], basis):
            continue
        yield Clue(
            "few_calls",
            row["per_call"],
            f"{named_kernel(row)} takes {times(row['ratio'])} per call in {calls_of(row, basis)} "
            f"({changed(row['per_call'])}), too few to tell from chance",
            name=row["name"],
            category=row["category"],
            sure=False,
        )


def _uneven_calls(basis: Basis) -> Iterator[Clue]:
    """Yield kernels of which some calls got longer or shorter, and the median did not.

    Where a test does not tell that from chance, it has to be worth as much as a finding.
    """
    kernels = basis.kernels
    rows = kernels[
        (kernels["verdict"] != INSUFFICIENT) & (kernels["status"] == "both") & ~kernels["moved"]
    ]
    for row in _records(rows[~rows["communication"]], "per_call"):
        p50_pct, sure = row["p50_pct"], bool(row["q"] < _SURE)
        typical = abs(p50_pct) >= LEAST_CHANGE_PCT and row["per_call"] * p50_pct > 0
        least_ns = 0.0 if sure else LEAST_CHANGE_PCT / 100 * basis.before_ns
        if typical or not _moved(row) or abs(row["per_call"]) < least_ns:
            continue
        if not matters(row["per_call"], basis):
            continue
        yield Clue(
            "uneven_calls",
            row["per_call"],
            f"some calls of {named_kernel(row)} changed, the typical call did not: in the mean it "
            f"takes {times(row['ratio'])} in {calls_of(row, basis)} ({changed(row['per_call'])}), "
            f"at {_median(p50_pct)}{'' if sure else ', which may be chance'}",
            name=row["name"],
            category=row["category"],
            sure=sure,
            numbers={
                **count_fields(row),
                **ratio_fields(row["ratio"]),
                "p50_change_pct": p50_pct,
            },
        )


def _moved(row: Any) -> bool:
    """Tell whether the mean of a kernel moved by more than is worth a word."""
    return bool(100 * abs(row["ratio"] - 1) >= LEAST_CHANGE_PCT)


def _median(p50_pct: float) -> str:
    if abs(p50_pct) < 0.05:
        return "the same median"
    return f"a median that is {format_percent(abs(p50_pct))} {'longer' if p50_pct > 0 else 'less'}"


def _counts(basis: Basis) -> Iterator[Clue]:
    """Yield kernels that run more or less often, beyond what they all do."""
    alike = alike_ratio(basis) or 1.0
    kernels = basis.kernels
    rows = kernels[
        (kernels["status"] == "both") & (kernels["baseline_n"] > 0) & ~kernels["resized"]
    ]
    for row in _records(rows, "count"):
        beyond = row["input_n"] / row["baseline_n"] / alike - 1
        if 100 * abs(beyond) <= ALIKE_PCT or not matters(row["count"], basis):
            continue
        rule = "more_calls" if row["count"] > 0 else "fewer_calls"
        yield Clue(
            rule,
            row["count"],
            f"{named_kernel(row)} runs {number_of(row['input_n'])} times{basis.a_step} instead of "
            f"{number_of(row['baseline_n'])} ({changed(row['count'])})",
            name=row["name"],
            category=row["category"],
            numbers=count_fields(row),
        )


def _other_kernels(basis: Basis) -> Iterator[Clue]:
    """Yield categories with kernels that one side alone has.

    Where some categories have only new ones and others lost theirs, that is one exchange: fused
    kernels do the work of several categories.
    """
    kernels = basis.kernels[basis.kernels["status"] != "both"]
    sides = {category: set(rows["status"]) for category, rows in kernels.groupby("category")}
    alone = {category for category, statuses in sides.items() if len(statuses) == 1}
    if len({status for category in alone for status in sides[category]}) == 2:
        exchanged = kernels[kernels["category"].isin(alone)]
        gone = exchanged[exchanged["status"] == "vanished"]
        most = gone.groupby("category")["before"].sum().idxmax()
        yield from _exchange(str(most), exchanged, basis, kind="")
        kernels = kernels[~kernels["category"].isin(alone)]
    for category, rows in kernels.groupby("category", sort=True):
        yield from _exchange(str(category), rows, basis, kind=f"{quoted(category)} ")


def _exchange(category: str, rows: pd.DataFrame, basis: Basis, *, kind: str) -> Iterator[Clue]:
    come, gone = rows[rows["status"] == "new"], rows[rows["status"] == "vanished"]
    come_ns, gone_ns = float(come["after"].sum()), float(gone["before"].sum())
    out = bool(len(come) and len(gone))
    if not out and not matters(come_ns - gone_ns, basis):
        return
    yield Clue(
        "other_kernels",
        come_ns - gone_ns,
        _replaced(kind, come, gone, come_ns, gone_ns, name_largest=True),
        name=category,
        category=category,
        stands_out=out,
        brief=_replaced(kind, come, gone, come_ns, gone_ns, name_largest=False),
        numbers={
            "new_n": len(come),
            "vanished_n": len(gone),
            "new_ns": come_ns,
            "vanished_ns": gone_ns,
        },
    )


def _replaced(
    kind: str,
    come: pd.DataFrame,
    gone: pd.DataFrame,
    come_ns: float,
    gone_ns: float,
    *,
    name_largest: bool,
) -> str:
    """Return what came and what went; with the largest new kernel by name, or in brief."""
    kernels = f"{kind}kernel"
    if not len(come):
        verb = "has" if len(gone) == 1 else "have"
        return f"{counted(len(gone), kernels)} of {format_ns(gone_ns)} {verb} vanished"
    largest = ""
    if name_largest:
        name = come.sort_values("after", ascending=False)["name"].iloc[0]
        largest = f", above all {quoted(name)},"
    verb = "takes" if len(come) == 1 else "take"
    text = f"{counted(len(come), f'new {kernels}')}{largest} {verb} {format_ns(come_ns)}"
    if not len(gone):
        return text
    others = f"{counted(len(gone), 'other')} took {format_ns(gone_ns)}"
    return f"{text} where {others} ({changed(come_ns - gone_ns)})"


def _records(frame: pd.DataFrame, by: str) -> Iterable[dict[Any, Any]]:
    order = frame[by].abs().sort_values(ascending=False, kind="stable").index
    return frame.loc[order].to_dict("records")
