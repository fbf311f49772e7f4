"""What host threads did while a GPU waited for them, in words: of the tables `host_*`."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from nsys_llm.report.findings import Evidence, part_of
from nsys_llm.report.host_tables import NOT_SAMPLED, wilson_pct
from nsys_llm.report.records import Record, Tables, percent, records
from nsys_llm.report.rules import Case
from nsys_llm.report.walls import Gpu
from nsys_llm.taxonomy.advice import advice_on
from nsys_llm.taxonomy.host_modules import UNRESOLVED
from nsys_llm.trace import host_part as host
from nsys_llm.view.text import counted, format_count, format_ns, format_percent, quoted, shortened

#: With fewer of the samples that there should be, shares say nothing; ours.
_LEAST_SAMPLED: Final = 0.75
#: What takes less of the time needs no advice; ours.
_LEAST_PCT: Final = 50.0
#: A launch takes some 5 us: with less of the time in such calls, launches are 100 us apart, and
#: fewer of them gain nothing; ours.
_LEAST_LAUNCHES_PCT: Final = 5.0

_WORDS: Final = {
    host.OFF_CORE: "off its core",
    host.RUNNING: "running",
    host.OS_CALL: "in the C library",
}
#: Calls that launch one operation: neither a graph nor a function of the host.
_LAUNCHES: Final = r"cu(da)?Launch(?!HostFunc)"
_COLLECTS: Final = "garbage collection"
#: What a rule on the host says where its threads are recorded: of steps, and of a start-up.
STATES, START_UP = "states", "start_up"
HOST_CASES: Final = {
    STATES: Case(
        title="{hosts} {host_step_ns} a step{host_where}{host_words}: its GPU idles "
        "{share_pct} meanwhile[ (start-up {start_up_pct})]"
    ),
    START_UP: Case(
        title="Start-up: {who} is late in {host_range:quoted}: {its} GPU idles "
        "{host_share_pct} meanwhile",
        recommendation="{host_ns} of the {lost_ns} is start-up, so later steps gain nothing. "
        "Exclude it with `--skip-warmup` or `--filter-time`.",
    ),
}


@dataclass(frozen=True)
class Waited:
    """Some of the exposed time of a GPU: rows of host_states and host_modules.

    Attributes:
        chosen: Columns and values that choose these rows, see `Evidence.where`.
    """

    states: Sequence[Record] = ()
    modules: Sequence[Record] = ()
    chosen: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, tables: Tables, gpu: Gpu) -> Waited:
        """Return that of a GPU; nothing of a capture without records of threads."""
        names = ("host_states", "host_modules")
        states, modules = (records(tables[name]) if name in tables else () for name in names)
        return cls(states, modules).where("rank", gpu[0]).where("device_id", gpu[1])

    def where(self, column: str, *values: Any) -> Waited:
        """Return the rows with one of some values, in a column that both tables have."""
        both = (self.states, self.modules)
        states, modules = ([row for row in some if row.get(column) in values] for some in both)
        chosen = column, values if len(values) > 1 else values[0]
        return Waited(states, modules, (*self.chosen, chosen))

    @property
    def time_ns(self) -> int:
        """All of it."""
        return sum(row["time_ns"] for row in self.states)

    def where_words(self, name: str | None) -> str:
        """Return in which of their ranges some of it is, as it follows a time; None for none."""
        if name is not None:
            return f" in {quoted(shortened(name))}"
        is_known = any(row["range"] for row in self.states)
        return f" outside {'all ranges' if is_known else 'CUDA calls'}"

    def sum(self, name: str, over: Evidence | None = None) -> Evidence:
        """Return all of it as evidence, see `Evidence`."""
        value = part_of(self.time_ns, name, over)
        return Evidence("host_states", self.chosen, "time_ns", value, name, "sum", over)

    def most(self, *columns: str) -> tuple[Any, ...]:
        """Return the values of columns that have most time, and it; there is at least one row."""
        sums = Counter[tuple[Any, ...]]()
        for row in self.states:
            sums[tuple(row[column] for column in columns)] += row["time_ns"]
        values, ns = max(sums.items(), key=lambda item: (item[1], str(item[0])))
        return *values, ns

    @cached_property
    def doing(self) -> tuple[str, str | None, float]:
        """State and function with most of the time, and their share; there is at least one row."""
        state, detail, ns = self.most("state", "detail")
        return state, detail, percent(ns, self.time_ns)

    @cached_property
    def samples(self) -> tuple[Counter[str], int]:
        """Its samples in that state by class, and how many say something."""
        here, counts = self.where("state", self.doing[0]), Counter[str]()
        for row in here.modules:
            counts[row["module_class"]] += row["samples_n"]
        del counts[NOT_SAMPLED]
        # Those that there should be in each group are rounded; in all together they are not.
        period_ns = max((row["period_ns"] or 0 for row in here.modules), default=0)
        on_core_ns = sum(row.get("on_core_ns") or 0 for row in here.states)
        expected_n = on_core_ns / period_ns if period_ns else 0.0
        return counts, max(host.LEAST_SAMPLES, math.ceil(_LEAST_SAMPLED * expected_n))

    @cached_property
    def software(self) -> str | None:
        """Which software most of these samples are in, with certainty; None where they say none."""
        counts, least_n = self.samples
        if self.doing[0] not in host.SAMPLED or counts.total() < least_n:
            return None
        name, _ = max(counts.items(), key=lambda item: item[::-1])
        return name if name != UNRESOLVED and self._is_most(counts[name]) else None

    def _is_most(self, samples_n: int) -> bool:
        low_pct, _ = wilson_pct(np.array([samples_n]), np.array([self.samples[0].total()]))
        return bool(low_pct[0] >= _LEAST_PCT)

    @property
    def words(self) -> str:
        """What it did most, as in `83 % in `read``."""
        state, detail, pct = self.doing
        where = _WORDS.get(state, state) if detail is None else f"in {quoted(detail)}"
        said = f"{format_percent(pct)} {where}"
        if (name := self.software) is None:
            return said
        counts, _ = self.samples
        kind = "user-mode samples" if self.modules[0]["user_mode"] else "samples"
        share = format_percent(percent(counts[name], counts.total()))
        return f"{said}, {share} of its {kind} {name}"

    @property
    def said(self) -> str:
        """What it did most, as it follows a time; empty where it is not recorded."""
        return "" if not self.states or self.doing[0] == host.UNKNOWN else f", {self.words}"

    @cached_property
    def evidence(self) -> tuple[Evidence, ...]:
        """The numbers of `said`."""
        if not self.said:
            return ()
        (state, detail, _), (counts, _) = self.doing, self.samples
        doing_most = self.where("state", state).where("detail", detail)
        shares = [doing_most.sum("doing_pct", self.sum("host_ns"))]
        if self.software is not None:
            here, seen_n = (*self.chosen, ("state", state)), counts.total()
            seen = ("module_class", tuple(sorted(counts))), ("module_class", self.software)
            where, of = ((*here, item) for item in seen[::-1])
            whole = Evidence("host_modules", of, "samples_n", seen_n, "seen_n", "sum")
            pct = percent(counts[self.software], seen_n)
            shares.append(
                Evidence("host_modules", where, "samples_n", pct, "seen_pct", "sum", whole)
            )
        return tuple(shares)

    @property
    def advice(self) -> str | None:
        """What to do about it; None where it says too little."""
        ranges = {row["range"] for row in self.states}
        known = {"range": ranges.pop() if len(ranges) == 1 else None}
        state, what, pct = self.doing if self.states else (host.UNKNOWN, None, 0.0)
        if pct >= _LEAST_PCT:
            if what is None and (what := self.software):
                rows = self.where("state", state).modules
                collecting_n = sum(row["collecting_n"] for row in rows)
                what = _COLLECTS if self._is_most(collecting_n) else what
            calls = [row for row in self.states if re.match(_LAUNCHES, row["detail"] or "")]
            share_pct = percent(sum(row["time_ns"] for row in calls), self.time_ns)
            many = "few" if share_pct < _LEAST_LAUNCHES_PCT else "many"
            known |= {"state": state, "function": what, "launches": many}
        return advice_on(**known)


def _start_up(waited: Waited) -> Waited | None:
    """Return the warm-up with most of some time; None where steps have more."""
    warm = waited.where("part", host.WARMUP)
    if not warm.time_ns or 2 * warm.time_ns < waited.time_ns:
        return None
    return warm.where("range", warm.most("range")[0])


def host_sentence(tables: Tables, gpu: Gpu) -> str:
    """Return when a GPU waited for its host and what that did; "" where it is not recorded.

    What does not repeat is start-up, and is listed apart from steps.
    """
    waited, said = Waited.of(tables, gpu), []
    steps = waited.where("part", host.STEP)
    if (warm := _start_up(waited)) is not None:
        loads = " (modules are loaded)" if warm.most("cause")[0] == "module_load" else ""
        said.append(
            f"{format_ns(warm.time_ns)} of the {format_ns(waited.time_ns)} of waiting for the host "
            f"are in {quoted(warm.states[0]['range'])}{loads}: start-up, nothing to gain later"
        )
    if steps.time_ns and (state := steps.doing[0]) != host.UNKNOWN:
        (counts, least_n), words = steps.samples, steps.words
        if state == host.RUNNING and (n := counts.total()) < least_n:
            numbers = f"{format_count(n)} of at least {format_count(least_n)}"
            words += f" (too few samples to show the code: {numbers})"
        steps_n = counted(steps.states[0]["steps_n"], "step")
        said.append(f"{steps_n}: {format_ns(steps.time_ns)}, {words}")
    if not said and waited.said:
        said.append(f"{format_ns(waited.time_ns)} of waiting for the host{waited.said}")
    text = "; ".join(said)
    return f" {text[0].upper()}{text[1:]}." if text else ""


def host_case(
    waited: Waited, lost_ns: int, span: Evidence
) -> tuple[str, dict[str, Any], tuple[Evidence, ...]] | None:
    """Return the case of `HOST_CASES` that says most of some time, its fields and their evidence.

    A start-up leads where steps have less than a quarter; else steps, without what is start-up. A
    range is named if it has half of what is no start-up.

    Args:
        lost_ns: All that the rule is about: also what no thread did, as the way to the GPU.
        span: All of the GPU's time.

    Returns:
        None where neither steps nor warm-ups say most of it; `host_ns` is start-up.
    """
    warm, steps = waited.where("part", host.WARMUP), waited.where("part", host.STEP)
    start_up, fields = _start_up(waited), {"host_ns": warm.time_ns}
    if start_up is not None and 4 * steps.time_ns < waited.time_ns:
        name = start_up.states[0]["range"]
        return START_UP, fields | {"host_range": name}, (start_up.sum("host_share_pct", span),)
    if not steps.time_ns or 2 * steps.time_ns < waited.time_ns - warm.time_ns:
        return None
    name, ns = steps.most("range")
    is_named = 2 * ns >= lost_ns - warm.time_ns
    there = steps.where("range", name) if is_named else steps
    words = {"host_where": waited.where_words(name) if is_named else "", "host_words": there.said}
    steps_n = steps.states[0]["steps_n"]
    each = Evidence("host_states", steps.chosen, "steps_n", steps_n, "steps_n")
    numbers = there.sum("host_step_ns", each), warm.sum("start_up_pct", span), *there.evidence
    advice = there.advice or advice_on(range=name if is_named else None)
    return STATES, fields | words | {"host_advice": advice}, numbers
