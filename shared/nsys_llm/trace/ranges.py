"""NVTX ranges as intervals with names, and how users pick some of them.

Push/pop ranges (event type 59) belong to their thread; start/end ranges (60) to their process, and
hold the launches of any of its threads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.manifest.range_choice import RangeChoice
from nsys_llm.numeric.grouping import distinct_rows, position_in_group
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.stacking import Rows
from nsys_llm.profile.tables import Table
from nsys_llm.trace.coded_names import text_of
from nsys_llm.trace.rank_trace import sane_times

#: Event types of NVTX_EVENTS, the same in schemas 3.7 to 3.30 (ENUM_NSYS_EVENT_TYPE).
PUSH_POP: Final = 59
START_END: Final = 60
DOMAIN_CREATED: Final = 75


@dataclass(frozen=True)
class Ranges(Rows):
    """Ranges of one process, in order of (start, -end).

    Attributes:
        start_ns: Shape (n,), int64, the profile's clock.
        end_ns: Shape (n,); the end of the capture where a range was never closed.
        thread: Shape (n,), globalTid of the thread that opened it.
        any_thread: Shape (n,), bool: a start/end range.
        name: Shape (n,), raw texts.
        domain: Shape (n,), names; "" for the default domain.
    """

    start_ns: IntArray
    end_ns: IntArray
    thread: IntArray
    any_thread: npt.NDArray[np.bool_]
    name: npt.NDArray[Any]
    domain: npt.NDArray[Any]


def typed_name(name: str, domain: str | None = None) -> str:
    r"""Return a range as `parse_choice` reads it: `a@b` is typed `a\@b`.

    Args:
        domain: "" is the one without a name; None: any.
    """
    text = re.sub(r"([\\@])", r"\\\1", name)
    if domain is None or not domain:
        text = re.sub(r"/(?=[0-9]+\Z)", r"\\/", text)
    if name.startswith("re:"):
        text = f"\\{text}"
    if domain is None:
        return text
    return f"{text}@" + (re.sub(r"([\\@/])", r"\\\1", domain) or "default")


def read_ranges(events: Table, strings: Mapping[int, str], capture_end_ns: int) -> Ranges:
    """Make the ranges of one process out of its NVTX events.

    Args:
        events: Columns start_ns, end_ns, event_type, text, text_id, global_tid, domain_id.
        capture_end_ns: Where ranges without an end stop.
    """
    texts = event_texts(events, strings)
    created = events["event_type"] == DOMAIN_CREATED
    domains = dict(zip(events["domain_id"][created].tolist(), texts[created], strict=True))
    rows = np.flatnonzero(np.isin(events["event_type"], (PUSH_POP, START_END)))
    ends, _ = closed_ends(events["end_ns"][rows], capture_end_ns)
    order = np.lexsort((-ends, events["start_ns"][rows]))
    rows, ends = rows[order], ends[order]
    sane = sane_times(events["start_ns"][rows], ends)
    rows, ends = rows[sane], ends[sane]
    ids = events["domain_id"][rows].tolist()
    return Ranges(
        start_ns=events["start_ns"][rows],
        end_ns=ends,
        thread=events["global_tid"][rows],
        any_thread=events["event_type"][rows] == START_END,
        name=texts[rows],
        domain=np.array([domains.get(key, "") for key in ids], dtype=object),
    )


def distinct_ranges(
    events: Table, strings: Mapping[int, str], capture_end_ns: int
) -> set[tuple[str, str]]:
    """Return the distinct raw texts of the ranges of one process, each with its domain's name."""
    is_range = np.isin(events["event_type"], (PUSH_POP, START_END))
    ends, _ = closed_ends(events["end_ns"], capture_end_ns)
    ranges = events.take(is_range & sane_times(events["start_ns"], ends))
    registered = ranges["text_id"] != NULL_INT
    first, _ = distinct_rows([ranges[name][registered] for name in ("text_id", "domain_id")])
    some = np.concatenate((np.flatnonzero(registered)[first], np.flatnonzero(~registered)))
    created = events.take(events["event_type"] == DOMAIN_CREATED)
    domains = dict(zip(created["domain_id"].tolist(), event_texts(created, strings), strict=True))
    few = ranges.take(some)
    pairs = set(zip(event_texts(few, strings).tolist(), few["domain_id"].tolist(), strict=True))
    return {(text, domains.get(key, "")) for text, key in pairs}


def closed_ends(end_ns: IntArray, capture_end_ns: int) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Return the ends of ranges, that of the capture where one was never closed; and where not."""
    is_open = end_ns == NULL_INT
    return np.where(is_open, capture_end_ns, end_ns), is_open


def lasting(start_ns: IntArray, end_ns: IntArray) -> npt.NDArray[np.bool_]:
    """Return which ranges have times that a capture can have, and end after they start.

    Args:
        end_ns: Shape (n,), of `closed_ends`, or as recorded: then one never closed is none.
    """
    # NULL is far below any end, and the length to there does not fit into 64 bits.
    return sane_times(start_ns, end_ns) & (end_ns > start_ns)


def chosen_ranges(ranges: Ranges, choice: RangeChoice) -> Ranges:
    """Return the ranges that a choice names."""
    named = _matches(ranges.name, choice.names)
    if choice.domain is not None:
        named &= _matches(ranges.domain, choice.holds)
    rows = np.flatnonzero(named)
    if choice.index is not None:
        rows = rows[np.argsort(ranges.thread[rows], kind="stable")]
        rows = np.sort(rows[position_in_group(ranges.thread[rows]) == choice.index])
    return ranges.take(rows)


def most_on_a_thread(ranges: Ranges) -> int:
    """Return how many of the ranges the thread with most of them has, as an index counts them."""
    _, counts = np.unique(ranges.thread, return_counts=True)
    return int(counts.max(initial=0))


def step_ranges(ranges: Ranges, choice: RangeChoice) -> Ranges:
    """Return the ranges that --step names, as steps of the process.

    Where several threads mark steps, those of the thread with most are the steps of the process.
    A step holds the launches of all threads, since a framework launches for a step from several.
    """
    steps = chosen_ranges(ranges, choice)
    if not len(steps.start_ns):
        return steps
    threads, codes = np.unique(steps.thread, return_inverse=True)
    main_steps = steps.take(steps.thread == threads[np.bincount(codes).argmax()])
    return replace(main_steps, any_thread=np.ones(len(main_steps.start_ns), dtype=bool))


def event_texts(events: Table, strings: Mapping[int, str]) -> npt.NDArray[Any]:
    """Return the texts of events, which stand in the rows or in the strings; "" without one."""
    texts = events["text"].copy()
    ids = events["text_id"]
    registered = np.flatnonzero(ids != NULL_INT)
    texts[registered] = [text_of(key, strings) for key in ids[registered].tolist()]
    texts[texts == None] = ""  # noqa: E711 - element by element
    return texts


def _matches(names: npt.NDArray[Any], test: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
    """Return which names pass a test, which is made once for each distinct one."""
    known = {name: test(name) for name in set(names.tolist())}
    return np.array([known[name] for name in names.tolist()], dtype=bool)
