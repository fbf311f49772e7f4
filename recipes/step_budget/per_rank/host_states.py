"""What the host's threads did on the paths of a rank's steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from nsys_llm.analyses.critical_path.path.classes import CLASS_NAMES
from nsys_llm.analyses.host.exposed import Exposed
from nsys_llm.analyses.host.part import host_part
from nsys_llm.analyses.rank_view import RankView
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
        on_host: By device, see `Charging.on_host`.
    """
    counted = np.array([mark == COUNTED for mark in marks], dtype=bool)
    exposed = {}
    for device, stretches in on_host.items():
        order = np.argsort(stretches[2], kind="stable")
        _, thread, start_ns, end_ns, kind = stretches[:, order[counted[stretches[0, order]]]]
        none = np.full_like(thread, -1)
        every = Exposed(-1, start_ns, end_ns, none, _CAUSE[kind])
        exposed[device] = every.by_thread(thread)
    return host_part(view, exposed)
