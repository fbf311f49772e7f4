"""What the host's threads did on the paths of a rank's steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from nsys_llm.analyses.critical_path.path.classes import CLASS_NAMES
from nsys_llm.analyses.host.exposed import Exposed
from nsys_llm.analyses.host.part import host_part
from nsys_llm.analyses.rank_view import RankView
from nsys_llm.numeric.grouping import split_by_code
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES
from nsys_llm.trace.host_part import HostPart

from .steps import COUNTED

#: The cause of idle time that each class of host time on a path is, -1 where it is none.
_CAUSE: Final = np.array(
    [CAUSE_NAMES.index(name) if name in CAUSE_NAMES else -1 for name in CLASS_NAMES]
)


def map_host(
    view: RankView, on_host: Mapping[int, IntArray], marks: Sequence[str]
) -> HostPart | None:
    """Return what threads did on the paths, inside the rank, of the steps that count.

    Args:
        view: The rank.
        on_host: By device, see `Charging.on_host`.
        marks: Of the steps.
    """
    counted = np.array([mark == COUNTED for mark in marks], dtype=bool)
    exposed = {device: _stretches(some[:, counted[some[0]]]) for device, some in on_host.items()}
    return host_part(view, exposed)


def _stretches(on_host: IntArray) -> list[Exposed]:
    _, thread, start_ns, end_ns, kind = on_host[:, np.argsort(on_host[2], kind="stable")]
    other = np.full_like(thread, -1)
    return [
        Exposed(code, start_ns[rows], end_ns[rows], other[rows], _CAUSE[kind[rows]])
        for code, rows in enumerate(split_by_code(thread, int(thread.max(initial=-1)) + 1))
        if rows.size
    ]
