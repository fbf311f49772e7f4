"""Steps that ranges of no known name mark, since they repeat and hold the work. Pure numpy.

An engine may write the same text twice a step: around the model and around its sampling. These have
other kernels. What has the same kernels is a step each, whatever it is called.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.steps.launched_ops import LaunchedOps, is_half
from nsys_llm.facts.steps.marked_ranges import MarkedRanges
from nsys_llm.facts.steps.steps import REPEATED, StepSpans
from nsys_llm.numeric.grouping import distinct_codes, joined
from nsys_llm.numeric.intervals import IntArray, starts_inside
from nsys_llm.taxonomy.names import without_counters
from nsys_llm.taxonomy.phase_maps import OF_BATCHES, PhaseMap
from nsys_llm.taxonomy.step_names import LAYER, unit_of

#: Time of the smaller of two ranges in kernels that the other has, too, in percent: less, and they
#: are parts of one step; more, and they are of one kind. Ours.
_OF_PARTS_PCT: Final = 20
_OF_A_KIND_PCT: Final = 80
#: So much of a series has to be pairs.
_PAIRED_PCT: Final = 80
#: So many ranges in the middle tell whether all are looked at.
_LOOKED_AT: Final = 128

_Mask = npt.NDArray[np.bool_]
#: Ranges that repeat so often may be steps; numbered ones around layers need one to compare with.
_LEAST: Final = 3
_LEAST_NUMBERED: Final = 2
#: What other names hold beside the largest to be steps as well, in percent of all; ours.
_LEAST_BESIDE_PCT: Final = 10
#: What tells batches in turn apart: ubatch_a and ubatch_b, micro0 and micro1.
_PLACE: Final = re.compile(r"(?:(?<=[^A-Za-z0-9])[A-Za-z]|[0-9]+)$")


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


class _Series(NamedTuple):
    """Ranges of one name, or of several; the largest of some is the step."""

    held_ns: int
    wall_ns: int
    fewer: int
    key: str
    rows: IntArray

    @classmethod
    def of(cls, marked: MarkedRanges, ops: LaunchedOps, key: str, rows: IntArray) -> _Series:
        wall_ns = int((marked.end_ns[rows] - marked.start_ns[rows]).sum())
        return cls(marked.held_ns(rows, ops), wall_ns, -rows.size, key, rows)


def repeated_spans(marked: MarkedRanges, ops: LaunchedOps, phases: PhaseMap) -> StepSpans | None:
    """Return the ranges of the name that holds most of the launched GPU time, at least half.

    The name repeats at least 3 times on a thread. Of two that hold the same time, one around the
    other, the outer is the step. Names side by side are steps together where they are batches of a
    server, as `phases` tell, or hold the same kernels. What a warm-up holds is left out
    (`warmup_spans`).
    """
    warmups_ns = marked.warmups_ns()
    outside = np.flatnonzero(~starts_inside(marked.start_ns, warmups_ns))
    warmup_gpu_ns = ops.held_ns(warmups_ns[:, 0], warmups_ns[:, 1])
    return _repeated(marked, outside, ops, ops.launched_gpu_ns - warmup_gpu_ns, phases)


def warmup_spans(marked: MarkedRanges, ops: LaunchedOps, phases: PhaseMap) -> StepSpans | None:
    """Return what `repeated_spans` does, warm-ups counted in: where nothing else is a step."""
    if not marked.warmups_ns().size:
        return None
    return _repeated(marked, np.arange(marked.name.size), ops, ops.launched_gpu_ns, phases)


def _repeated(
    marked: MarkedRanges, among: IntArray, ops: LaunchedOps, launched_gpu_ns: int, phases: PhaseMap
) -> StepSpans | None:
    found = list[_Series]()
    for key, every in marked.by_key(among):
        if every.size >= _LEAST_NUMBERED:
            rows = marked.of_one_thread(every)
            if rows.size >= _LEAST_NUMBERED and marked.follow_each_other(rows):
                found.append(_Series.of(marked, ops, key, rows))
    often = [some for some in found if some.rows.size >= _LEAST]
    often += _side_by_side(marked, found, ops, phases)
    often = [some for some in often if is_half(some.held_ns, launched_gpu_ns)]
    if not often:
        return None
    best = max(often)
    if unit_of(best.key) == LAYER:
        # A capture of two numbered steps has many of their layers.
        numbered = (some for some in found if "#" in some.key and unit_of(some.key) != LAYER)
        best = max([best, *numbered])
    spans = marked.spans(best.rows, best.key, unit_of(best.key), REPEATED)
    return whole_steps(spans, ops)


def _side_by_side(
    marked: MarkedRanges, found: Sequence[_Series], ops: LaunchedOps, phases: PhaseMap
) -> list[_Series]:
    """Return the series of several names that are steps together, if there is one.

    Passes forward and backward, as their names tell, are parts of a step.
    """
    found = sorted((some for some in found if unit_of(some.key) != LAYER), reverse=True)
    if len(found) < 2 or found[0].rows.size < _LEAST:
        return []
    first, keys, rows = found[0], [found[0].key], found[0].rows
    for other in found[1:]:
        both = np.union1d(rows, other.rows)
        if (marked.thread[both] == marked.thread[both[0]]).all() and (
            marked.follow_each_other(both) and _alike(marked, first, other, ops, phases)
        ):
            keys, rows = [*keys, other.key], both
    return [_Series.of(marked, ops, " / ".join(sorted(keys)), rows)] if len(keys) > 1 else []


def _alike(
    marked: MarkedRanges, first: _Series, other: _Series, ops: LaunchedOps, phases: PhaseMap
) -> bool:
    """Return whether ranges of two names are steps of one kind."""
    codes = phases.codes(marked.names(np.array([first.rows[0], other.rows[0]])))
    if min(codes) >= 0:
        return all(phases.phases[code] in OF_BATCHES for code in codes)
    if len({_PLACE.sub("", some.key) for some in (first, other)}) > 1:
        return False  # an evaluation may run the kernels of training
    spans = ((marked.start_ns[some.rows], marked.end_ns[some.rows]) for some in (first, other))
    most = 100 * other.held_ns >= _LEAST_BESIDE_PCT * ops.launched_gpu_ns
    return max(codes) < 0 and most and of_a_kind(ops, *spans)
