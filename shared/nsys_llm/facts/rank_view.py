"""One rank as every recipe of a run sees it: what several of them need is made once, when asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from nsys_llm.capture.unrecorded import LostWork, unrecorded_of
from nsys_llm.facts.device.dependents import Dependents, dependents
from nsys_llm.facts.device.graph_replays import GraphReplays, graph_replays
from nsys_llm.facts.device.host_timeline import HostTimeline
from nsys_llm.facts.device.idle_split import GapSums, sum_gaps
from nsys_llm.facts.device.profiler_time import HeldCalls, held_calls, profiler_spans
from nsys_llm.facts.host.places import Places
from nsys_llm.facts.host.states import HostRecords, has_host_records
from nsys_llm.facts.lanes import LaneRows, map_lanes
from nsys_llm.facts.steps.away import no_work_spans, start_up_spans
from nsys_llm.facts.steps.batches import Batches, step_batches
from nsys_llm.facts.steps.finder import find_steps
from nsys_llm.facts.steps.marked_ranges import MarkedRanges
from nsys_llm.facts.steps.steps import Steps, device_steps
from nsys_llm.facts.wall.layers import WallLayers, wall_layers
from nsys_llm.numeric.intervals import IntArray, merged_unions
from nsys_llm.taxonomy import idle_causes, wall_classes
from nsys_llm.trace.device_ops import DeviceOps, OpNames, op_names
from nsys_llm.trace.identity import RankKey
from nsys_llm.trace.rank_trace import LARGEST_TIME_NS, RankTrace
from nsys_llm.trace.steps import AGREED, DeviceSteps


@dataclass(frozen=True)
class RankView:
    """The rows of one rank, and what recipes make of them.

    What is as long as the rank is forgotten with `release` by the recipe that is done with it.

    Attributes:
        key: Profile and process.
        options: Of the recipe; of an overview, those of all of its recipes.
        other_process: When others had its GPU, see `nsys_llm.trace.shared_gpus`.
    """

    trace: RankTrace
    key: RankKey
    options: Mapping[str, Any]
    other_process: IntArray = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))

    @property
    def whole_capture(self) -> bool:
        """Whether the windows of its devices are all of the capture."""
        return bool(self.options.get("whole_capture"))

    @cached_property
    def steps(self) -> Steps | None:
        """Its steps, whatever the filters leave; None where there are none."""
        marked = self.marked if has_host_records(self.trace) else None
        steps = find_steps(self.trace, self.options, marked, self.unrecorded.lost)
        name, warmup_n = self.options.get(AGREED, {}).get(self.key.side, (None, 0))
        if steps is None or steps.name != name:
            return steps
        return replace(steps, warmup_n=warmup_n)

    @cached_property
    def batches(self) -> Batches | None:
        """What is in the batches of its steps; None where no name is an engine's."""
        phases = self.options.get("phase_map")
        return step_batches(self.trace, self.steps, lambda: self.marked, phases)

    @cached_property
    def device_steps(self) -> Mapping[int, DeviceSteps]:
        """Its steps on each of its devices, by CUDA id; of a device without there are none."""
        return device_steps(self.trace, self.steps)

    @cached_property
    def marked(self) -> MarkedRanges:
        """Its ranges that may be steps."""
        return MarkedRanges.of_rank(self.trace)

    @cached_property
    def places(self) -> Places:
        """Where in the program its threads were: its steps, warm-ups and ranges."""
        return Places(self.marked, self.steps)

    @cached_property
    def profiler(self) -> IntArray:
        """When the profiler did its own work: shape (n, 2), sorted and disjoint."""
        return profiler_spans(self.trace)

    @cached_property
    def no_work(self) -> IntArray:
        """When no request was in the server: shape (n, 2), sorted and disjoint."""
        return no_work_spans(self.trace)

    @cached_property
    def start_up(self) -> IntArray:
        """When it started up: shape (n, 2), sorted and disjoint."""
        return start_up_spans(self.trace, lambda: self.steps)

    @cached_property
    def host(self) -> HostTimeline:
        """The calls of its threads."""
        away = {
            idle_causes.NOT_RECORDED: self.not_recorded,
            idle_causes.OTHER_PROCESS: self.other_process,
            idle_causes.NO_WORK: self.no_work,
            idle_causes.START_UP: self.start_up,
        }
        return HostTimeline.of(self.trace, self.profiler, away)

    @cached_property
    def records(self) -> HostRecords:
        """What else is recorded of its threads."""
        return HostRecords(self.trace)

    @cached_property
    def held(self) -> HeldCalls:
        """What the profiler held of the calls that the filters leave (`RankTrace.host_calls`)."""
        return held_calls(self.trace, self.trace.host_calls("api_calls"))

    @cached_property
    def unrecorded(self) -> LostWork:
        """Its launch calls that left no row."""
        return unrecorded_of(self.trace)

    @cached_property
    def not_recorded(self) -> IntArray:
        """When work may have run that left no row: shape (n, 2), sorted and disjoint.

        Also after the last operation, where launches may have run after the end of the capture.
        """
        work = self.unrecorded
        if not work.late_n:
            return work.spans
        end_ns = max(work.late_ns, self.trace.last_end_ns)
        return merged_unions([work.spans, np.array([[end_ns, LARGEST_TIME_NS]], dtype=np.int64)])

    @cached_property
    def dependents(self) -> Dependents:
        """Its kernels that began before the one ahead of them had ended."""
        return dependents(self.trace)

    @cached_property
    def op_names(self) -> OpNames:
        """The names of its operations."""
        return op_names(self.trace, self.options)

    @cached_property
    def device_ops(self) -> tuple[DeviceOps, ...]:
        """The operations of each of `trace.device_ids` in order of time, and its gaps."""
        return tuple(
            DeviceOps.of(self.trace, device, self.op_names, whole_capture=self.whole_capture)
            for device in self.trace.device_ids
        )

    @cached_property
    def gap_sums(self) -> tuple[GapSums, ...]:
        """The gaps of `device_ops`, added up."""
        return tuple(sum_gaps(ops.gaps, ops.launch_row, self.host) for ops in self.device_ops)

    @cached_property
    def graph_replays(self) -> GraphReplays:
        """The replays of its CUDA graphs, whatever the filters leave."""
        return graph_replays(self.trace, self.trace.unfiltered)

    @cached_property
    def collectives(self) -> tuple[LaneRows, ...]:
        """Its communication kernels, by kernel and stream."""
        return map_lanes(self.trace)

    @cached_property
    def wall_layers(self) -> tuple[tuple[str, ...], tuple[WallLayers, ...]]:
        """The full names of its kernels, and the layers of the wall split of each device."""
        host = {
            wall_classes.PROFILER: self.profiler,
            wall_classes.NOT_RECORDED: self.not_recorded,
            wall_classes.OTHER_PROCESS: self.other_process,
            wall_classes.NO_WORK: self.no_work,
            wall_classes.BEFORE_STEPS: self.start_up,
        }
        return wall_layers(self.trace, host)

    def release(self, *names: str) -> None:
        """Forget what is no longer needed; asked for again, it is made again."""
        for name in names:
            self.__dict__.pop(name, None)
