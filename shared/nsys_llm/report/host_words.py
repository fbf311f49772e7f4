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

from nsys_llm.report.host_tables import NOT_SAMPLED, wilson_pct
from nsys_llm.report.records import Record, Tables, percent, records
from nsys_llm.report.rules import Case
from nsys_llm.report.walls import Gpu
from nsys_llm.taxonomy.host_modules import UNRESOLVED
from nsys_llm.trace.host_part import (
    CUDA_CALL,
    INTERPRETER_LOCK,
    LEAST_SAMPLES,
    OFF_CORE,
    OS_CALL,
    RUNNING,
    SAMPLED,
    STEP,
    UNKNOWN,
    WARMUP,
)
from nsys_llm.view.text import counted, format_count, format_ns, format_percent, quoted

#: With fewer of the samples that there should be, shares say nothing; ours.
_LEAST_SAMPLED: Final = 0.75
#: What takes less of the time needs no advice; ours.
_LEAST_PCT: Final = 50.0
#: A launch takes some 5 us: with less of the time in such calls, launches are 100 us apart, and
#: fewer of them gain nothing; ours.
_LEAST_LAUNCHES_PCT: Final = 5.0

_WORDS: Final = {OFF_CORE: "off its core", RUNNING: "running", OS_CALL: "in the C library"}
#: Calls that launch one operation: neither a graph nor a function of the host.
_LAUNCHES: Final = r"cu(da)?Launch(?!HostFunc)"
_COLLECTS: Final = "garbage collection"
_LAUNCH_LESS: Final = "Launch less often: CUDA graphs, torch.compile, fused operators."
#: What to do, by state and pattern of the function, or of what most samples are in.
_ADVICE: Final = {
    (RUNNING, _COLLECTS): "Python collects garbage in the step: gc.freeze() after start-up, "
    "gc.collect() between steps.",
    (RUNNING, "python|driver"): _LAUNCH_LESS,
    (OS_CALL, INTERPRETER_LOCK): "The launching thread waits for the interpreter lock in the step: "
    "let threads that compute run in processes of their own.",
    (OS_CALL, r"p?read|recv|p?poll|select|epoll_|accept|fgets|fread|getline|open"): "The launching "
    "thread waits for input in the step: prefetch it, or let another process prepare it.",
    (OS_CALL, r"futex|pthread_|sem_|wait|(clock_)?nanosleep|u?sleep"): "The launching thread waits "
    "for another thread or process in the step: look at what that one does meanwhile.",
    (CUDA_CALL, ".*GraphLaunch"): "These launches are CUDA graphs already: launch fewer, larger "
    "ones, and upload each before its first launch (cudaGraphUpload).",
    (CUDA_CALL, _LAUNCHES): _LAUNCH_LESS,
}
#: What a rule on the host says where its threads are recorded: of steps, and of a start-up.
STATES, START_UP = "states", "start_up"
HOST_CASES: Final = {
    STATES: Case(
        title="Rank {rank}'s host: {host_step_ns} a step[ in {host_range:quoted}]{host_words}: "
        "its GPU idles {host_share_pct}",
        recommendation="{host_advice}",
    ),
    START_UP: Case(
        title="Start-up: rank {rank}'s host is late in {host_range:quoted}: its GPU idles "
        "{host_share_pct}",
        recommendation="{host_ns} of the {lost_ns} is start-up: nothing to gain in later steps. "
        "Leave it out with `--skip-warmup` or `--filter-time`.",
    ),
}


