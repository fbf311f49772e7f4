"""What became of each profile, and the merged partial of all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nsys_llm.profile.capture import CaptureFacts
from nsys_llm.trace.coverage import CoverageRow
from nsys_llm.trace.identity import RankKey
from nsys_llm.trace.unmatched import Unmatched


@dataclass(frozen=True)
class DeviceWall:
    """Where the wall-clock time of one device of a rank went; the classes add up to the span.

    Attributes:
        device_id: CUDA device id.
        span_start_ns: Begin of its first window, in the report's clock; None without one.
        span_end_ns: End of its last window, likewise.
        span_ns: Length of its windows.
        kernels_ns: Time of kernels that compute, by full name; names without time are left out.
        graphs_ns: Time of CUDA graphs that were traced as a whole.
        communication_ns: Time of communication beside which nothing computes.
        copies_ns: Time of copies and fills beside neither.
        profiler_ns: Time in which the profiler did its own work and the device ran nothing.
        idle_ns: The rest.
    """

    device_id: int
    span_start_ns: int | None
    span_end_ns: int | None
    span_ns: int
    kernels_ns: Mapping[str, int]
    graphs_ns: int
    communication_ns: int
    copies_ns: int
    profiler_ns: int
    idle_ns: int


@dataclass(frozen=True)
class RankWall:
    """The wall split of one rank.

    Attributes:
        kernel_names: All full names of its kernels, before any filter: they tell the engine.
        devices: Its devices.
    """

    kernel_names: tuple[str, ...] = ()
    devices: tuple[DeviceWall, ...] = ()


@dataclass(frozen=True)
class RankOutcome:
    """One rank that was mapped."""

    key: RankKey
    device_ids: tuple[int, ...]
    coverage: tuple[CoverageRow, ...]
    notes: tuple[str, ...]
    unmatched: tuple[Unmatched, ...] = ()
    wall: RankWall = RankWall()


@dataclass(frozen=True)
class ProfileOutcome:
    """What became of one profile.

    Attributes:
        facts: None if it could not be read.
        ranks: Its processes with GPU work; none of a profile without any.
        absent_tables: Our names of the tables that it does not have.
        lacking: What it cannot tell, because a table that the recipe requires has no rows.
        reason: Why it could not be read.
        fault: Where, if that was a fault of ours and not of the profile.
        side: Of the input.
    """

    path: str
    label: str
    facts: CaptureFacts | None
    ranks: tuple[RankOutcome, ...] = ()
    absent_tables: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    reason: str | None = None
    fault: str | None = None
    side: str = ""

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of a profile that could be read."""
        schema = self.facts.schema_note if self.facts else None
        filters = dict.fromkeys(note for rank in self.ranks for note in rank.notes)
        return (*([schema] if schema else []), *(self.lacking if self.ranks else ()), *filters)


@dataclass(frozen=True)
class MapResult:
    """The merged outcome of some profiles.

    Attributes:
        profiles: Sorted by path, then side.
        partial: The recipe's merged partial.
    """

    profiles: tuple[ProfileOutcome, ...]
    partial: Any
