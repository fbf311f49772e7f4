"""The wall split of one rank: where the wall-clock time of each of its devices went."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.categories import RuleSet
from nsys_llm.taxonomy.communication import is_fused
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.steps import DeviceSteps, OtherSteps, StepKind

#: One device of one rank.
WallKey = tuple[RankKey, int]

#: What a recipe knows of classes of devices: by class the time of each detail, in ns. The details
#: of a class add up to it.
WallDetails = Mapping[WallKey, Mapping[str, Mapping[str, int]]]


def joined_details(every: Iterable[WallDetails]) -> WallDetails:
    """Put together what is known; of several that divide a class, the first has its way."""
    joined: dict[WallKey, dict[str, Mapping[str, int]]] = {}
    for details in every:
        for key, classes in details.items():
            known = joined.setdefault(key, {})
            known.update({name: times for name, times in classes.items() if name not in known})
    return joined


#: Times that one device sends at most, so 800 kB.
MOST_HIDDEN: Final = 50_000


@dataclass(frozen=True)
class DeviceWork(DeviceSteps):
    """What a device computed in its steps, or in equal parts of its span where there are none.

    Attributes:
        compute_ns: Shape (steps,), time in which a compute kernel ran.
        profiler_ns: Likewise, in which the profiler did its own work and the device ran nothing.
        names: Full names of its kernels, communication among them.
        launches: Shape (rows, 9): code of the name, grid and block (0 where they are not read),
            launches, and the sum of their durations in ns; after all filters.
        requests: Shape (steps,), in the batch of each step as its name tells; -1 where it does
            not. None without such names.
    """

    compute_ns: IntArray
    profiler_ns: IntArray
    names: tuple[str, ...]
    launches: IntArray
    has_shapes: bool
    requests: IntArray | None = None


@dataclass(frozen=True)
class DeviceWall:
    """Where the wall-clock time of one device of a rank went; the classes add up to the span.

    Attributes:
        span_start_ns: Begin of its first window, in the profile's clock; None without one.
        span_end_ns: End of its last window, likewise.
        kernels_ns: Time of kernels that compute, whether or not they also communicate, by full
            name; names without time are left out.
        graphs_ns: Time of CUDA graphs that were traced as a whole.
        communication_ns: As the others, time of a class, see `nsys_llm.taxonomy.wall_classes`.
        hidden: When communication kernels ran that the split does not count as communication, as
            something computed too or no window was there: shape (n, 2), sorted and disjoint; None
            where the recipe does not ask for it, or there are more than `MOST_HIDDEN`.
        work: What it is compared with others by; None where the recipe compares no ranks.
    """

    device_id: int
    span_start_ns: int | None
    span_end_ns: int | None
    span_ns: int
    kernels_ns: Mapping[str, int]
    graphs_ns: int
    communication_ns: int
    load_ns: int
    copies_ns: int
    profiler_ns: int
    not_recorded_ns: int
    no_work_ns: int
    start_up_ns: int
    idle_ns: int
    other_process_ns: int = 0
    hidden: IntArray | None = field(default=None, compare=False)
    work: DeviceWork | None = field(default=None, compare=False)

    @property
    def compute_ns(self) -> int:
        """Time of its kernels that only compute, and of whole graphs."""
        return sum(self.kernels_ns.values()) + self.graphs_ns - self.fused_ns

    @cached_property
    def fused_ns(self) -> int:
        """Time of its kernels that compute and communicate at once."""
        return sum(time_ns for name, time_ns in self.kernels_ns.items() if is_fused(name))


@dataclass(frozen=True)
class RankWall:
    """The wall split of one rank.

    Attributes:
        kernel_names: All full names of its kernels, before any filter: they tell the engine.
        step: What its steps are; None without, or where its recipe looks at none.
        beside: What repeats beside them; None without, or where steps are alike.
    """

    kernel_names: tuple[str, ...] = ()
    devices: tuple[DeviceWall, ...] = ()
    step: StepKind | None = None
    beside: OtherSteps | None = None


#: All devices of all ranks.
Walls = Mapping[WallKey, DeviceWall]


@dataclass(frozen=True)
class JobWalls:
    """The wall splits of all ranks, and what tells more about them."""

    ranks: tuple[Rank, ...]
    walls: Walls
    details: WallDetails
    rules: RuleSet
