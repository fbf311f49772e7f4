"""A series of ranges is checked against the kernels that are launched in it.

An engine may write the same text twice a step: around the model and around its sampling. These have
other kernels. What has the same kernels is a step each, whatever it is called. Pure numpy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.steps.launched_ops import LaunchedOps
from nsys_llm.facts.steps.steps import StepSpans
from nsys_llm.numeric.grouping import distinct_codes, joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.names import without_counters

#: Time of the smaller of two ranges in kernels that the other has, too, in percent: less, and they
#: are parts of one step; more, and they are of one kind. Ours.
_OF_PARTS_PCT: Final = 20
_OF_A_KIND_PCT: Final = 80
#: So much of a series has to be pairs.
_PAIRED_PCT: Final = 80
#: So many ranges in the middle tell whether all are looked at.
_LOOKED_AT: Final = 128

_Mask = npt.NDArray[np.bool_]


def whole_steps(spans: StepSpans, ops: LaunchedOps) -> StepSpans:
    """Return steps of which none is only a part: where two ranges of one text in a row are one.

    The second is smaller, and its kernels are others.
    """
    _, text = np.unique([without_counters(name) for name in spans.names], return_inverse=True)
    if not _are_pairs(text[1:] == text[:-1]):
        return spans
    low = max(len(spans) - _LOOKED_AT, 0) // 2
    some = slice(low, low + _LOOKED_AT)
    if not _are_pairs(_seconds(spans.start_ns[some], spans.end_ns[some], text[some], ops)[0][1:]):
        return spans
    second, held_ns = _seconds(spans.start_ns, spans.end_ns, text, ops)
    if not _are_pairs(second[1:]):
        return spans
    first = np.flatnonzero(~second)
    last = np.append(first[1:], second.size) - 1
    # The capture may begin between the two.
    closed = spans.closed[last] & (
        (last > first) | (first > 0) | (held_ns[first] > held_ns[second].max())
    )
    return replace(
        spans,
        names=spans.names[first],
        start_ns=spans.start_ns[first],
        end_ns=spans.end_ns[last],
        closed=closed,
    )


def of_a_kind(
    ops: LaunchedOps, spans: tuple[IntArray, IntArray], others: tuple[IntArray, IntArray]
) -> bool:
    """Return whether kernels in two series of ranges, starts and ends each, are the same."""
    names, side, time_ns = [], [], []
    for place, (starts, ends) in enumerate((spans, others)):
        _, name, took_ns = _kernels(ops, starts, ends)
        names.append(name)
        side.append(np.full(name.size, place))
        time_ns.append(took_ns)
    used, code = distinct_codes(joined(names))
    key = code * 2 + joined(side)
    sums = np.bincount(key, weights=joined(time_ns), minlength=2 * used.size).reshape(-1, 2)
    shared = sums[(sums > 0).all(axis=1)].sum(axis=0)
    return bool((100 * shared >= _OF_A_KIND_PCT * sums.sum(axis=0)).all())


def _are_pairs(second: npt.NDArray[Any]) -> bool:
    return bool(second.size and 200 * int(second.sum()) >= _PAIRED_PCT * (second.size + 1))


def _seconds(
    start_ns: IntArray, end_ns: IntArray, text: IntArray, ops: LaunchedOps
) -> tuple[_Mask, IntArray]:
    """Return which ranges are parts of the step that the one before began, and kernel time of each.

    Ranges are disjoint, in order of time.
    """
    place, name, took_ns = _kernels(ops, start_ns, end_ns)
    ids, code = distinct_codes(name)
    used, pair = distinct_codes(place * ids.size + code)
    time_ns = np.bincount(pair, weights=took_ns, minlength=used.size)
    of_range = used // max(ids.size, 1)
    at = np.minimum(np.searchsorted(used, used - ids.size), max(used.size - 1, 0))
    before = (used[at] == used - ids.size) if used.size else np.zeros(0, dtype=bool)
    held_ns, shared_ns = (
        np.bincount(of_range, weights=ns, minlength=text.size) for ns in (time_ns, time_ns * before)
    )
    second = np.zeros(text.size, dtype=bool)
    second[1:] = (text[1:] == text[:-1]) & (held_ns[1:] < held_ns[:-1])
    second &= 100 * shared_ns <= _OF_PARTS_PCT * held_ns
    return second, held_ns.astype(np.int64)


def _kernels(
    ops: LaunchedOps, start_ns: IntArray, end_ns: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return the kernels launched in disjoint ranges: in which, its name, and its time."""
    kernels = ops.tables[0]
    parts = [(np.empty(0, dtype=np.int64),) * 3]
    for some in ops.blocks():
        if some.rows.start >= len(kernels):
            break
        place = np.searchsorted(start_ns, some.launched_ns, side="right") - 1
        rows = np.flatnonzero((place >= 0) & (some.launched_ns < end_ns[place]))
        names = kernels["demangled_name_id"][some.rows][rows]
        parts.append((place[rows], names, (some.end_ns - some.start_ns)[rows]))
    place, name, time_ns = (joined(list(column)) for column in zip(*parts, strict=True))
    return place, name, time_ns
