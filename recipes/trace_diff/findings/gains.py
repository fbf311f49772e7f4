"""What a change cost in wall-clock time of one GPU of the input: what its cause would win back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from nsys_llm.report.findings import Evidence, cells
from nsys_llm.report.price import Price
from nsys_llm.report.records import Record, Tables, first_record, records
from nsys_llm.report.walls import Walls
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, COMPUTE, COPIES, IDLE
from nsys_llm.trace.rank_sets import INPUT

from ..tables.checks import ALL
from ..tables.step_splits import SPAN, STEP, TOKEN
from ..tables.step_verdict import NOT_COMPARABLE, OTHER_WORK
from .change import Clue
from .normalization import Basis
from .step_words import is_of_few_steps

#: Classes of time that changes of these rules are part of; of all others computation.
_CLASSES: Final = {
    "waiting": (COMMUNICATION,),
    "pair_waiting": (COMMUNICATION,),
    "profiler_wait": (COMMUNICATION,),
    "transfer": (COMMUNICATION,),
    "communication": (COMMUNICATION,),
    "copies": (COPIES,),
    "more_idle": (IDLE,),
    "less_idle": (IDLE,),
    "idle_rank": (IDLE,),
}
#: Changes that are told by the classes of a step.
OF_WALLS: Final = frozenset(_CLASSES)
#: Changes of the length of calls at equal sizes: they mean something whatever else was done.
_PER_CALL: Final = frozenset({"slower_calls", "faster_calls", "uneven_calls", "one_rank"})


@dataclass(frozen=True)
class Cost:
    """What a change cost on one GPU, ns a unit (step, token, or all of the window).

    Attributes:
        change_ns: Positive where the input takes longer.
        rank: Of the GPU with the largest such change.
        device_id: Likewise.
        gain: None where it takes no longer.
        evidence: The cells that it rests on.
    """

    change_ns: float
    rank: int
    device_id: int
    gain: Price | None
    evidence: tuple[Evidence, ...] = ()


class Costs:
    """The tables `verdict`, `wall_change` and `wall` as findings ask for them."""

    def __init__(self, tables: Tables, basis: Basis) -> None:
        """Read the tables."""
        self.verdict: Record = first_record(tables["verdict"])
        self._walls = Walls(tables, INPUT)
        self._basis = basis
        self._is_same_machine = self.verdict["word"] != OTHER_WORK and not bool(
            (tables["comparability"]["status"] == ALL).any()
        )
        rows = records(tables["wall_change"])
        self.mean = [row for row in rows if row["rank"] is None]
        self._gpus = [row for row in rows if row["rank"] is not None]
        runs = tables["runs"].set_index("run").loc[INPUT]
        self._steps_n = None if pd.isna(runs["steps_n"]) else int(runs["steps_n"])
        self._tokens_n = None if pd.isna(runs["tokens_n"]) else int(runs["tokens_n"])

    @property
    def is_decided(self) -> bool:
        """Whether it is said what is faster or slower."""
        return self.verdict["word"] not in (OTHER_WORK, NOT_COMPARABLE)

    @property
    def unit(self) -> str:
        """What times are of: layer, step, token; window without steps."""
        return str(self.verdict["unit"] or SPAN)

    def of(self, clue: Clue) -> Cost | None:
        """Return what a change cost; None where that is not known."""
        classes = _CLASSES.get(clue.rule, (COMPUTE,))
        known = self.is_decided or (clue.rule in _PER_CALL and self._is_same_machine)
        if not self._walls.gpus or not known:
            return None
        if classes != (COMPUTE,):
            return self.of_class(classes[0], rank=clue.rank)
        change_ns = clue.impact_ns / self._units_of_kernels()
        rank, device_id = self._worst(COMPUTE, clue.rank)
        if clue.rank is not None:
            # Sums are over all ranks, and this one's change is its own.
            change_ns *= self._ranks_n
        return self._cost(rank, device_id, change_ns, classes)

    def of_class(
        self,
        wall_class: str,
        details: Sequence[str] | None = None,
        *,
        most_share: float = 1.0,
        rank: int | None = None,
    ) -> Cost | None:
        """Return what a class, or some of its details, cost on one GPU.

        Where it takes more of the mean step that is the GPU with the largest change, else the one
        that won most. Details cost no more than their class.

        Args:
            wall_class: Of the table wall_change.
            details: None for the class.
            most_share: Of the step of the input, what it can be at most.
            rank: Of which the GPU is, if one is given: then the largest change.
        """
        if not self.is_decided or not self._gpus or is_of_few_steps(self.verdict):
            return None
        rows = [row for row in self._gpus if row["wall_class"] == wall_class]
        if rank is not None:
            rows = [row for row in rows if row["rank"] == rank]
        sums = {
            gpu: sum(row["change_ns"] for row in _chosen(rows, gpu, details))
            for gpu in {(row["rank"], row["device_id"]) for row in rows}
            if _chosen(rows, gpu, details)
        }
        if not sums:
            return None
        sign = -1 if rank is not None or self.mean_change_ns(wall_class) > 0 else 1
        gpu = min(sums, key=lambda gpu: (sign * sums[gpu], gpu))
        change_ns = sums[gpu]
        if change_ns > 0:
            whole_ns = sum(row["change_ns"] for row in _chosen(rows, gpu, None))
            most_ns = most_share * (self._unit_ns(*gpu) or math.inf)
            change_ns = max(min(change_ns, whole_ns, most_ns), 0.0)
        evidence = [
            cell
            for row in _chosen(rows, gpu, details)
            for cell in cells(
                "wall_change",
                row,
                ("rank", "device_id", "wall_class", "detail"),
                ("baseline_ns", "input_ns", "change_ns"),
            )
        ]
        return self._cost(*gpu, change_ns, (wall_class,), tuple(evidence))

    def mean_change_ns(self, wall_class: str) -> float:
        """Return the change of a class of the mean GPU's step."""
        return sum(
            row["change_ns"]
            for row in self.mean
            if row["wall_class"] == wall_class and row["detail"] is None
        )

    @property
    def _ranks_n(self) -> int:
        return len(self._walls.gpus)

    def _units_of_kernels(self) -> float:
        """Return by what an amount of the kernels' basis is divided, for one GPU and unit."""
        if self.verdict["basis"] == STEP and self._basis.per_step:
            return 1.0
        sums = self._basis.shares[1] if self._basis.per_step else 1
        if self.verdict["basis"] == TOKEN and self._tokens_n is not None:
            return self._tokens_n / sums
        if self.verdict["basis"] == STEP:
            if self._steps_n is not None:
                return float(self._steps_n)
            spans_ns = sum(self._walls.span_ns(*gpu) for gpu in self._walls.gpus)
            return spans_ns / float(self.verdict["input_ns"])
        return self._ranks_n / sums

    def _worst(self, wall_class: str, rank: int | None) -> tuple[int, int]:
        """Return the GPU, of a rank if one is given, whose class grew most; else the first."""
        rows = [
            row
            for row in self._gpus
            if row["wall_class"] == wall_class and row["detail"] is None
            if rank is None or row["rank"] == rank
        ]
        if rows:
            worst = max(rows, key=lambda row: row["change_ns"])
            return int(worst["rank"]), int(worst["device_id"])
        gpus = [gpu for gpu in self._walls.gpus if rank is None or gpu[0] == rank]
        return (gpus or list(self._walls.gpus))[0]

    def _cost(
        self,
        rank: int,
        device_id: int,
        change_ns: float,
        classes: tuple[str, ...],
        evidence: tuple[Evidence, ...] = (),
    ) -> Cost:
        if change_ns <= 0:
            return Cost(change_ns, rank, device_id, None, evidence)
        span_ns = self._walls.span_ns(rank, device_id)
        unit_ns = self._unit_ns(rank, device_id)
        steps = span_ns / unit_ns if unit_ns else None
        gain_ns = change_ns * (steps or 1.0)
        most_ns = self._walls.class_ns(rank, device_id, *classes)
        gain = Price(
            span_ns=span_ns,
            wall_classes=classes,
            about_ns=max(min(round(gain_ns), most_ns), 0),
            about_basis="measured",
            steps_n=steps,
            step_unit=self.unit,
        )
        return Cost(change_ns, rank, device_id, gain, evidence)

    def _unit_ns(self, rank: int, device_id: int) -> float | None:
        """Return the time of a step or token on a GPU of the input; None without one."""
        if self.verdict["basis"] not in (STEP, TOKEN):
            return None
        times_ns = [
            row["input_ns"]
            for row in self._gpus
            if (row["rank"], row["device_id"]) == (rank, device_id) and row["detail"] is None
        ]
        return sum(times_ns) or None


def _chosen(
    rows: Sequence[Record], gpu: tuple[int, int], details: Sequence[str] | None
) -> list[Record]:
    """Return the rows of a GPU that are the class itself, or one of the details."""
    return [
        row
        for row in rows
        if (row["rank"], row["device_id"]) == gpu
        and (row["detail"] is None if details is None else row["detail"] in details)
    ]
