"""What a rank hands on to the paths and replays of the job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.critical_path.path.forest import PathForest
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.steps import StepKind

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
class DevicePaths:
    """The steps of one device of one rank; the profile's clock.

    Attributes:
        edge_ns: Shape (steps + 1,), ascending: step k lies from edge k to edge k + 1.
        tail: Shape (steps,), the segment of the rank's paths that ends each; -1 for one of no
            length.
    """

    device_id: int
    edge_ns: IntArray
    tail: IntArray


@dataclass(frozen=True)
class RankPaths:
    """One rank.

    Attributes:
        step: What its steps are; None where none are found, and everything is one.
        mark: Why each step is in no statistic, as far as the rank tells; "" otherwise.
        devices: Sorted by id; those without an operation that the filters leave are left out.
    """

    step: StepKind | None
    mark: tuple[str, ...]
    devices: tuple[DevicePaths, ...]
    forest: PathForest
    replay: RankReplay


RankRows = Sequence[tuple[Rank, RankPaths]]
