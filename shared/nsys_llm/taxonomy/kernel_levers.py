"""Kernels for which engineers know something faster: `data/kernel_levers.json`, and its loader."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from nsys_llm.taxonomy.data_files import data_file
from nsys_llm.taxonomy.mangled import unmangled


@dataclass(frozen=True)
class KernelLever:
    """What can be done about some kernels, and what that leaves of their time.

    Attributes:
        id: Name of the rule that speaks of it.
        detail: Which kernels, as the cause of findings has it.
        gpus: Found in the name of a GPU on which it applies; None: on all.
        only_there: Found in kernel names that only such GPUs run, where a GPU's name is not
            recorded.
        time_left: Share of their time that any fix leaves at least, 0 to 1: a bound.
        left: Share that a usual fix leaves.
        fuses: Whether the fix launches fewer kernels, so that a replay of as many says nothing.
    """

    id: str
    detail: str
    names: re.Pattern[str]
    categories: tuple[str, ...]
    gpus: re.Pattern[str] | None
    only_there: re.Pattern[str] | None
    time_left: float
    left: float
    left_source: str
    fuses: bool
    condition: str
    source: str

    def fits(self, name: str, category: str) -> bool:
        """Return whether it is about a kernel."""
        return category in self.categories and self.names.search(unmangled(name)) is not None

    def applies(self, gpu: str | None, kernel_names: list[str]) -> bool:
        """Return whether it applies on a GPU.

        Args:
            gpu: Its name; None where it is not recorded.
        """
        if self.gpus is None:
            return True
        if gpu is not None:
            return self.gpus.search(gpu) is not None
        there = self.only_there
        return there is not None and any(there.search(name) for name in kernel_names)


@cache
def load_kernel_levers() -> dict[str, KernelLever]:
    """Return the levers by their ids, in the order of the file."""
    rows = data_file("kernel_levers")
    by_id = {row["id"]: row for row in rows}
    # On some GPUs a lever has another size: all else is as without.
    rows = [{**by_id.get(row.get("like"), {}), **row} for row in rows]
    for row in rows:
        row.pop("like", None)
        for name in ("names", "gpus", "only_there"):
            row[name] = row[name] and re.compile(row[name])
        row["categories"] = tuple(row["categories"])
    return {row["id"]: KernelLever(**row) for row in rows}


def lever_of(name: str, category: str) -> str | None:
    """Return the id of the first lever that is about a kernel; those of few kernels come first."""
    levers = load_kernel_levers().values()
    return next((lever.id for lever in levers if lever.fits(name, category)), None)
