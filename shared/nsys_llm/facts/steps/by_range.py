"""Steps that NVTX ranges of known names mark: an engine's, a framework's numbered ones."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.steps.launched_ops import LaunchedOps, is_half
from nsys_llm.facts.steps.marked_ranges import MarkedRanges
from nsys_llm.facts.steps.series import whole_steps
from nsys_llm.facts.steps.steps import ENGINE, NUMBERED, OPTION, StepSpans, between_marks
from nsys_llm.manifest.range_choice import parse_choice
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.names import normalize_range, step_key
from nsys_llm.taxonomy.step_names import (
    LAYER,
    EngineStep,
    NumberedRange,
    engine_steps,
    numbered_ranges,
    parse_step,
    range_key,
    unit_of,
)
from nsys_llm.trace.ranges import read_ranges, step_ranges
from nsys_llm.trace.rank_trace import RankTrace

#: Numbered ranges of a framework, whose name says so, need one to compare with.
_LEAST_NUMBERED: Final = 2
_Mask = npt.NDArray[np.bool_]


def chosen_steps(trace: RankTrace, text: str) -> StepSpans | None:
    """Return the ranges that --step names; None where there are none."""
    events = trace.tables.get("nvtx_events")
    if events is None or not len(events):
        return None
    steps = step_ranges(read_ranges(events, trace.strings, trace.last_end_ns), parse_choice(text))
    if not len(steps.start_ns):
        return None
    is_open = events["end_ns"] == NULL_INT
    # A pattern may match several names: their order must not choose between them.
    name = text if text.startswith("re:") else range_key(str(steps.name[0]))
    return StepSpans(
        name=name,
        unit=unit_of(name),
        source=OPTION,
        names=steps.name,
        start_ns=steps.start_ns,
        end_ns=steps.end_ns,
        closed=~np.isin(steps.start_ns, events["start_ns"][is_open]),
    )


def engine_spans(marked: MarkedRanges, ops: LaunchedOps) -> StepSpans | None:
    """Return the ranges that an engine writes around its steps, if work was launched in any.

    Of an engine the first kind with work; of several engines the one whose ranges hold most.
    """
    best: tuple[int, StepSpans] | None = None
    seen: set[str] = set()
    for kind in engine_steps():
        if kind.engine in seen:
            continue
        rows, drafts = _engine_rows(marked, kind)
        held_ns = marked.held_ns(rows, ops) if rows.size else 0
        if not held_ns:
            continue
        seen.add(kind.engine)
        if best is None or held_ns > best[0]:
            spans = marked.spans(rows, kind.name, unit_of(""), ENGINE)
            if drafts.size:
                ends = marked.start_ns[drafts], marked.end_ns[drafts]
                spans = replace(spans, drafts=np.column_stack(ends))
            best = held_ns, spans
    return whole_steps(best[1], ops) if best else None


def _engine_rows(marked: MarkedRanges, kind: EngineStep) -> tuple[IntArray, IntArray]:
    """Return the ranges of an engine's steps, and of its drafts, on the thread with most."""
    is_step = marked.which(kind.pattern.matches)
    rows = np.flatnonzero(is_step)
    if kind.starts is not None and rows.size:
        others = np.flatnonzero(marked.which(kind.starts.matches) & ~is_step)
        if others.size and any(parse_step(marked.plain[code]) for code in marked.name[rows]):
            rows = marked.of_one_thread(rows)
            rows = np.union1d(rows, _apart(marked, others, rows))
    rows = marked.of_one_thread(rows)
    if kind.verified_by is None or kind.steps is None:
        return rows, rows[:0]
    if not marked.which(kind.verified_by.matches)[rows].any():
        return rows, rows[:0]
    is_step = marked.which(kind.steps.matches)[rows]
    if kind.twice is not None:
        is_step &= ~_repeats(marked.name[rows], marked.which(kind.twice.matches)[rows])
    return rows[is_step], rows[~is_step]


