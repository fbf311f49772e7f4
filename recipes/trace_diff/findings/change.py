"""One change: what a class of a step's wall-clock time took more or less, and by what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final

from nsys_llm.report.causes import Cause
from nsys_llm.report.findings import Evidence, cells
from nsys_llm.report.records import Record, Tables, first_record, records
from nsys_llm.report.templates import filled, signed_ns
from nsys_llm.view.text import format_percent

from ..tables.step_splits import SPAN, Gpu
from ..tables.step_verdict import CHANGED, FEW_STEPS, LEAST_PCT
from .texts import WHAT

#: Share of the difference that a class holds to get a sentence.
LEAST_SHARE: Final = 0.2
_UNITS: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))


@dataclass(frozen=True)
class ClassChange:
    """One change of the wall-clock time of a step (or window).

    Attributes:
        mean_ns: Of the mean GPU; the classes add up to the difference.
        cost_ns: Of the GPU on which the class changed most in that direction.
        details: ns by detail of the class, of that GPU.
        evidence: Cells of that GPU, and of what explains it.
        what: What explains it: a clause with numbers, names out of the trace in backticks.
        fields: Of the clause, the title and the advice; `name` is what the finding is about.
        most_ns: What its cause can make of a step at most.
    """

    wall_class: str
    mean_ns: float
    cost_ns: float
    rank: int
    device_id: int
    unit: str
    details: Mapping[str, float] = field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()
    rule: str = ""
    what: str = ""
    cause: Cause | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    most_ns: float = inf

    def by(
        self,
        rule: str,
        cause: Cause,
        fields: Mapping[str, Any],
        evidence: tuple[Evidence, ...] = (),
        most_ns: float = inf,
    ) -> ClassChange:
        """Return the change with what explains it.

        Args:
            fields: Of the rule's clause; `what` in place of all of it.
        """
        what, every = fields.get("what") or filled(WHAT[rule], fields), (*self.evidence, *evidence)
        return replace(
            self, rule=rule, what=what, cause=cause, fields=fields, evidence=every, most_ns=most_ns
        )

    @property
    def most_detail(self) -> str | None:
        """The detail that changed most in the direction of the class."""
        sign = 1 if self.mean_ns > 0 else -1
        return max(self.details, key=lambda name: sign * self.details[name], default=None)

    @property
    def sentence(self) -> str:
        """The change in a sentence without its full stop: class, amount, cause."""
        return f"{self.wall_class} {signed_ns(self.mean_ns)} {a_unit(self.unit)}: {self.what}"


class Clock:
    """The tables `verdict` and `wall_change` as changes ask for them."""

    def __init__(self, tables: Tables) -> None:
        """Read the tables."""
        self.tables = tables
        self.verdict: Record = first_record(tables["verdict"])
        self.unit = str(self.verdict["unit"])
        self.is_slower = (self.verdict["change_ns"] or 0) > 0
        self.rows = records(tables["wall_change"])

    @property
    def tells(self) -> bool:
        """Whether there is a change to explain: one that is sure or probable, or too few steps."""
        word, reason = self.verdict["word"], self.verdict["word_reason"]
        large = self.verdict["change_ns"] and abs(self.verdict["change_pct"] or 0.0) >= LEAST_PCT
        return bool(large and (word in CHANGED or reason == FEW_STEPS))

    def mean_ns(self, wall_class: str) -> float:
        """Return the change of a class of the mean GPU."""
        rows = (row for row in self.rows if row["rank"] is None and row["detail"] is None)
        return sum(row["change_ns"] for row in rows if row["wall_class"] == wall_class)

    def by_gpu(self, wall_class: str) -> dict[Gpu, Record]:
        """Return the rows of a class, by rank and device."""
        return {
            (row["rank"], row["device_id"]): row
            for row in self.rows
            if row["rank"] is not None and row["wall_class"] == wall_class and row["detail"] is None
        }

    def step_ns(self, rank: int, device_id: int) -> float:
        """Return the time of a step of the input on a GPU."""
        rows = self._of_gpu(rank, device_id)
        return sum(row["input_ns"] for row in rows if row["detail"] is None)

    def change(self, wall_class: str) -> ClassChange | None:
        """Return the change of a class; None where it holds too little of the difference."""
        gpus = self.by_gpu(wall_class)
        if not gpus:
            return None
        mean_ns = self.mean_ns(wall_class)
        most = max(gpus, key=lambda gpu: (gpus[gpu]["change_ns"], -gpu[0], -gpu[1]))
        least = min(gpus, key=lambda gpu: (gpus[gpu]["change_ns"], gpu))
        # One GPU that takes longer makes the others wait, which take no longer by themselves.
        grows = mean_ns > 0 or (self.is_slower and gpus[most]["change_ns"] > -mean_ns)
        gpu = most if grows else least
        cost_ns = gpus[gpu]["change_ns"]
        if max(abs(mean_ns), abs(cost_ns)) < LEAST_SHARE * abs(self.verdict["change_ns"]):
            return None
        rows = [row for row in self._of_gpu(*gpu) if row["wall_class"] == wall_class]
        details = {row["detail"]: row["change_ns"] for row in rows if row["detail"] is not None}
        keys = ("rank", "device_id", "wall_class", "detail")
        columns = ("baseline_ns", "input_ns", "change_ns")
        evidence = tuple(cell for row in rows for cell in cells("wall_change", row, keys, columns))
        return ClassChange(wall_class, mean_ns, cost_ns, *gpu, self.unit, details, evidence)

    def _of_gpu(self, *gpu: int) -> list[Record]:
        return [row for row in self.rows if (row["rank"], row["device_id"]) == gpu]


def numbered(name: str, parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields of several parts, each with the name and place of its part before it."""
    return {
        f"{name}{place}_{key}": value
        for place, part in enumerate(parts)
        for key, value in part.items()
    }


def a_unit(unit: str) -> str:
    """Return what to say after an amount."""
    return "in all" if unit == SPAN else f"a {unit}"


def times(ratio: float) -> str:
    """Return a ratio of durations: `5.15 times as long`, `12.0 % longer`, `12.0 % shorter`."""
    if ratio >= 1.5:
        return f"{ratio:.3g} times as long"
    return f"{format_percent(100 * abs(ratio - 1))} {'longer' if ratio >= 1 else 'shorter'}"


def number_of(value: float) -> str:
    """Return a number of calls, which may be one of a step and so no integer."""
    return f"{round(value):,}" if abs(value - round(value)) < 1e-9 else f"{value:.3g}"


def pair_words(before_ns: float, after_ns: float) -> str:
    """Return two times in one unit: `17.74 -> 19.98 ms`."""
    scale, unit, digits = scale_of(max(abs(before_ns), abs(after_ns)))
    return f"{before_ns / scale:.{digits}f} -> {after_ns / scale:.{digits}f} {unit}"


def scale_of(value_ns: float) -> tuple[float, str, int]:
    """Return the unit that suits a time, how many ns it has, and decimals for four figures."""
    scale, unit = next(((scale, unit) for scale, unit in _UNITS if value_ns >= scale), _UNITS[-1])
    value = value_ns / scale
    return scale, unit, 2 if value < 100 else 1 if value < 1000 else 0
