"""Times without the profiler, by --unprofiled-step: the wall split, gains, and what is said of it.

What a step takes longer under the profiler is taken off the profiler's own work first, then off
idle time, where its cost for each launch ends up, and where that is less off all else alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from nsys_llm.report.findings import PERFORMANCE, Finding
from nsys_llm.report.price import PROFILED, Price
from nsys_llm.report.records import Tables
from nsys_llm.report.walls import Gpu
from nsys_llm.taxonomy.wall_classes import APART, IDLE, PROFILER, WALL_CLASSES
from nsys_llm.trace.wall import DeviceWall
from nsys_llm.view.text import format_ns

#: Column of `wall`.
COLUMN: Final = "unprofiled_ns"
#: Classes of which steps consist.
IN_STEPS: Final = tuple(name for name in WALL_CLASSES if name not in APART)
NO_STEPS: Final = "No GPU has steps that `--unprofiled-step` could be compared with."
_GONE: Final = " Nothing is left of: "
#: From which ratio of long steps to short ones, a tenth each, one length stands for neither.
_UNEVEN: Final = 1.5
#: Part of the compute time of a step that it must take without the profiler, at least.
_LEAST_BUSY: Final = 0.5


def refusal(wall: DeviceWall, step_ns: int) -> str | None:
    """Return why the steps of a GPU cannot be compared with --unprofiled-step; None if they can."""
    work = wall.work
    if work is None or not work.has_steps or not work.whole.any():
        return NO_STEPS
    ignored = f"`--unprofiled-step` of {format_ns(step_ns)} is ignored"
    short_ns = int(np.quantile(work.whole_ns, 0.1, method="higher"))
    long_ns = int(np.quantile(work.whole_ns, 0.9, method="lower"))
    if long_ns > _UNEVEN * short_ns:
        return f"{ignored}: steps take {format_ns(short_ns)} to {format_ns(long_ns)}."
    busy_ns = float(work.compute_ns[work.whole].mean())
    if step_ns < _LEAST_BUSY * busy_ns:
        return (
            f"{ignored}: the GPU computes for {format_ns(round(busy_ns))} in a mean step. "
            "A number without a unit is in ns."
        )
    return None


def class_shares(wall: DeviceWall, step_ns: int | None) -> Mapping[str, float] | None:
    """Return what is left of each class of a GPU without the profiler; None if nobody can say.

    The median step tells what each takes longer: a pause in one is not the profiler's.

    Args:
        step_ns: How long a step takes without it; None where nobody says.
    """
    work = wall.work
    if step_ns is None or work is None or refusal(wall, step_ns):
        return None
    times = {name: int(getattr(wall, f"{name}_ns")) for name in IN_STEPS}
    longer_ns = max(float(np.median(work.whole_ns)) - step_ns, 0.0)
    left_ns = sum(times.values()) * longer_ns / float(work.whole_ns.mean())
    shares = dict.fromkeys(WALL_CLASSES, 1.0)
    for name in (PROFILER, IDLE):
        taken_ns = min(left_ns, times.pop(name))
        whole_ns = int(getattr(wall, f"{name}_ns"))
        shares[name] = 1.0 - taken_ns / whole_ns if whole_ns else 1.0
        left_ns -= taken_ns
    rest = 1.0 - left_ns / max(sum(times.values()), 1)
    return shares | dict.fromkeys(times, rest)


def step_share(wall: pd.DataFrame, ranks: Iterable[int]) -> float | None:
    """Return what is left of the steps of some ranks without the profiler; None if not known."""
    rows = wall[wall["rank"].isin(list(ranks)) & wall["wall_class"].isin(IN_STEPS)]
    rows = rows[rows[COLUMN].notna()]
    time_ns = int(rows["time_ns"].sum())
    return int(rows[COLUMN].sum()) / time_ns if time_ns else None


class Unprofiled:
    """What is left of prices without the profiler, by the table `wall`."""

    def __init__(self, tables: Tables) -> None:
        wall = tables["wall"]
        self._shares: dict[tuple[int, int, str], float] = {}
        self._spans: dict[Gpu, int] = {}
        if COLUMN not in wall or wall[COLUMN].isna().all():
            return
        known = wall[wall[COLUMN].notna()]
        sums = known.groupby(["rank", "device_id", "wall_class"])[["time_ns", COLUMN]].sum()
        for (rank, device, name), row in sums.iterrows():
            share = float(row[COLUMN] / row["time_ns"]) if row["time_ns"] else 1.0
            self._shares[int(rank), int(device), name] = share
        spans = known.groupby(["rank", "device_id"])[COLUMN].sum()
        self._spans = {(int(r), int(d)): int(ns) for (r, d), ns in spans.items()}

    def price(self, price: Price, gpu: Gpu, times: Mapping[str, int]) -> Price:
        """Return a price without the profiler.

        Args:
            times: Of the GPU by class, ns, of those that the price draws on.
        """
        if gpu not in self._spans:
            return price
        whole_ns = sum(times.values())
        left = sum(ns * self._shares.get((*gpu, name), 1.0) for name, ns in times.items())
        share, span_ns = left / whole_ns if whole_ns else 1.0, self._spans[gpu]

        def of(time_ns: int | None) -> int | None:
            return None if time_ns is None else min(int(time_ns * share), span_ns)

        return replace(
            price,
            span_ns=span_ns,
            bound_ns=of(price.bound_ns),
            about_ns=of(price.about_ns),
            measured_ns=of(price.measured_ns),
        )


def with_gone(pairs: Iterable[tuple[Finding, Price | None]]) -> list[Finding]:
    """Return findings, those of which the profiler is the whole price marked and said in the rule.

    Args:
        pairs: Each finding, with its price under the profiler.
    """
    findings, gone = [], []
    for finding, profiled in pairs:
        was = profiled.severity if profiled and finding.kind == PERFORMANCE else None
        if was and profiled and finding.severity is None:
            gone.append(finding.title)
            numbers = {**finding.numbers, PROFILED: profiled.gain_pct}
            finding = replace(finding, numbers=numbers)
        findings.append(finding)
    if not gone:
        return findings
    return [
        replace(made, details=f"{made.details.partition(_GONE)[0]}{_GONE}{'; '.join(gone)}.")
        if made.rule == "unprofiled_step"
        else made
        for made in findings
    ]


def gone_line(titles: Iterable[str], most_n: int = 3) -> str:
    """Return the findings that have no gain without the profiler, as a line; empty if none."""
    named = list(dict.fromkeys(title.partition(": ")[0] for title in titles))
    if not named:
        return ""
    more = f"; {len(named) - most_n} more" if len(named) > most_n else ""
    return f"nothing left without the profiler: {'; '.join(named[:most_n])}{more}"
