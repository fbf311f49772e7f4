"""What copies that move, are pinned or overlap gain: of the table `memops`, or of `wall` alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nsys_llm.report.records import Record, Tables, grouped, records
from nsys_llm.report.walls import Gpu, Walls
from nsys_llm.taxonomy.wall_classes import COMPUTE, COPIES

#: What pinned memory saves of copies of pageable memory, and narrower types of all.
_HALF: Final = 0.5
#: From this share of the span on, and if they take more than computation, copies bind the job.
BOUND_PCT: Final = 50.0
_TO_DEVICE, _TO_HOST = ("HtoD", "unified HtoD"), ("DtoH", "unified DtoH")


def bind(walls: Walls, gpu: Gpu) -> bool:
    """Tell whether copies bind a GPU: they fill half of its span, and more than it computes."""
    copies_ns = walls.class_ns(*gpu, COPIES)
    most = 100.0 * copies_ns >= BOUND_PCT * max(walls.span_ns(*gpu), 1)
    return most and copies_ns > walls.class_ns(*gpu, COMPUTE)


@dataclass(frozen=True)
class Copies:
    """Copies of each GPU; without the table `memops` only those of the wall split."""

    walls: Walls
    rows: Mapping[Gpu, Sequence[Record]]

    @classmethod
    def of(cls, tables: Tables, walls: Walls) -> Copies:
        """Read the table, where it is there."""
        rows = records(tables["memops"]) if "memops" in tables else []
        by_gpu = grouped(rows, "rank", "device_id").items()
        return cls(walls, {(rank, device): some for (rank, device), some in by_gpu})

    def sizes(self, gpu: Gpu, kind: str | None) -> tuple[float, float]:
        """Return bound and usual size for copies of a kind, ns; of all where it is None."""
        every = self.rows.get(gpu, ())
        exposed_ns = self.walls.class_ns(*gpu, COPIES)
        chosen = [row for row in every if kind in (None, row["kind"])]
        if kind is not None and self.rows:
            exposed_ns = min(exposed_ns, _exposed_ns(chosen))
        usual: list[float] = [min(exposed_ns, self.walls.class_ns(*gpu, COMPUTE))]
        pageable = [row for row in chosen if row["pageable"]]
        usual.append(_HALF * min(_exposed_ns(pageable), exposed_ns))
        directions = (_TO_DEVICE, _TO_HOST)
        if chosen and kind in (None, *_TO_DEVICE, *_TO_HOST):
            both = [_exposed_ns([row for row in every if row["kind"] in way]) for way in directions]
            usual.append(min(*both, exposed_ns))
        if bind(self.walls, gpu):
            usual.append(_HALF * exposed_ns)
        return exposed_ns, max(usual)


def _exposed_ns(rows: Sequence[Record]) -> int:
    return sum(row["exposed_ns"] for row in rows)
