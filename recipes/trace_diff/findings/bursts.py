"""Slow steps in words: how many, on which rank, and what they have more of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nsys_llm.report.records import Record, Tables, first_record, records
from nsys_llm.taxonomy.wall_classes import IDLE
from nsys_llm.trace.rank_sets import BASELINE, INPUT
from nsys_llm.view.text import quoted

from ..tables.step_verdict import BOTH, BURSTS, FASTER, SLOWER
from . import texts


@dataclass(frozen=True)
class SlowSteps:
    """The slow steps by which two runs differ.

    Attributes:
        words: How many, and whose: `SLOWER in bursts: 4 of 14 steps ...`.
        row: Of slow_steps: the GPU they come from, in the run that has more of them.
        is_worse: Whether that is the input.
        numbers: That the words name.
    """

    words: str
    row: Record
    is_worse: bool
    numbers: Mapping[str, float]


def bursts(tables: Tables) -> SlowSteps | None:
    """Return the slow steps by which the runs differ; None where they do not."""
    verdict = first_record(tables["verdict"])
    if verdict["word_reason"] not in (BURSTS, BOTH) or verdict["word"] not in (FASTER, SLOWER):
        return None
    n0, n1 = verdict["baseline_slow_n"], verdict["input_slow_n"]
    worse = n1 * verdict["baseline_steps_n"] > n0 * verdict["input_steps_n"]
    rows = records(tables["slow_steps"])
    row = next((row for row in rows if row["run"] == (INPUT if worse else BASELINE)), None)
    if row is None:
        return None
    numbers = {"baseline_slow_n": n0, "input_slow_n": n1, "steps_n": verdict["input_steps_n"]}
    template = texts.SLOWER_BURSTS if worse else texts.FASTER_BURSTS
    if verdict["word"] != (SLOWER if worse else FASTER):
        template = texts.OTHER_SLOW
    words = template.format(
        slow=n1, steps=verdict["input_steps_n"], before=n0, unit=verdict["unit"], take=takes(n1)
    )
    if worse:
        words += f", {_whose(row)}"
    return SlowSteps(words, row, worse, numbers)


def takes(n: int) -> str:
    """Return the verb of so many steps."""
    return "takes" if n == 1 else "take"


def _whose(row: Record) -> str:
    """Return whose the slow steps are: `rank 3 pauses in data`."""
    if row["wall_class"] != IDLE:
        return texts.SLOW_CLASS.format(rank=row["rank"], name=row["detail"] or row["wall_class"])
    words = texts.PAUSES.format(rank=row["rank"])
    return words + (texts.IN_RANGE.format(range=quoted(row["range"])) if row["range"] else "")
