"""Steps that ranges of no known name mark, since they repeat and hold the work."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from nsys_llm.facts.steps.launched_ops import LaunchedOps, is_half
from nsys_llm.facts.steps.marked_ranges import MarkedRanges
from nsys_llm.facts.steps.series import of_a_kind, whole_steps
from nsys_llm.facts.steps.steps import REPEATED, StepSpans
from nsys_llm.numeric.intervals import IntArray, starts_inside
from nsys_llm.taxonomy.phase_maps import OF_BATCHES, PhaseMap
from nsys_llm.taxonomy.step_names import LAYER, unit_of

#: Ranges that repeat so often may be steps; numbered ones around layers need one to compare with.
_LEAST: Final = 3
_LEAST_NUMBERED: Final = 2
#: What other names hold beside the largest to be steps as well, in percent of all; ours.
_LEAST_BESIDE_PCT: Final = 10
#: What tells batches in turn apart: ubatch_a and ubatch_b, micro0 and micro1.
_PLACE: Final = re.compile(r"(?:(?<=[^A-Za-z0-9])[A-Za-z]|[0-9]+)$")


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
