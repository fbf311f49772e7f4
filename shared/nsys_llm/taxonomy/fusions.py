"""Kernels that follow each other and could be one: `data/fusions.json`, and its loader."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from nsys_llm.taxonomy.categories import load_rules
from nsys_llm.taxonomy.data_files import data_file

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
        since: Versions, models and GPUs, in words.
        slower: Where it was no gain, in words.
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
        what: Its kernels in words.
        sequence: Names of elements, at least two.
        moved: Bytes that each moves per value; None where its time is not that of memory.
        saved: Bytes of them that fusing leaves out.
        fused: Found in what is known of a kernel that does all of it at once.
        flags: By engine.
        beyond: What one kernel gains besides.
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
    rows = data_file("fusions")["rows"]
    by_id = {row["id"]: row for row in rows}
    fusions = {}
    for row in rows:
        row = {**by_id.get(row.get("like"), {}), **row}
        row.pop("like", None)
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
