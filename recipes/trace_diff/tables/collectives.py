"""Collectives of each run, matched once: waiting and transfer; details of the wall split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

import numpy as np
import pandas as pd

from nsys_llm.job.collectives.confidence import LOW_CONFIDENCE
from nsys_llm.job.collectives.matched import MatchedCollectives, Sequenced, communicator
from nsys_llm.job.collectives.profiler import delays_ns, profiler_waits_ns, without_profiler
from nsys_llm.job.collectives.waits import member_waits
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns, taken
from nsys_llm.trace.rank_sets import COMPARED

from .runs import Runs, RunSums
from .side_by_side import by_change

#: Stands for all communicators, and for all operations.
ALL: Final = "all"

#: Share of the time in collectives, in percent, from which those of low confidence leave waiting
#: and transfer unknown; as in tail_stats.
_UNSURE_PCT: Final = 10

#: Of the time in collectives: all of it, and what it is divided into.
_PARTS: Final = ("total", "wait", "transfer")


@dataclass(frozen=True)
class CollectiveSums:
    """Matched collectives that there is an instant at which all ranks are in.

    Attributes:
        collectives_n: All of them, those without such an instant too.
        total_ns: In kernels of all ranks: waiting, transfer, and until the last rank has left.
        profiler_ns: Part of wait_ns that was the profiler's, see
            `nsys_llm.job.collectives.profiler`.
        unsure_ns: Time in kernels that were matched with low confidence; in no other sum.
        caused_ns: Waiting that each rank caused, by its number.
    """

    collectives_n: int = 0
    total_ns: int = 0
    wait_ns: int = 0
    transfer_ns: int = 0
    profiler_ns: int = 0
    unsure_ns: int = 0
    caused_ns: Counter[int] = field(default_factory=Counter)

    def __add__(self, other: CollectiveSums) -> CollectiveSums:
        names = [item.name for item in fields(self)]
        return CollectiveSums(*(getattr(self, name) + getattr(other, name) for name in names))

    @property
    def late(self) -> int | None:
        """The rank that caused most waiting; None where nobody waited."""
        if not any(self.caused_ns.values()):
            return None
        return min(self.caused_ns, key=lambda number: (-self.caused_ns[number], number))


@dataclass(frozen=True)
class RunCollectives:
    """One run, by (communicator, operation); (ALL, ALL) where there is any collective."""

    by_key: Mapping[tuple[str, str], CollectiveSums]

    @property
    def is_known(self) -> bool:
        """Whether sums say what the collectives took, but for a small part."""
        unsure_ns, total_ns = self.whole.unsure_ns, self.whole.total_ns
        return 100 * unsure_ns < _UNSURE_PCT * max(unsure_ns + total_ns, 1)

    @property
    def whole(self) -> CollectiveSums:
        """All of them; transfer times ranks."""
        return self.by_key.get((ALL, ALL), _NOTHING)


def sum_collectives(run: RunSums) -> RunCollectives:
    """Add the matched collectives of a run up."""
    collectives = run.job.collectives
    delays = delays_ns(collectives, run.job.facts.held)
    by_key: dict[tuple[str, str], CollectiveSums] = {}
    for sequence, late_ns in zip(collectives.sequences, delays, strict=True):
        part = _summed(sequence, collectives, late_ns)
        of_sequence = communicator(collectives.devices, sequence.owners), sequence.operation
        for key in (of_sequence, (ALL, ALL)):
            by_key[key] = by_key.get(key, _NOTHING) + part
    return RunCollectives(by_key)


def collective_columns(runs: Runs, sums: Mapping[str, RunCollectives]) -> Columns:
    """Return the table collectives."""
    sides = [sums[run.side].by_key for run in runs.compared]
    keys = sorted({key for side in sides for key in side})
    columns: Columns = {
        "communicator": [key[0] for key in keys],
        "operation": [key[1] for key in keys],
    }
    for name, side in zip(COMPARED, sides, strict=True):
        rows = [side.get(key, _NOTHING) for key in keys]
        columns |= {
            f"{name}_collectives_n": [row.collectives_n for row in rows],
            f"{name}_late_rank": pd.array([row.late for row in rows], dtype="Int64"),
        }
        for part in (*_PARTS, "profiler"):
            values = [getattr(row, f"{part}_ns") for row in rows]
            columns[f"{name}_{part}_ns"] = np.array(values, dtype=np.int64)
    for part in _PARTS:
        change = columns[f"input_{part}_ns"] - columns[f"baseline_{part}_ns"]
        columns["change_ns" if part == "total" else f"{part}_change_ns"] = change
    ordered = by_change(columns, "communicator")
    rest = np.array([name != ALL for name in ordered["communicator"]], dtype=bool)
    return taken(ordered, np.argsort(rest, kind="stable"))


_NOTHING: Final = CollectiveSums()


def _summed(
    sequence: Sequenced, collectives: MatchedCollectives, late_ns: Sequence[IntArray]
) -> CollectiveSums:
    waits, met = sequence.waits, sequence.waits.met
    if sequence.confidence == LOW_CONFIDENCE:
        return CollectiveSums(unsure_ns=int(waits.total_ns.sum()))
    net, _ = without_profiler(waits, sequence.start_ns, sequence.end_ns, late_ns)
    residual = np.full(len(sequence), sequence.residual_ns, dtype=np.int64)
    caused: Counter[int] = Counter()
    members = member_waits(waits, sequence.start_ns, residual)
    for owner, member in zip(sequence.owners, members, strict=True):
        number = collectives.devices[owner].rank.number
        if number is not None:
            caused[number] += member.caused_ns
    return CollectiveSums(
        len(sequence),
        int(waits.total_ns[met].sum()),
        int(waits.wait_ns[met].sum()),
        int(waits.transfer_ns[met].sum()) * len(sequence.owners),
        int(profiler_waits_ns(waits, net).sum()),
        caused_ns=caused,
    )
