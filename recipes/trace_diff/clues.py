"""What changed, by kind: the clues of which answer and findings are made. Reads tables only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from nsys_llm.recipes.trace_diff.basis import Basis, Tables
from nsys_llm.recipes.trace_diff.verdicts import IMPROVE, REGRESS
from nsys_llm.view.text import (
    counted,
    format_bytes,
    format_count,
    format_ns,
    format_percent,
    quoted,
)

__all__ = ["Clue", "alike_ratio", "changed", "find_clues", "times"]

#: Share of the baseline's kernel time from which a change is worth a word; ours.
LEAST_PCT: Final = 0.5
#: Ratio of mean durations that is worth a word however little time it is about; ours.
STANDS_OUT: Final = 1.5
#: Change of the number or bytes of copies, in percent, that is worth a word; ours.
_COPIES_PCT: Final = 20.0
_LEAST_COPIES: Final = 5
#: Percentage points of the windows that idle time has to change by; as in idle_gaps' low findings.
_IDLE_POINTS: Final = 2.0
#: Launch counts that change alike: their ratios differ by so little, for so much of the time; ours.
_ALIKE_PCT: Final = 5.0
_ALIKE_SHARE_PCT: Final = 70.0
_LEAST_CHANGE_PCT: Final = 2.0
_LEAST_LAUNCHES: Final = 8
_MOST_KERNELS: Final = 3

_KINDS: Final = {
    "DtoD": "device-to-device copies",
    "HtoD": "host-to-device copies",
    "DtoH": "device-to-host copies",
    "PtoP": "copies between GPUs",
    "memset": "memory fills",
}


@dataclass(frozen=True)
class Clue:
    """One change.

    Attributes:
        rule: Kind of change: more_calls, slower_calls, other_kernels, ...
        impact_ns: Its part of the change, in ns on the basis of the kernels; more is positive.
        text: A clause that stands by itself, names out of the trace in backticks.
        tables: Where the numbers stand.
        name: Kernel or category that it is about.
        category: Kind of work.
        stands_out: Whether it is worth a word however little time it is about.
    """

    rule: str
    impact_ns: float
    text: str
    tables: tuple[str, ...]
    name: str | None = None
    category: str | None = None
    stands_out: bool = False


def find_clues(tables: Tables, basis: Basis) -> list[Clue]:
    """Return all clues, largest first."""
    found = [
        *_fewer_of_all(basis),
        *_per_call(basis),
        *_counts(basis),
        *_other_kernels(basis),
        *_communication(tables, basis),
        *_copies(tables, basis),
        *_idle(tables),
    ]
    return sorted(found, key=lambda clue: (-abs(clue.impact_ns), clue.rule, clue.name or ""))


def changed(ns: float) -> str:
    """Return a change of time with its sign."""
    return f"{'+' if ns > 0 else ''}{format_ns(ns)}"


def times(ratio: float) -> str:
    """Return a ratio of durations as people say it: `5.15 times as long`, `12.0 % longer`."""
    if ratio >= STANDS_OUT:
        return f"{ratio:.3g} times as long"
    if ratio >= 1:
        return f"{format_percent(100 * (ratio - 1))} longer"
    return f"{format_percent(100 * (1 - ratio))} shorter"


def alike_ratio(basis: Basis) -> float | None:
    """Return the ratio of launch numbers that most kernels share, None where they share none.

    None too where it is about 1.
    """
    kernels = basis.kernels
    both = kernels[(kernels["status"] == "both") & (kernels["baseline_n"] > 0)]
    if basis.per_step or both.empty or both["baseline_n"].sum() < _LEAST_LAUNCHES:
        return None
    ratio = float(both["input_n"].sum() / both["baseline_n"].sum())
    apart = (both["input_n"] / both["baseline_n"] / ratio - 1).abs() * 100
    alike_ns = float(both.loc[apart <= _ALIKE_PCT, "before"].sum())
    if 100 * abs(ratio - 1) < _LEAST_CHANGE_PCT or ratio <= 0:
        return None
    enough = alike_ns >= _ALIKE_SHARE_PCT / 100 * float(both["before"].sum())
    return ratio if enough else None


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
        ("kernels",),
    )


def _per_call(basis: Basis) -> Iterator[Clue]:
    """Yield kernels whose calls got longer or shorter, for real."""
    kernels = basis.kernels
    own = kernels[kernels["verdict"].isin([REGRESS, IMPROVE]) & ~kernels["communication"]]
    for row in _records(own, "per_call"):
        out = row["ratio"] >= STANDS_OUT or row["ratio"] <= 1 / STANDS_OUT
        if not out and not _matters(row["per_call"], basis):
            continue
        rule = "slower_calls" if row["per_call"] > 0 else "faster_calls"
        calls = _calls(row, basis)
        yield Clue(
            rule,
            row["per_call"],
            f"{_named(row)} takes {times(row['ratio'])} per call in {calls} "
            f"({changed(row['per_call'])})",
            ("kernels", "configs"),
            row["name"],
            row["category"],
            out,
        )


def _calls(row: Any, basis: Basis) -> str:
    before, after = row["baseline_n"], row["input_n"]
    a_step = basis.a_step
    if before == after:
        return f"the same {_number(before)} calls{a_step}"
    return f"{_number(after)} calls{a_step} instead of {_number(before)}"


def _number(value: float) -> str:
    return format_count(value) if float(value).is_integer() else f"{value:.3g}"


def _counts(basis: Basis) -> Iterator[Clue]:
    """Yield kernels that run more or less often, beyond what they all do."""
    alike = alike_ratio(basis) or 1.0
    kernels = basis.kernels
    own = kernels[(kernels["status"] == "both") & (kernels["baseline_n"] > 0)]
    for row in _records(own, "count"):
        beyond = row["input_n"] / row["baseline_n"] / alike - 1
        if 100 * abs(beyond) <= _ALIKE_PCT or not _matters(row["count"], basis):
            continue
        rule = "more_calls" if row["count"] > 0 else "fewer_calls"
        yield Clue(
            rule,
            row["count"],
            f"{_named(row)} runs {_number(row['input_n'])} times{basis.a_step} instead of "
            f"{_number(row['baseline_n'])} ({changed(row['count'])})",
            ("kernels",),
            row["name"],
            row["category"],
        )


def _other_kernels(basis: Basis) -> Iterator[Clue]:
    """Yield categories with kernels that one side alone has."""
    kernels = basis.kernels
    for category, rows in kernels[kernels["status"] != "both"].groupby("category", sort=True):
        come, gone = rows[rows["status"] == "new"], rows[rows["status"] == "vanished"]
        come_ns, gone_ns = float(come["after"].sum()), float(gone["before"].sum())
        out = bool(len(come) and len(gone))
        if not out and not _matters(come_ns - gone_ns, basis):
            continue
        yield Clue(
            "other_kernels",
            come_ns - gone_ns,
            _replaced(str(category), come, gone, come_ns, gone_ns),
            ("categories", "kernels"),
            str(category),
            str(category),
            out,
        )


def _replaced(
    category: str, come: pd.DataFrame, gone: pd.DataFrame, come_ns: float, gone_ns: float
) -> str:
    kernels = f"{quoted(category)} kernel"
    largest = (
        quoted(come.sort_values("after", ascending=False)["name"].iloc[0]) if len(come) else ""
    )
    if len(come) and len(gone):
        return (
            f"{counted(len(come), f'new {kernels}')}, above all {largest}, "
            f"{'takes' if len(come) == 1 else 'take'} {format_ns(come_ns)} where "
            f"{counted(len(gone), 'other')} took {format_ns(gone_ns)} "
            f"({changed(come_ns - gone_ns)})"
        )
    if len(come):
        return (
            f"{counted(len(come), f'new {kernels}')}, above all {largest}, "
            f"{'takes' if len(come) == 1 else 'take'} {format_ns(come_ns)}"
        )
    verb = "has" if len(gone) == 1 else "have"
    return f"{counted(len(gone), kernels)} of {format_ns(gone_ns)} {verb} vanished"


def _communication(tables: Tables, basis: Basis) -> Iterator[Clue]:
    kernels = basis.kernels
    talks = kernels[kernels["communication"]]
    change_ns = float(talks["change"].sum())
    if not _matters(change_ns, basis):
        return
    rows = tables["collectives"]
    whole = rows[rows["communicator"] == "all"]
    text = f"communication takes {changed(change_ns)}"
    if whole.empty:
        yield Clue("communication", change_ns, text, ("kernels",), None, "communication")
        return
    one = whole.iloc[0]
    wait_ns, transfer_ns = int(one["wait_change_ns"]), int(one["transfer_change_ns"])
    waits = abs(wait_ns) > abs(transfer_ns)
    over = " over all ranks" if basis.per_step else ""
    late = ""
    if waits and wait_ns > 0 and not pd.isna(one["input_late_rank"]):
        late = f"; most of the waiting is for rank {one['input_late_rank']}"
        if not pd.isna(one["baseline_late_rank"]):
            same = one["baseline_late_rank"] == one["input_late_rank"]
            late += ", as before" if same else f", and was for rank {one['baseline_late_rank']}"
    yield Clue(
        "waiting" if waits else "transfer",
        change_ns,
        f"{text}: waiting for late ranks {changed(wait_ns)}, transfer {changed(transfer_ns)}"
        f"{over}{late}",
        ("collectives", "kernels"),
        None,
        "communication",
    )


def _copies(tables: Tables, basis: Basis) -> Iterator[Clue]:
    """Yield kinds of copies whose number or bytes changed beyond what everything did."""
    alike = _work_ratio(tables, basis)
    for row in tables["memops"].to_dict("records"):
        before, after = row["baseline_operations_n"], row["input_operations_n"]
        expected = before * alike
        apart_n = abs(after - expected)
        if apart_n < _LEAST_COPIES or 100 * apart_n < _COPIES_PCT * max(expected, 1):
            continue
        kind = _KINDS.get(row["kind"], f"{quoted(row['kind'])} copies")
        share = f" ({100 * (after / before - 1):+.0f} %)" if before else ""
        sizes = (row["baseline_size_bytes"], row["input_size_bytes"])
        yield Clue(
            "copies",
            float(row["change_ns"]),
            f"{kind} {format_count(before)} -> {format_count(after)}{share}, "
            f"{format_bytes(sizes[0])} -> {format_bytes(sizes[1])}",
            ("memops",),
            row["kind"],
            stands_out=row["kind"] == "DtoD" and after > expected,
        )


def _work_ratio(tables: Tables, basis: Basis) -> float:
    """Return how much more of everything the input did."""
    if basis.per_step:
        steps = tables["runs"].set_index("side")["steps_n"]
        return float(steps["input"] / steps["baseline"])
    return alike_ratio(basis) or 1.0


def _idle(tables: Tables) -> Iterator[Clue]:
    metrics = tables["metrics"].set_index("metric")
    share = metrics.loc["idle_pct"]
    if pd.isna(share["change"]) or abs(share["change"]) < _IDLE_POINTS:
        return
    causes = tables["idle"]
    same = causes[(causes["change_ns"] > 0) == (share["change"] > 0)]
    most = ""
    if len(same):
        one = same.iloc[0]
        most = f", mostly {quoted(one['cause'])} ({one['meaning']}; {changed(one['change_ns'])})"
    yield Clue(
        "more_idle" if share["change"] > 0 else "less_idle",
        float(metrics.loc["idle_time", "change"]),
        f"the GPUs are idle for {format_percent(share['input'])} of their windows instead of "
        f"{format_percent(share['baseline'])}{most}",
        ("idle", "metrics"),
        stands_out=True,
    )


def _matters(ns: float, basis: Basis) -> bool:
    return 100 * abs(ns) >= LEAST_PCT * max(basis.before_ns, basis.after_ns) and ns != 0


def _named(row: Any) -> str:
    operation = row["operation"]
    return quoted(row["name"]) + ("" if pd.isna(operation) else f" ({operation})")


def _records(frame: pd.DataFrame, by: str) -> Iterable[dict[Any, Any]]:
    order = frame[by].abs().sort_values(ascending=False, kind="stable").index
    return frame.loc[order].to_dict("records")
