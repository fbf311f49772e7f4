"""What workers compute of each rank, and send: kinds of facts, of which a recipe names its needs.

A kind reduces one rank to integers and strings, so that ranks merge to the same bits in any order
(`nsys_llm.numeric.stacking`). Each is computed once a rank, however many recipes need it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from nsys_llm.critical_path.rank import rank as paths
from nsys_llm.critical_path.rank.rank import RankPaths
from nsys_llm.facts import held
from nsys_llm.facts.compared import rank as compared
from nsys_llm.facts.compared.rank import ComparedFacts
from nsys_llm.facts.held import HeldDevices
from nsys_llm.facts.idle import rank as idle
from nsys_llm.facts.idle.rank import IdleFacts
from nsys_llm.facts.lanes import RankLanes
from nsys_llm.facts.nccl import rank as nccl
from nsys_llm.facts.nccl.rank import RankComm
from nsys_llm.facts.operations import rank as operations
from nsys_llm.facts.operations.rank import OperationFacts
from nsys_llm.facts.phases import rank as phases
from nsys_llm.facts.phases.rank import PhaseFacts
from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.roofline import rank as roofline
from nsys_llm.facts.roofline.rank import RankRoofline
from nsys_llm.facts.serving import rank as serving
from nsys_llm.facts.serving.rank import RankServing
from nsys_llm.facts.tails import kernels as tails
from nsys_llm.facts.tails.kernels import KernelTails
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.trace.identity import RankKey
from nsys_llm.trace.wall import WallKey


@dataclass(frozen=True)
class JobFacts:
    """What is known of some ranks; a kind that nobody needs is empty.

    Attributes:
        idle: Gaps, their causes and patterns.
        operations: Kernels, copies, calls and launches.
        phases: Kernels by phase and NVTX range; steps.
        collectives: Communication kernels, of ranks that have any.
        tails: Durations of kernels by launch configuration, and the longest launches.
        held: When devices were idle because of the profiler.
        idle_causes: Idle time of each device by cause, the profiler's share last: shape (causes,).
        paths: What each operation waited for, and paths to the ends of steps.
        nccl: What communication kernels carry, of ranks that have any.
        serving: Batches of a serving engine's steps, and what these take.
        roofline: What steps and products are held against.
        compared: What two runs are compared by.
    """

    idle: IdleFacts = field(default_factory=IdleFacts)
    operations: OperationFacts = field(default_factory=OperationFacts)
    phases: PhaseFacts = field(default_factory=PhaseFacts)
    collectives: RankLanes = field(default_factory=dict)
    tails: KernelTails = field(default_factory=KernelTails)
    held: HeldDevices = field(default_factory=dict)
    idle_causes: Mapping[WallKey, IntArray] = field(default_factory=dict)
    paths: Mapping[RankKey, RankPaths] = field(default_factory=dict)
    nccl: Mapping[RankKey, RankComm] = field(default_factory=dict)
    serving: Mapping[RankKey, RankServing] = field(default_factory=dict)
    roofline: Mapping[RankKey, RankRoofline] = field(default_factory=dict)
    compared: ComparedFacts = field(default_factory=ComparedFacts)

    def only(self, needs: Collection[str]) -> JobFacts:
        """Return the same without the kinds that are not needed."""
        return JobFacts(**{name: getattr(self, name) for name in needs})


def _collectives(view: RankView) -> RankLanes:
    return {view.key: view.collectives} if view.collectives else {}


def _idle_causes(view: RankView) -> Mapping[WallKey, IntArray]:
    devices = zip(view.trace.device_ids, view.gap_sums, strict=True)
    return {(view.key, device): sums.time_ns.sum(axis=1) for device, sums in devices}


#: What computes each kind, in the order in which a rank's are computed: `collectives` before what
#: keeps arrays as long as the rank, because its own peak is high.
KINDS: Final[Mapping[str, Callable[[RankView], Any]]] = {
    "idle": idle.of,
    "operations": operations.of,
    "phases": phases.of,
    "collectives": _collectives,
    "tails": tails.of,
    "held": held.of,
    "idle_causes": _idle_causes,
    "paths": paths.of,
    "nccl": nccl.of,
    "serving": serving.of,
    "roofline": roofline.of,
    "compared": compared.of,
}


def facts_of(view: RankView, needs: Collection[str]) -> JobFacts:
    """Return the kinds of facts of one rank that are needed."""
    return JobFacts(**{name: of(view) for name, of in KINDS.items() if name in needs})
