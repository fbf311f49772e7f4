"""What host threads did while a GPU waited for them, in words: of the tables `host_*`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from nsys_llm.view.text import counted, format_ns, format_percent, quoted

#: More missing samples than this say nothing about shares; ours.
_MOST_MISSING_PCT: Final = 25.0
#: What takes less of the time needs no advice; ours.
_LEAST_PCT: Final = 50.0

_WORDS: Final = {OFF_CORE: "off its core", RUNNING: "running", OS_CALL: "in the C library"}
#: Functions of the C library that wait for input, and CPython's of its garbage collection.
_READS: Final = re.compile(r"p?read|recv|p?poll|select|epoll_|accept|fgets|fread|getline|open")
_COLLECTS: Final = re.compile(r"gc_collect|_PyGC|deduce_unreachable|subtract_refs|visit_decref")
#: Calls that launch one operation: neither a graph nor a function of the host.
_LAUNCHES: Final = re.compile(r"cu(da)?Launch(?!HostFunc)")
_ADVICE: Final = {
    "garbage": "Python collects garbage in the step: gc.freeze() after start-up, gc.collect() "
    "between steps.",
    "reads": "The launching thread waits for input in the step: prefetch it, or let another "
    "process prepare it.",
    "graphs": "These launches are CUDA graphs already: launch fewer, larger ones, and upload each "
    "before its first launch (cudaGraphUpload).",
    "lock": "The launching thread waits for the interpreter lock in the step: let threads that "
    "compute run in processes of their own.",
    "launches": "Launch less often: CUDA graphs, torch.compile, fused operators.",
}
#: What a rule on the host says where its threads are recorded: of steps, and of a start-up.
STATES, START_UP = "states", "start_up"
HOST_CASES: Final = {
    STATES: Case(
        title="Rank {rank}'s host: {host_step_ns} a step[ in {host_range:quoted}]{host_words}: "
        "its GPU idles {share_pct}",
        recommendation="{host_advice}",
    ),
    START_UP: Case(
        title="Start-up: rank {rank}'s host is late in {host_range:quoted}: its GPU idles "
        "{host_share_pct}",
        recommendation="{host_ns} of the {lost_ns}, {host_pct}, is start-up: nothing to gain in "
        "later steps. Leave it out with `--skip-warmup` or `--filter-time`.",
    ),
}


@dataclass(frozen=True)
class Waited:
    """Some of the exposed time of a GPU: rows of host_states, host_modules and host_frames."""

    states: Sequence[Record]
    modules: Sequence[Record]
    frames: Sequence[Record] = ()

    @classmethod
    def of(cls, tables: Tables, gpu: Gpu) -> Waited:
        """Return that of a GPU; nothing of a capture without records of threads."""
        if "host_states" not in tables:
            return cls((), ())
        rows = []
        for name in ("host_states", "host_modules", "host_frames"):
            table = tables[name]
            here = table["rank"] == gpu[0]
            if "device_id" in table:
                here &= table["device_id"] == gpu[1]
            rows.append(records(table[here]))
        return cls(*rows)

    def where(self, column: str, *values: Any) -> Waited:
        """Return the rows with one of some values, in a column that states and modules have."""
        states, modules = (
            [row for row in some if row[column] in values] for some in (self.states, self.modules)
        )
        frames = [row for row in self.frames if row.get(column, values[0]) in values]
        return Waited(states, modules, frames)

    def samples(self) -> Counter[str]:
        """Return its samples by class."""
        counts = Counter[str]()
        for row in self.modules:
            counts[row["module_class"]] += row["samples_n"]
        return counts

    @property
    def expected_n(self) -> float:
        """How many samples there should be of one state, as a whole: each group's is rounded.

        Of threads without switches those that there are.
        """
        period_ns = max((row["period_ns"] or 0 for row in self.modules), default=0)
        on_core_ns = sum(row["on_core_ns"] or 0 for row in self.states)
        free_n = sum(row["samples_n"] for row in self.modules if row["expected_n"] is None)
        return free_n + (on_core_ns / period_ns if period_ns else 0)

    @property
    def collecting_n(self) -> int:
        """At least so many samples are in garbage collection.

        Frames are of all samples of a part and state: those elsewhere may all have collected.
        """
        collects, stacks = Counter[str](), dict[str, int]()
        for row in self.frames:
            if row["kind"] == "leaf":
                collects[row["part"]] += row["samples_n"] * bool(_COLLECTS.search(row["function"]))
                stacks[row["part"]] = row["stacks_n"]
        least_n = 0
        for part, stacks_n in stacks.items():
            here = self.where("part", part).samples()
            here_n = here.total() - here[NOT_SAMPLED] - here[UNRESOLVED]
            least_n += max(collects[part] - max(stacks_n - here_n, 0), 0)
        return least_n

    @property
    def is_recorded(self) -> bool:
        """Whether it has samples and calls of the C library."""
        calls = any(row["state"] == OS_CALL or row["os_call"] for row in self.states)
        return calls and any(name != NOT_SAMPLED for name in self.samples())

    @property
    def time_ns(self) -> int:
        """All of it."""
        return sum(row["time_ns"] for row in self.states)

    def most(self, of: Callable[[Record], Any]) -> tuple[Any, int]:
        """Return what has most of the time, and how much; there is at least one row."""
        sums = Counter[Any]()
        for row in self.states:
            sums[of(row)] += row["time_ns"]
        return max(sums.items(), key=lambda item: (item[1], str(item[0])))


@dataclass(frozen=True)
class Doing:
    """What a thread did for most of some time.

    Attributes:
        state: One of the states of `nsys_llm.trace.host_part`.
        detail: Function, where it was in one.
        pct: Share of the time.
        module_class: Which software most samples of it are in; None where they say nothing.
        class_n: Samples in it.
        samples_n: Of the state.
        expected_n: How many there should be.
        user_mode: Whether only user mode was sampled.
    """

    state: str
    detail: str | None
    pct: float
    module_class: str | None
    class_n: int
    samples_n: int
    expected_n: float
    user_mode: bool

    @classmethod
    def of(cls, waited: Waited) -> Doing:
        """Look at some time; there is at least one row."""
        (state, detail), ns = waited.most(lambda row: (row["state"], row["detail"]))
        here = waited.where("state", state)
        counts, expected_n = here.samples(), here.expected_n
        del counts[NOT_SAMPLED]
        n = counts.total()
        if state not in SAMPLED or n < LEAST_SAMPLES or _is_lossy(n, expected_n):
            counts.clear()
        name, most_n = max(counts.items(), key=lambda item: item[::-1], default=(None, 0))
        if name == UNRESOLVED or percent(most_n, n) < _LEAST_PCT:
            name = None
        user_mode = any(row["user_mode"] for row in here.modules)
        most = name, most_n, n, expected_n, user_mode
        return cls(state, detail, percent(ns, waited.time_ns), *most)

    @property
    def words(self) -> str:
        """It as in `83 % in `read``."""
        state = _WORDS.get(self.state, self.state)
        where = state if self.detail is None else f"in {quoted(self.detail)}"
        said = f"{format_percent(self.pct)} {where}"
        if self.module_class is None:
            return said
        class_pct = percent(self.class_n, self.samples_n)
        samples = "user-mode samples" if self.user_mode else "samples"
        return f"{said}, {format_percent(class_pct)} of its {samples} {self.module_class}"

    @property
    def doubt(self) -> str:
        """Why samples do not say what ran, in brackets; "" where they do, or were not asked."""
        if self.state != RUNNING:
            return ""
        if self.samples_n < LEAST_SAMPLES:
            return f" (too few samples to say in what: {self.samples_n})"
        if _is_lossy(self.samples_n, self.expected_n):
            return f" (of {round(self.expected_n)} samples expected only {self.samples_n})"
        return ""

    def advice(self, waited: Waited) -> str | None:
        """Return what to do about it, of the time that it is of; None where it says too little."""
        detail = self.detail or ""
        if self.pct < _LEAST_PCT:
            return None
        if self.state == RUNNING and self.samples_n >= LEAST_SAMPLES:
            collecting_n = waited.where("state", RUNNING).collecting_n
            lossy = _is_lossy(self.samples_n, self.expected_n)
            if not lossy and _least_pct(collecting_n, self.samples_n) >= _LEAST_PCT:
                return _ADVICE["garbage"]
        if detail == INTERPRETER_LOCK:
            return _ADVICE["lock"]
        if self.state == OS_CALL and _READS.match(detail):
            return _ADVICE["reads"]
        if self.state == CUDA_CALL and "GraphLaunch" in detail:
            return _ADVICE["graphs"]
        if self.state == CUDA_CALL and not _LAUNCHES.match(detail):
            return None
        launching = self.state == CUDA_CALL
        if self.module_class in ("python", "driver"):
            launching |= _least_pct(self.class_n, self.samples_n) >= _LEAST_PCT
        return _ADVICE["launches"] if launching else None


def _is_lossy(samples_n: int, expected_n: float) -> bool:
    """Return whether too many samples are missing to say in what a thread was."""
    return percent(expected_n - samples_n, expected_n) > _MOST_MISSING_PCT


def _least_pct(count: int, of_n: int) -> float:
    """Return the lower end of the interval of a share of samples."""
    low_pct, _ = wilson_pct(np.array([count]), np.array([of_n]))
    return float(low_pct[0])


def _start_up(waited: Waited) -> tuple[str, int] | None:
    """Return the warm-up with most of some time, and how much; None where steps have more."""
    warm = waited.where("part", WARMUP)
    if not warm.time_ns or 2 * warm.time_ns < waited.time_ns:
        return None
    return warm.most(lambda row: row["range"])


def host_sentence(tables: Tables, gpu: Gpu) -> str:
    """Return when a GPU waited for its host and what that did; "" where it is not recorded.

    What does not repeat is start-up, and is told apart from steps.
    """
    waited, said = Waited.of(tables, gpu), []
    steps = waited.where("part", STEP)
    if (start_up := _start_up(waited)) is not None:
        name, ns = start_up
        warm = waited.where("part", WARMUP).where("range", name)
        cause, _ = warm.most(lambda row: row["cause"])
        loads = " (modules are loaded)" if cause == "module_load" else ""
        said.append(
            f"{format_ns(ns)} of the {format_ns(waited.time_ns)} of waiting for the host are in "
            f"{quoted(name)}{loads}: start-up, nothing to gain later"
        )
    if steps.time_ns and (doing := Doing.of(steps)).state != UNKNOWN:
        steps_n = counted(steps.states[0]["steps_n"], "step")
        said.append(f"{steps_n}: {format_ns(steps.time_ns)}, {doing.words}{doing.doubt}")
    if not said and (words := path_words(waited)[0]):
        said.append(f"{format_ns(waited.time_ns)} of waiting for the host{words}")
    text = "; ".join(said)
    return f" {text[0].upper()}{text[1:]}." if text else ""


def host_case(
    waited: Waited, lost_ns: int, span_ns: int, otherwise: str
) -> tuple[str, dict[str, Any]] | None:
    """Return the case of `HOST_CASES` that says most of some time, and its fields.

    Args:
        waited: Of one GPU.
        lost_ns: All that the rule is about: also what no thread did, as the way to the GPU.
        span_ns: All of the GPU's time.
        otherwise: What to do where its threads say too little.

    Returns:
        None where neither steps nor warm-ups have half of the time.
    """
    if (start_up := _start_up(waited)) is not None:
        (name, ns), warm = start_up, waited.where("part", WARMUP)
        return START_UP, {
            "host_range": name,
            "host_share_pct": percent(ns, span_ns),
            "host_ns": warm.time_ns,
            "host_pct": percent(warm.time_ns, lost_ns),
        }
    steps = waited.where("part", STEP)
    if not steps.time_ns or 2 * steps.time_ns < waited.time_ns:
        return None
    name, ns = steps.most(lambda row: row["range"])
    words, advice = path_words(steps.where("range", name))
    return STATES, {
        "host_step_ns": ns / max(steps.states[0]["steps_n"], 1),
        "host_range": name,
        "host_words": words,
        "host_advice": advice or otherwise,
    }


def path_words(waited: Waited) -> tuple[str, str | None]:
    """Return what a thread did most, as it follows a time, and the advice; "" if unknown."""
    doing = Doing.of(waited) if waited.states else None
    if doing is None or doing.state == UNKNOWN:
        return "", None
    return f", {doing.words}", doing.advice(waited)
