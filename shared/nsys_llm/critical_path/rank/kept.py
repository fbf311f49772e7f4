"""Windows of steps and the paths to their ends: of one rank. Integers and strings, which merge exactly."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.critical_path.path.forest import PathForest
from nsys_llm.critical_path.path.visits import Charges, Passages
from nsys_llm.critical_path.rank.repeated_copies import RepeatedCopies
from nsys_llm.critical_path.rank.windows import Windows
from nsys_llm.facts.steps.steps import Beside
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.trace.steps import StepKind


@dataclass(frozen=True)
class DeviceBudget(Windows):
    """One device of one rank; the profile's clock. `tail` is a segment of the rank's paths.

    Attributes:
        charges: What the path of each step charges inside the rank.
        passages: The time of these paths in communication; walks are steps.
        idle_ns: Shape (causes,), idle time as in idle_gaps; None where graphs hide what ran.
    """

    charges: Charges
    passages: Passages
    idle_ns: IntArray | None


#: Every lag at the median of its kind; no change, but what tells how far replays can be believed.
USUAL: Final = "usual"


@dataclass(frozen=True)
class RankReplay:
    """The graph of one rank for replays; its nodes and edges are those of a `Skeleton`.

    Attributes:
        reason: Why there is none; "" where there is.
        columns: Names of the weights: "" for those that give the run back, then changes, last
            `USUAL`. A change that is not there changes nothing.
        base_ns: Shape (nodes,), the profile's clock.
        source: Shape (edges,).
        target: Shape (edges,).
        ns: Shape (edges, columns), weights; the least number of its type where one is not there.
        code: Shape (edges, columns before `USUAL`), uint8, see
            `nsys_llm.critical_path.replay.condensed`.
        member_start: Shape (members,), node of the start of each communication operation.
        begun: The nodes of the begins of threads' first calls, which nothing precedes.
        ends_from: The node of the first end: of each device, of each step.
        begins_from: The node of the begin of the first step of the first device.
    """

    reason: str
    columns: tuple[str, ...]
    base_ns: IntArray
    source: npt.NDArray[np.int32]
    target: npt.NDArray[np.int32]
    ns: npt.NDArray[np.int32] | IntArray
    code: npt.NDArray[np.uint8]
    member_start: IntArray
    member_end: IntArray
    begun: IntArray
    ends_from: int
    begins_from: int

    def column(self, name: str) -> int:
        """Return the place of a change; of one that changes nothing, that of the run."""
        return self.columns.index(name) if name in self.columns else 0

    @classmethod
    def without(cls, reason: str) -> RankReplay:
        """Return that of a rank that is not replayed."""
        none = np.empty(0, dtype=np.int64)
        edges, columns = none.astype(np.int32), none.reshape(0, 0)
        codes = columns.astype(np.uint8)
        return cls(reason, (), none, edges, edges, columns, codes, none, none, none, 0, 0)


@dataclass(frozen=True)
class RankBudget:
    """One rank.

    Attributes:
        step: What its steps are; None where none are found, and everything is one.
        mark: Why each step is in no statistic, as far as the rank tells; "" otherwise.
        devices: Sorted by id; those without an operation that the filters leave are left out.
        has_wait_rows: Whether it is recorded what streams waited for.
        has_event_rows: Whether events are recorded, which makes such waits certain.
        clock_error_ns: By how much the clocks of host and GPU disagree at least.
        beside: Work that its steps launched and that is not of their pace.
        load: `Batches.load` of its steps.
    """

    step: StepKind | None
    mark: tuple[str, ...]
    devices: tuple[DeviceBudget, ...]
    forest: PathForest
    has_wait_rows: bool
    has_event_rows: bool
    clock_error_ns: int
    replay: RankReplay
    load: IntArray
    copies: RepeatedCopies = field(default_factory=RepeatedCopies)
    beside: Beside | None = None