def _repeats(name: IntArray, some: _Mask) -> _Mask:
    """Return every second of some equal names in a row; none unless all such rows are of pairs."""
    first = np.flatnonzero(np.diff(name, prepend=-1))
    sizes = np.diff(np.append(first, name.size))
    # The capture may begin or end between two of a pair.
    is_odd = (sizes[1:-1] % 2 == 1) & some[first][1:-1]
    if is_odd.any() or not (some[first] & (sizes > 1)).any():
        return np.zeros(name.size, dtype=bool)
    place = np.arange(name.size) - np.repeat(first, sizes)
    place[: sizes[0]] += sizes[0] % 2
    return np.asarray(some & (place % 2 == 1))


def _apart(marked: MarkedRanges, among: IntArray, steps: IntArray) -> IntArray:
    """Return which of some ranges are on the thread of steps, and neither in nor around any."""
    among = among[marked.thread[among] == marked.thread[steps[0]]]
    begun = np.searchsorted(marked.start_ns[steps], marked.end_ns[among], side="left")
    ended = np.searchsorted(marked.end_ns[steps], marked.start_ns[among], side="right")
    return among[begun == ended]


def numbered_spans(marked: MarkedRanges, ops: LaunchedOps) -> StepSpans | None:
    """Return the steps or layers that a framework's numbered ranges mark.

    They have to hold half of the launched GPU time; of layers, those whose next one is marked.
    """
    for kind in numbered_ranges():
        rows = np.flatnonzero(marked.which(kind.pattern.matches))
        if not rows.size:
            continue
        spans = _numbered(marked, rows, kind, ops.last_ns)
        if spans is None or len(spans) < _LEAST_NUMBERED:
            continue
        counted = spans.closed if kind.unit == LAYER else np.ones(len(spans), dtype=bool)
        if holds_enough(ops.held_ns(spans.start_ns[counted], spans.end_ns[counted]), ops):
            return spans
    return None


def holds_enough(held_ns: int, ops: LaunchedOps) -> bool:
    """Return whether some GPU time is at least half of all that was launched."""
    return is_half(held_ns, ops.launched_gpu_ns)


def _numbered(
    marked: MarkedRanges, rows: IntArray, kind: NumberedRange, last_ns: int
) -> StepSpans | None:
    """Return the steps that ranges of one kind mark, of the name that most of them have."""
    keys = [step_key(text) for text in marked.names(rows)]
    # Wrapped modules within a block have longer names than the block itself.
    name = min(set(keys), key=lambda key: (-keys.count(key), len(key), key))
    rows = marked.of_one_thread(rows[np.array([key == name for key in keys], dtype=bool)])
    if kind.edge == "both":
        return marked.spans(rows, name, kind.unit, NUMBERED)
    if kind.edge == "end":
        return _ending(marked, rows, name, kind.unit)
    spans = between_marks(
        name, kind.unit, NUMBERED, marked.names(rows), marked.start_ns[rows], last_ns
    )
    return replace(spans, closed=spans.closed & _followed(spans.names, kind.pattern.expression))


def _ending(marked: MarkedRanges, rows: IntArray, name: str, unit: str) -> StepSpans:
    """Return steps that end with a range; where the first one began is not known."""
    ends = marked.end_ns[rows]
    starts = np.append(min(0, int(marked.start_ns[rows[0]])), ends[:-1])
    closed = marked.closed[rows] & (np.arange(rows.size) > 0)
    return StepSpans(name, unit, NUMBERED, marked.names(rows), starts, ends, closed)


def _followed(names: npt.NDArray[Any], pattern: re.Pattern[str]) -> _Mask:
    """Tell after which names comes the next number: a last layer holds what follows it, too."""
    if "number" not in pattern.groupindex:
        return np.ones(len(names), dtype=bool)
    matches = [pattern.search(normalize_range(text)) for text in names.tolist()]
    numbers = np.array([int(match["number"]) if match else -1 for match in matches], dtype=np.int64)
    return np.append(numbers[1:] == numbers[:-1] + 1, False)
