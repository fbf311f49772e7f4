"""What became of each profile, what is to be known of it first, and the merged facts of all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nsys_llm.core.errors import ProfileError
from nsys_llm.manifest.declared import TableRead
from nsys_llm.profile.capture import CaptureFacts
from nsys_llm.profile.file_state import Fingerprint
from nsys_llm.profile.tables import table_source
from nsys_llm.trace.coverage import CoverageRow
from nsys_llm.trace.identity import RankKey
from nsys_llm.trace.rank_trace import BROKEN_ROWS
from nsys_llm.trace.unmatched import Unmatched
from nsys_llm.trace.wall import RankWall


@dataclass(frozen=True)
class RankOutcome:
    """One rank that was mapped."""

    key: RankKey
    device_ids: tuple[int, ...]
    coverage: tuple[CoverageRow, ...]
    notes: tuple[str, ...]
    unmatched: tuple[Unmatched, ...] = ()
    wall: RankWall = field(default_factory=RankWall)


@dataclass(frozen=True)
class ProfileOutcome:
    """What became of one profile.

    Attributes:
        facts: None if it could not be read.
        ranks: Its processes with GPU work; none of a profile without any.
        empty_tables: Our names of the tables without rows, those that it does not have among them.
        lacking: What it cannot tell, because a table that the recipe requires has no rows.
        fault: Where, if that was an internal error and not of the profile.
        export: Where it was exported to, if this run did that and the export stays.
        fingerprint: What tells the export that was read from any other; None if none was.
        left_out_n: How many of its processes are left out, those with least GPU time.
        statements: What is to be known of it before it is judged; of all its processes.
        recorded_ns: Begin of its first record and end of its last, its clock; None without any.
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
    empty_tables: tuple[str, ...] = ()
    fingerprint: Fingerprint | None = None
    export: str | None = None
    cut_names_n: int = 0
    left_out_n: int = 0
    statements: tuple[Statement, ...] = ()
    recorded_ns: tuple[int, int] | None = None

    @property
    def without_work(self) -> str:
        """Why it has no rank, in words; it could be read."""
        if any(said.kind == "silent_work" for said in self.statements):
            return "of the GPU work that it launched nothing was recorded"
        return "a valid profile, but without GPU work"

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of a profile that could be read."""
        schema = self.facts.schema_note if self.facts else None
        filters = dict.fromkeys(note for rank in self.ranks for note in rank.notes)
        cut = f"long names cut: {self.cut_names_n}" if self.cut_names_n else None
        left_out = f"processes left out, those with least GPU time: {self.left_out_n}"
        lacking = self.lacking if self.ranks else ()
        notes = (schema, *lacking, cut, left_out if self.left_out_n else None, *filters)
        return tuple(note for note in notes if note is not None)


@dataclass(frozen=True)
class MapResult:
    """The merged outcome of some profiles.

    Attributes:
        profiles: Sorted by path, then side.
        facts: What is known of the ranks of each side, `nsys_llm.reduced.job_facts.JobFacts`.
    """

    profiles: tuple[ProfileOutcome, ...]
    facts: Mapping[str, Any]


def refuse_broken(ranks: Sequence[RankOutcome], label: str) -> None:
    """Refuse a profile without one sound row of GPU work.

    Raises:
        ProfileError: It has such rows, and all are broken.
    """
    counts = [row for rank in ranks for row in rank.coverage]
    whole = all(rank.coverage for rank in ranks)
    broken_n = sum(row.broken_n for row in counts)
    if whole and broken_n and not any(row.total_n for row in counts):
        raise ProfileError(f"{label}: all {broken_n} rows of GPU work are broken ({BROKEN_ROWS}).")


def lacking_notes(reads: Sequence[TableRead], empty_tables: Collection[str]) -> tuple[str, ...]:
    """Return what a profile cannot tell a recipe, because tables that it requires have no rows."""
    return tuple(
        f"no rows in {table_source(read.table).nsys}; {read.lost} are missing"
        for read in reads
        if read.required and read.table in empty_tables
    )


@dataclass(frozen=True, order=True)
class Statement:
    """One thing that a profile holds otherwise than a whole recording of one rank does.

    Attributes:
        kind: What it is; the kinds, and their sentences: `nsys_llm.report.run_texts`.
        of_n: How many there are of that in all; None where there is no such number.
        process: Its globalPid; None where it is about the whole profile.
        device_id: The CUDA device; None where it is about all of a process.
        start_ns: Where it begins on the profile's clock; None where it has no time.
        name: What it is about beside these, such as a table of the export.
    """

    kind: str
    count_n: int
    of_n: int | None = None
    process: int | None = None
    device_id: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    name: str | None = None