@dataclass(frozen=True)
class Waited:
    """Some of the exposed time of a GPU: rows of host_states and host_modules."""

    states: Sequence[Record] = ()
    modules: Sequence[Record] = ()

    @classmethod
    def of(cls, tables: Tables, gpu: Gpu) -> Waited:
        """Return that of a GPU; nothing of a capture without records of threads."""
        known = [tables[name] for name in ("host_states", "host_modules") if name in tables]
        of_gpu = ((table["rank"] == gpu[0]) & (table["device_id"] == gpu[1]) for table in known)
        return cls(*(records(table[rows]) for table, rows in zip(known, of_gpu, strict=True)))

    def where(self, column: str, *values: Any) -> Waited:
        """Return the rows with one of some values, in a column that both tables have."""
        both = (self.states, self.modules)
        return Waited(*([row for row in some if row[column] in values] for some in both))

    @property
    def time_ns(self) -> int:
        """All of it."""
        return sum(row["time_ns"] for row in self.states)

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
        return counts, max(LEAST_SAMPLES, math.ceil(_LEAST_SAMPLED * expected_n))

    @cached_property
    def software(self) -> str | None:
        """Which software most of these samples are in, with certainty; None where they say none."""
        counts, least_n = self.samples
        if self.doing[0] not in SAMPLED or counts.total() < least_n:
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
    def advice(self) -> str | None:
        """What to do about it; None where it says too little."""
        state, what, pct = self.doing
        if pct < _LEAST_PCT:
            return None
        if what is None and (what := self.software):
            rows = self.where("state", state).modules
            what = _COLLECTS if self._is_most(sum(row["collecting_n"] for row in rows)) else what
        advice = (
            text for of, text in _ADVICE.items() if of[0] == state and re.match(of[1], what or "")
        )
        advised = next(advice, None)
        calls = [row for row in self.states if re.match(_LAUNCHES, row["detail"] or "")]
        launches_ns = sum(row["time_ns"] for row in calls)
        if advised == _LAUNCH_LESS and percent(launches_ns, self.time_ns) < _LEAST_LAUNCHES_PCT:
            return None
        return advised


def _start_up(waited: Waited) -> Waited | None:
    """Return the warm-up with most of some time; None where steps have more."""
    warm = waited.where("part", WARMUP)
    if not warm.time_ns or 2 * warm.time_ns < waited.time_ns:
        return None
    return warm.where("range", warm.most("range")[0])


def host_sentence(tables: Tables, gpu: Gpu) -> str:
    """Return when a GPU waited for its host and what that did; "" where it is not recorded.

    What does not repeat is start-up, and is told apart from steps.
    """
    waited, said = Waited.of(tables, gpu), []
    steps = waited.where("part", STEP)
    if (warm := _start_up(waited)) is not None:
        loads = " (modules are loaded)" if warm.most("cause")[0] == "module_load" else ""
        said.append(
            f"{format_ns(warm.time_ns)} of the {format_ns(waited.time_ns)} of waiting for the host "
            f"are in {quoted(warm.states[0]['range'])}{loads}: start-up, nothing to gain later"
        )
    if steps.time_ns and (state := steps.doing[0]) != UNKNOWN:
        (counts, least_n), words = steps.samples, steps.words
        if state == RUNNING and (n := counts.total()) < least_n:
            numbers = f"{format_count(n)} of at least {format_count(least_n)}"
            words += f" (too few samples to say in what: {numbers})"
        steps_n = counted(steps.states[0]["steps_n"], "step")
        said.append(f"{steps_n}: {format_ns(steps.time_ns)}, {words}")
    if not said and (words := path_words(waited)[0]):
        said.append(f"{format_ns(waited.time_ns)} of waiting for the host{words}")
    text = "; ".join(said)
    return f" {text[0].upper()}{text[1:]}." if text else ""


def host_case(waited: Waited, lost_ns: int, span_ns: int) -> tuple[str, dict[str, Any]] | None:
    """Return the case of `HOST_CASES` that says most of some time, and its fields.

    A start-up leads where steps have less than a quarter; else steps, without what is start-up.

    Args:
        waited: Of one GPU.
        lost_ns: All that the rule is about: also what no thread did, as the way to the GPU.
        span_ns: All of the GPU's time.

    Returns:
        None where neither steps nor warm-ups say most of it; `host_ns` is start-up.
    """
    warm, steps = waited.where("part", WARMUP), waited.where("part", STEP)
    start_up = _start_up(waited)
    if start_up is not None and 4 * steps.time_ns < waited.time_ns:
        return START_UP, {
            "host_range": start_up.states[0]["range"],
            "host_share_pct": percent(start_up.time_ns, span_ns),
            "host_ns": warm.time_ns,
        }
    if not steps.time_ns or 2 * steps.time_ns < waited.time_ns - warm.time_ns:
        return None
    name, ns = steps.most("range")
    words, advice = path_words(steps.where("range", name))
    return STATES, {
        "host_step_ns": ns / max(steps.states[0]["steps_n"], 1),
        "host_range": name,
        "host_words": words,
        "host_advice": advice,
        "host_ns": warm.time_ns,
        "host_share_pct": percent(max(lost_ns - warm.time_ns, 0), span_ns),
    }


def path_words(waited: Waited) -> tuple[str, str | None]:
    """Return what a thread did most, as it follows a time, and the advice; "" if unknown."""
    if not waited.states or waited.doing[0] == UNKNOWN:
        return "", None
    return f", {waited.words}", waited.advice
