"""What the first GPU of a rank did in each step, class by class; what it launches once a layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.steps.step_times import StepTimes, idle_causes_ns
from nsys_llm.facts.steps.steps import Steps
from nsys_llm.facts.wall.split import wall_of_steps
from nsys_llm.numeric.intervals import IntArray, intersect_intervals
from nsys_llm.taxonomy.categories import rules_for
from nsys_llm.taxonomy.communication import is_communication, operation_of
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES, IDLE_CAUSES_N
from nsys_llm.taxonomy.step_names import STEP
from nsys_llm.taxonomy.wall_classes import (
    COMMUNICATION,
    COMPUTE,
    COPIES,
    PROFILER,
    UNKNOWN,
    idle_group,
)
from nsys_llm.trace.coded_names import coded_names


@dataclass(frozen=True)
class StepClasses:
    """The wall split of steps in statistics, from where each begins to cost to its end.

    Attributes:
        row: Shape (n,), position of each among all steps.
        spans: Shape (n, 2), the profile's clock, sorted and disjoint.
        spent_ns: By class of the split, of idle time by group of its cause: shape (n,); all
            together are as long as the spans.
        communicating: Shape (m, 2), when communication was not hidden in them; sorted, disjoint.
    """

    device_id: int
    row: IntArray
    spans: IntArray
    spent_ns: Mapping[str, IntArray]
    communicating: IntArray


def map_step_classes(view: RankView, times: StepTimes) -> StepClasses | None:
    """Return what the first GPU did in the steps of a rank; None where it ran nothing."""
    layers = next(iter(view.wall_layers[1]), None)
    row = np.flatnonzero(times.counted & (times.cost_ns > 0))
    if layers is None or not row.size:
        return None
    spans = np.column_stack((times.begin_ns[row], times.end_ns[row]))
    split = wall_of_steps(layers, spans)
    spent = {
        COMPUTE: split.compute_ns,
        COMMUNICATION: split.communication_ns,
        COPIES: split.copies_ns,
        PROFILER: split.profiler_ns,
        UNKNOWN: split.idle_ns.copy(),
    }
    for group, idle_ns in _idle_groups(view, layers.device_id, spans).items():
        spent[group] = np.minimum(idle_ns, spent[UNKNOWN])
        spent[UNKNOWN] -= spent[group]
    communicating = intersect_intervals(layers.communication, spans)
    return StepClasses(layers.device_id, row, spans, spent, communicating)


def _idle_groups(view: RankView, device_id: int, spans: IntArray) -> dict[str, IntArray]:
    """Return the idle time of spans by group of causes that are known."""
    groups: dict[str, IntArray] = {}
    for device in view.device_ops:
        if device.device_id == device_id:
            idle_ns = idle_causes_ns(view, device, spans)
            for name, of_cause in zip(CAUSE_NAMES[:IDLE_CAUSES_N], idle_ns, strict=False):
                group = idle_group(name)
                if group != UNKNOWN:
                    groups[group] = groups.get(group, 0) + of_cause
    view.release("device_ops")
    return groups


ATTENTION: Final = "attention"


@dataclass(frozen=True)
class LayerLaunches:
    """Launches a step on the first GPU of a rank; 0 for none, or where steps differ.

    Attributes:
        attention_n: Of the attention kernel that has most.
        all_reduces_n: Of all kernels that reduce.
    """

    attention_n: int = 0
    all_reduces_n: int = 0


def layer_launches(view: RankView, steps: Steps, times: StepTimes) -> LayerLaunches:
    """Count the launches in steps that are in statistics, whatever filters leave."""
    if steps.unit != STEP:
        return LayerLaunches()
    kernels = view.trace.unfiltered["kernels"]
    names, code = coded_names(kernels["demangled_name_id"], view.trace.strings)
    rules = rules_for(names)
    # `Steps.step` has the operations of these tables, in order; kernels are the first.
    step = steps.step[: len(kernels)]
    rows = np.flatnonzero((step >= 0) & (kernels["device_id"] == min(view.trace.device_ids)))
    rows = rows[times.counted[step[rows]]]

    def each_n(codes: list[int]) -> int:
        counts = np.bincount(step[rows[np.isin(code[rows], codes)]])
        counts = counts[counts > 0]
        return int(counts[0]) if counts.size and (counts == counts[0]).all() else 0

    attention = [k for k, name in enumerate(names) if rules.classify(name).category == ATTENTION]
    reduces = [k for k, name in enumerate(names) if _is_all_reduce(name)]
    return LayerLaunches(max((each_n([k]) for k in attention), default=0), each_n(reduces))


def _is_all_reduce(name: str) -> bool:
    return is_communication(name) and operation_of(name) == "all_reduce"
