"""How often a step launches what each layer of a model has once: attention, all-reduces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.steps.step_times import StepTimes
from nsys_llm.facts.steps.steps import Steps
from nsys_llm.taxonomy.categories import rules_for
from nsys_llm.taxonomy.communication import is_communication, operation_of
from nsys_llm.taxonomy.step_names import STEP
from nsys_llm.trace.coded_names import coded_names

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
