"""What copies that move, are pinned or overlap gain: of the table `memops`, or of `wall` alone."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.records import Tables, grouped, records
from nsys_llm.report.walls import Gpu, Walls
from nsys_llm.taxonomy.wall_classes import COMPUTE, COPIES

#: What pinned memory saves of copies of pageable memory, and narrower types of all.
_HALF: Final = 0.5
#: From this share of the span on, and if they take more than computation, copies bind the job.
BOUND_PCT: Final = 50.0
#: Kinds of which one way can run while the other does.
_WAYS: Final = ("HtoD", "DtoH")


def bind(walls: Walls, gpu: Gpu) -> bool:
    """Tell whether copies bind a GPU: they fill half of its span, and more than it computes."""
    copies_ns = walls.class_ns(*gpu, COPIES)
    most = 100.0 * copies_ns >= BOUND_PCT * max(walls.span_ns(*gpu), 1)
    return most and copies_ns > walls.class_ns(*gpu, COMPUTE)


class Copies:
    """Copies of each GPU; without the tables of llm_hotspots only those of the wall split."""

    def __init__(self, tables: Tables, walls: Walls) -> None:
        memops, overlap = (
            records(tables[name]) if name in tables else [] for name in ("memops", "overlap")
        )
        self._walls = walls
        self._rows = grouped(memops, "rank", "device_id")
        self._exposed = {(row["rank"], row["device_id"]): row for row in overlap}

    def sizes(self, gpu: Gpu, kind: str | None) -> tuple[float, float]:
        """Return bound and usual size for copies of a kind, ns; of all where it is None."""
        rows, exposed = self._rows.get(gpu, ()), self._exposed.get(gpu)
        bound_ns = self._walls.class_ns(*gpu, COPIES)
        if kind is not None and exposed is not None:
            bound_ns = min(bound_ns, sum(row["exposed_ns"] for row in rows if row["kind"] == kind))
        usual: list[float] = [min(bound_ns, self._walls.class_ns(*gpu, COMPUTE))]
        if exposed is not None and kind in (None, *_WAYS):
            usual.append(min(exposed["exposed_htod_ns"], exposed["exposed_dtoh_ns"], bound_ns))
            usual.append(_HALF * min(exposed["exposed_pageable_ns"], bound_ns))
        if bind(self._walls, gpu):
            usual.append(_HALF * bound_ns)
        return bound_ns, max(usual)
