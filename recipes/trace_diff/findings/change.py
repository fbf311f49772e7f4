"""One change: what a class of a step's wall-clock time took more or less, and by what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from nsys_llm.report.causes import Cause
from nsys_llm.report.findings import Evidence, cells
from nsys_llm.report.records import Record, Tables, first_record, records
from nsys_llm.view.text import format_ns, format_percent

from ..tables.step_verdict import FASTER, FEW_STEPS, LEAST_PCT, SLOWER

#: Share of the difference that a class holds to get a sentence.
LEAST_SHARE: Final = 0.2


@dataclass(frozen=True)
class Explained:
    """What explains the change of a class.

    Attributes:
        rule: Of the finding.
        what: A clause with numbers, names out of the trace in backticks.
        cause: What is at fault.
        name: Kernel or category that it is about.
        fields: What title and advice of the rule name.
        numbers: Numbers of the clause, by name.
        evidence: Cells that they are.
        rank: Of which it is true alone; None for all.
        most_ns: What its cause can make of a step at most; None where it makes all of the class.
    """

    rule: str
    what: str
    cause: Cause
    name: str | None = None
    fields: Mapping[str, object] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()
    rank: int | None = None
    most_ns: float | None = None


@dataclass(frozen=True)
class ClassCost:
    """What a class costs, ns a step (or window).

    Attributes:
        wall_class: Of the table wall_change.
        mean_ns: Of the mean GPU; the classes add up to the difference.
        cost_ns: Of the GPU on which it changed most in that direction.
        rank: That GPU's.
        device_id: Likewise.
        details: By detail, of that GPU.
        evidence: The cells of that GPU.
    """

    wall_class: str
    mean_ns: float
    cost_ns: float
    rank: int
    device_id: int
    details: Mapping[str, float]
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True)
class Change:
    """One change of the wall-clock time of a step.

    Attributes:
        cost: Class, amount, GPU, and the cells that say so.
        explained: By what.
        unit: What a step is.
    """

    cost: ClassCost
    explained: Explained
    unit: str

    @property
    def sentence(self) -> str:
        """The change in a sentence without its full stop: class, amount, cause."""
        mean = f"{self.cost.wall_class} {changed(self.cost.mean_ns)} {a_unit(self.unit)}"
        return f"{mean}: {self.explained.what}"


class Clock:
    """The tables `verdict` and `wall_change` as changes ask for them."""

    def __init__(self, tables: Tables) -> None:
        """Read the tables."""
        self.verdict: Record = first_record(tables["verdict"])
        self._rows = records(tables["wall_change"])

    @property
    def unit(self) -> str:
        """What a step is."""
        return str(self.verdict["unit"])

    @property
    def tells(self) -> bool:
        """Whether there is a change to explain: one beyond chance, or too few steps to know."""
        word, reason = self.verdict["word"], self.verdict["word_reason"]
        large = self.verdict["change_ns"] and abs(self.change_pct) >= LEAST_PCT
        return bool(large and (word in (FASTER, SLOWER) or reason == FEW_STEPS))

    @property
    def change_pct(self) -> float:
        """Change of the step."""
        return float(self.verdict["change_pct"] or 0.0)

    def mean_ns(self, wall_class: str, detail: str | None = None) -> float:
        """Return the change of a class, or of a detail, of the mean GPU."""
        return sum(
            row["change_ns"]
            for row in self._rows
            if row["rank"] is None and (row["wall_class"], row["detail"]) == (wall_class, detail)
        )

    def by_gpu(self, wall_class: str) -> dict[tuple[int, int], Record]:
        """Return the rows of a class, by rank and device."""
        return {
            (row["rank"], row["device_id"]): row
            for row in self._rows
            if row["rank"] is not None and row["wall_class"] == wall_class and row["detail"] is None
        }

    def step_ns(self, rank: int, device_id: int) -> float:
        """Return the time of a step of the input on a GPU."""
        return sum(
            row["input_ns"]
            for row in self._rows
            if (row["rank"], row["device_id"]) == (rank, device_id) and row["detail"] is None
        )

    def cost(self, wall_class: str) -> ClassCost | None:
        """Return what a class costs; None where it holds too little of the difference."""
        gpus = self.by_gpu(wall_class)
        if not gpus:
            return None
        mean_ns = self.mean_ns(wall_class)
        most = max(gpus, key=lambda gpu: (gpus[gpu]["change_ns"], -gpu[0], -gpu[1]))
        least = min(gpus, key=lambda gpu: (gpus[gpu]["change_ns"], gpu))
        # One GPU that takes longer makes the others wait, which take no longer by themselves.
        slower = self.verdict["change_ns"] > 0
        gpu = most if mean_ns > 0 or (slower and gpus[most]["change_ns"] > -mean_ns) else least
        largest_ns = max(abs(mean_ns), abs(gpus[gpu]["change_ns"]))
        if largest_ns < LEAST_SHARE * abs(self.verdict["change_ns"]):
            return None
        rows = [row for row in self._rows if (row["rank"], row["device_id"]) == gpu]
        rows = [row for row in rows if row["wall_class"] == wall_class]
        return ClassCost(
            wall_class,
            mean_ns,
            gpus[gpu]["change_ns"],
            gpu[0],
            gpu[1],
            {row["detail"]: row["change_ns"] for row in rows if row["detail"] is not None},
            wall_cells(rows),
        )


def wall_cells(rows: Sequence[Record]) -> tuple[Evidence, ...]:
    """Return rows of wall_change as evidence."""
    keys = ("rank", "device_id", "wall_class", "detail")
    columns = ("baseline_ns", "input_ns", "change_ns")
    return tuple(cell for row in rows for cell in cells("wall_change", row, keys, columns))


def changed(ns: float) -> str:
    """Return a change of time with its sign."""
    return f"{'+' if ns > 0 else ''}{format_ns(ns)}"


def a_unit(unit: str) -> str:
    """Return what to say after an amount."""
    return "in all" if unit == "window" else f"a {unit}"


def times(ratio: float) -> str:
    """Return a ratio of durations: `5.15 times as long`, `12.0 % longer`, `12.0 % shorter`."""
    if ratio >= 1.5:
        return f"{ratio:.3g} times as long"
    return f"{format_percent(100 * abs(ratio - 1))} {'longer' if ratio >= 1 else 'shorter'}"


def number_of(value: float) -> str:
    """Return a number of calls, which may be one of a step and so no integer."""
    return f"{round(value):,}" if abs(value - round(value)) < 1e-9 else f"{value:.3g}"
