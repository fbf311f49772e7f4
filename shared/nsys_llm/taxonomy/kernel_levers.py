"""Kernels for which engineers know something faster: `data/kernel_levers.json`, and its loader.

So are kernels that follow each other and could be one: `data/fusions.json`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from nsys_llm.taxonomy.categories import load_rules
from nsys_llm.taxonomy.data_files import data_file
from nsys_llm.taxonomy.names import unmangled


@dataclass(frozen=True)
class KernelLever:
    """What can be done about some kernels, and what that leaves of their time.

    Attributes:
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
    # On some GPUs a lever has another size: all else is as without.
    rows = _whole(data_file("kernel_levers"))
    for row in rows:
        for name in ("names", "gpus", "only_there"):
            row[name] = row[name] and re.compile(row[name])
        row["categories"] = tuple(row["categories"])
    return {row["id"]: KernelLever(**row) for row in rows}


def _whole(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with what they leave out, as in the row that they are like."""
    by_id = {row["id"]: row for row in rows}
    both = ({**by_id.get(row.get("like"), {}), **row} for row in rows)
    return [{name: row[name] for name in row if name != "like"} for row in both]


def lever_of(name: str, category: str) -> str | None:
    """Return the id of the first lever that is about a kernel; those of few kernels come first."""
    levers = load_kernel_levers().values()
    return next((lever.id for lever in levers if lever.fits(name, category)), None)


#: The element that no sequence has: of each layer.
ATTENTION: Final = "attention"
#: One is between the attention of two layers.
PRODUCT: Final = "product"
#: Part of the layers with a sequence, from which on it is in each, and sequences in all; ours.
LAYERS_SHARE: Final = 0.5
EACH_SHARE: Final = 0.8
LEAST_N: Final = 4


@dataclass(frozen=True)
class FusionFlag:
    """How an engine fuses them.

    Attributes:
        flag: None where it has none on NVIDIA's GPUs.
        gpus: Found in the name of a GPU on which it works; None: on all.
        only: Found in the lines of the first kernel, the last and the GPU where it works.
    """

    flag: str | None
    source: str
    since: str | None = None
    slower: str | None = None
    gpus: str | None = None
    only: str | None = None

    def fits(self, gpu: str | None, first: str, last: str) -> bool:
        """Return whether it works on a GPU, by name if that is recorded, for these kernels."""
        there = gpu is None or self.gpus is None or re.search(self.gpus, gpu)
        return bool(there and re.search(self.only or "", f"{first}\n{last}\n{gpu or ''}"))


@dataclass(frozen=True)
class Fusion:
    """One sequence of kernels.

    Attributes:
        sequence: Names of elements, at least two.
        moved: Bytes that each moves per value; None where its time is not that of memory.
        saved: Bytes of them that fusing leaves out.
        fused: Found in what is known of a kernel that does all of it at once.
    """

    id: str
    what: str
    sequence: tuple[str, ...]
    moved: tuple[int | None, ...]
    saved: int
    fused: str
    flags: Mapping[str, FusionFlag]
    beyond: str | None = None

    @property
    def share(self) -> float:
        """Share of the time of the kernels that move bytes which fusing saves at most."""
        return self.saved / sum(bytes_n or 0 for bytes_n in self.moved)


@cache
def load_fusions() -> Mapping[str, Fusion]:
    """Return the sequences by id, in the order in which they are looked for."""
    fusions = {}
    for row in _whole(data_file("fusions")["rows"]):
        flags = {engine: FusionFlag(**flag) for engine, flag in row["flags"].items()}
        lists = {name: tuple(row[name]) for name in ("sequence", "moved")}
        fusions[row["id"]] = Fusion(**{**row, **lists, "flags": flags})
    return fusions


@cache
def element_of(name: str) -> str | None:
    """Return which element of sequences a kernel is; None for none."""
    known, elements = _known(name), data_file("fusions")["elements"]
    return next((key for key, pattern in elements.items() if re.search(pattern, known)), None)


def fused_already(names: Iterable[str]) -> set[str]:
    """Return the ids of the sequences that some kernel of a run does at once."""
    known = {_known(name) for name in names}
    return {
        item.id
        for item in load_fusions().values()
        if any(re.search(item.fused, text) for text in known)
    }


def _known(name: str) -> str:
    # Those of an engine say no more of these kernels, and an engine is known of all ranks alone.
    known = load_rules("pytorch").classify(name)
    return f"{known.category}: {known.operation}: {name}"
