"""What host threads did on the path of the job through all steps that count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from nsys_llm.analyses.critical_path.path.blocks import HOST
from nsys_llm.analyses.critical_path.path.classes import CLASS_NAMES, HOST_NO_CUDA
from nsys_llm.report.records import percent
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES
from nsys_llm.trace.host_part import CUDA_CALL

from .job_tables import JobPaths

#: Classes of time in CUDA calls.
_CALLS: Final = frozenset(CAUSE_NAMES) - {"profiler_overhead"}


def host_state_rows(paths: JobPaths) -> list[Mapping[str, Any]]:
    """Return the rows of host_states; none of ranks of which only CUDA calls are recorded."""
    steps_n, charged, rows = paths.job.counted.size, paths.charged, list[Mapping[str, Any]]()
    for (rank, _), forest, time_ns in zip(
        paths.rows, charged.forests, charged.in_all_ns, strict=True
    ):
        if not steps_n or not any(charge.state for charge in forest.charges):
            continue
        sums = Counter[tuple[str, str, str, str]]()
        for code in np.flatnonzero(time_ns).tolist():
            charge, ns = charged.charges[code], int(time_ns[code])
            name = CLASS_NAMES[charge.kind]
            if charge.kind == HOST_NO_CUDA:
                sums[name, charge.detail, charge.state, charge.function] += ns
            elif charge.device_id == HOST and name in _CALLS:
                sums[name, "", CUDA_CALL, charge.detail] += ns
        for where, ns in sorted(sums.items(), key=lambda item: (-item[1], item[0])):
            names = ("cause", "range", "state", "detail")
            said = dict(zip(names, (text or None for text in where), strict=True))
            place = {"rank": rank.number, "file": rank.file, "steps_n": steps_n}
            rows.append({**place, **said, "time_ns": ns, "share_pct": percent(ns, sums.total())})
    return rows
