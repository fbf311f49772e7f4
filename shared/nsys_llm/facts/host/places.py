"""Where in the program a thread was: in which step, warm-up or range."""

from __future__ import annotations

from typing import Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.steps.marked_ranges import MarkedRanges
from nsys_llm.facts.steps.steps import Steps
from nsys_llm.numeric.enclosing import innermost
from nsys_llm.numeric.grouping import split_by_code
from nsys_llm.numeric.intervals import IntArray, starts_inside
from nsys_llm.taxonomy.names import normalize_range
from nsys_llm.taxonomy.step_names import is_warmup, range_key
from nsys_llm.trace.host_part import OUTSIDE, STEP, WARMUP

PARTS: Final = (STEP, WARMUP, OUTSIDE)
_STEP, _WARMUP, _OUTSIDE = range(len(PARTS))
#: The name of no range.
NO_RANGE: Final = ""
OTHER_RANGES: Final = "(other ranges)"
_MOST_NAMES: Final = 1_000


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
        names = [name if is_warmup(name) else range_key(name) for name in marked.plain]
        if len(set(names)) > _MOST_NAMES:  # of so many none says much
            names = [name if is_warmup(name) else OTHER_RANGES for name in names]
        step_names = [] if steps is None else [normalize_range(str(name)) for name in steps.names]
        unit = NO_RANGE if steps is None else steps.name
        self.names = sorted({NO_RANGE, unit, *names, *step_names})
        place = {name: at for at, name in enumerate(self.names)}
        self._unit = place[unit]
        of_name = np.array([place[name] for name in names], dtype=np.int64)[marked.name]
        ranges = np.stack((marked.start_ns, marked.end_ns, of_name))
        rows = split_by_code(marked.thread, marked.threads.size)
        of_thread = zip(marked.threads.tolist(), rows, strict=True)
        self._of_thread = {thread: ranges[:, some] for thread, some in of_thread}
        self._warm = ranges[:, marked.which(is_warmup)]
        self._steps = np.empty((4, 0), dtype=np.int64)
        if steps is not None and not (steps.start_ns == NULL_INT).any():
            of_step = [place[name] for name in step_names]
            self._steps = np.stack((steps.start_ns, steps.end_ns, of_step, steps.warmup))

    def line(self, thread: int, spans: IntArray) -> tuple[IntArray, IntArray]:
        """Return where a thread (globalTid) was in spans, shape (n, 2), sorted and disjoint.

        Returns:
            Instants, ascending, none before the first span, and the place from each on until the
            next one that is in a span, see `named`.
        """
        ranges = self._of_thread.get(thread, self._warm[:, :0])
        edges = (some[:2].reshape(-1) for some in (self._warm, self._steps, ranges))
        inside = (edge[starts_inside(edge, spans)] for edge in edges)
        at_ns = np.sort(np.concatenate((spans[:, 0], *inside)), kind="stable")
        return at_ns, self._places(ranges, at_ns)

    def names_at(self, thread: int, at_ns: IntArray) -> IntArray:
        """Return in which of `names` a thread (globalTid) was at instants, ascending."""
        return self._places(self._of_thread.get(thread, self._warm[:, :0]), at_ns) // len(PARTS)

    def _places(self, ranges: IntArray, at_ns: IntArray) -> IntArray:
        """Return where a thread with some ranges was at each instant."""
        opened_ns, _, name = _open(ranges, at_ns)
        begin_ns, _, step_name, is_slow = _open(self._steps, at_ns)
        _, _, warm_name = _open(self._warm, at_ns)
        is_step = begin_ns != NULL_INT
        name = np.where(is_step & ((name == 0) | (opened_ns < begin_ns)), self._unit, name)
        name = np.where(warm_name > 0, warm_name, np.where(is_slow > 0, step_name, name))
        first_ns = self._steps[0].min(initial=np.iinfo(np.int64).max)
        last_ns = self._steps[1].max(initial=NULL_INT)
        part = np.where((at_ns >= first_ns) & (at_ns < last_ns), _STEP, _OUTSIDE)
        part[(warm_name > 0) | (is_slow > 0)] = _WARMUP
        return name * len(PARTS) + part

    def named(self, place: int) -> tuple[str, str | None]:
        """Return the part of the run and the name of the range of a place."""
        name, part = divmod(place, len(PARTS))
        return PARTS[part], self.names[name] or None


def _open(spans: IntArray, at_ns: IntArray) -> IntArray:
    """Return begin, end, name and what else is known of the innermost span that is open.

    Args:
        spans: Shape (columns, n), begins ascending, of equal ones the outer first; none is empty.

    Returns:
        Shape (columns, k); of none the begin is NULL_INT, the rest 0.
    """
    none = np.array([[NULL_INT], *[[0]] * (len(spans) - 1)])
    return np.append(spans, none, axis=1)[:, innermost(at_ns, spans[0], spans[1])]
