"""Where in the program a thread was: in which step, warm-up or range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.analyses.steps.by_range import MarkedRanges
from nsys_llm.analyses.steps.steps import Steps
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.enclosing import innermost
from nsys_llm.numeric.grouping import split_by_code
from nsys_llm.numeric.intervals import IntArray, starts_inside
from nsys_llm.taxonomy.names import normalize_range
from nsys_llm.taxonomy.step_names import is_warmup, range_key
from nsys_llm.trace.host_part import OUTSIDE, STEP, WARMUP

PARTS: Final = (STEP, WARMUP, OUTSIDE)
#: The name of no range.
NO_RANGE: Final = ""
OTHER_RANGES: Final = "(other ranges)"
_MOST_NAMES: Final = 1_000


@dataclass(frozen=True)
class _Spans:
    """Some ranges; shape (n,), begins ascending, of equal ones the outer first; none is empty."""

    start_ns: IntArray
    end_ns: IntArray
    name: IntArray

    def at(self, at_ns: IntArray) -> IntArray:
        """Return which is open at each instant, the innermost; -1 for none."""
        return innermost(at_ns, self.start_ns, self.end_ns)


class Places:
    """Steps, warm-ups and ranges of one rank.

    A warm-up is a range whose name says so, or a step that takes far longer than the later ones. In
    a step it is the innermost range that its thread opened in it, of a thread without one the step;
    elsewhere likewise the innermost range. Operators are no ranges. What lies between two steps
    repeats as they do, and belongs to them. Numbers in names are `#`, but for warm-ups: the first
    one loads, the second one need not.

    Attributes:
        names: Of ranges; the first is `NO_RANGE`.
    """

    def __init__(self, marked: MarkedRanges, steps: Steps | None) -> None:
        step_names = [] if steps is None else [normalize_range(str(name)) for name in steps.names]
        unit = [NO_RANGE] if steps is None else [steps.name]
        warmups = [is_warmup(name) for name in marked.plain]
        shared = [
            name if warm else range_key(name)
            for name, warm in zip(marked.plain, warmups, strict=True)
        ]
        if len(set(shared)) > _MOST_NAMES:  # of so many none says much
            shared = [name if is_warmup(name) else OTHER_RANGES for name in shared]
        self.names = sorted({NO_RANGE, *shared, *step_names, *unit})
        place = {name: at for at, name in enumerate(self.names)}
        of_name = np.array([place[name] for name in shared], dtype=np.int64)
        rows = split_by_code(marked.thread, marked.threads.size)
        self._of_thread = {
            thread: _Spans(marked.start_ns[some], marked.end_ns[some], of_name[marked.name[some]])
            for thread, some in zip(marked.threads.tolist(), rows, strict=True)
        }
        warm = np.array(warmups, dtype=bool)[marked.name]
        self._warm = _Spans(marked.start_ns[warm], marked.end_ns[warm], of_name[marked.name[warm]])
        self._steps, self._slow = _Spans(*np.empty((3, 0), dtype=np.int64)), np.empty(0, dtype=bool)
        self._unit = place[unit[0]]
        if steps is not None and not steps.on_gpu:
            of_step = np.array([place[name] for name in step_names], dtype=np.int64)
            self._steps = _Spans(steps.start_ns, steps.end_ns, of_step)
            self._slow = steps.warmup
        first_ns, last_ns = self._steps.start_ns[:1], self._steps.end_ns.max(initial=0)
        self._all_steps = np.column_stack((first_ns, np.full_like(first_ns, last_ns)))

    def line(self, thread: int, spans: IntArray) -> tuple[IntArray, IntArray]:
        """Return where a thread (globalTid) was in some time.

        Args:
            thread: The thread.
            spans: Shape (n, 2), sorted and disjoint.

        Returns:
            Instants, ascending, none before the first span, and the place from each on until the
            next one that is in a span, see `named`.
        """
        ranges = [self._warm, self._steps, *filter(None, [self._of_thread.get(thread)])]
        edges = [edge for some in ranges for edge in (some.start_ns, some.end_ns)]
        inside = [edge[starts_inside(edge, spans)] for edge in edges]
        at_ns = np.sort(np.concatenate((spans[:, 0], *inside)), kind="stable")
        return at_ns, self._places(self._of_thread.get(thread), at_ns)

    def _places(self, ranges: _Spans | None, at_ns: IntArray) -> IntArray:
        """Return where a thread with some ranges was at each instant."""
        name, opened = np.zeros((2, at_ns.size), dtype=np.int64)
        if ranges is not None:
            place = ranges.at(at_ns)
            name = np.where(place >= 0, np.append(ranges.name, 0)[place], 0)
            opened = np.where(place >= 0, np.append(ranges.start_ns, 0)[place], NULL_INT)
        between = starts_inside(at_ns, self._all_steps)
        part = np.where(between, PARTS.index(STEP), PARTS.index(OUTSIDE))
        step = self._steps.at(at_ns)
        rows = np.flatnonzero(step >= 0)
        if rows.size:
            of_step = step[rows]
            whole = (name[rows] == 0) | (opened[rows] < self._steps.start_ns[of_step])
            slow = self._slow[of_step]
            name[rows[whole]] = self._unit
            name[rows[slow]] = self._steps.name[of_step[slow]]
            part[rows] = np.where(slow, PARTS.index(WARMUP), PARTS.index(STEP))
        warm = self._warm.at(at_ns)
        name = np.where(warm >= 0, np.append(self._warm.name, 0)[warm], name)
        return name * len(PARTS) + np.where(warm >= 0, PARTS.index(WARMUP), part)

    def named(self, place: int) -> tuple[str, str | None]:
        """Return the part of the run and the name of the range of a place."""
        name, part = divmod(place, len(PARTS))
        return PARTS[part], self.names[name] or None
