"""Which copies go from one GPU of a process to another one that it uses."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.trace.rank_trace import RankTrace

_COLUMNS: Final = ("source_device_id", "target_device_id")


def copies_between(trace: RankTrace) -> npt.NDArray[np.bool_]:
    """Return of each copy, before any filter, whether it is between GPUs that both run kernels.

    Such copies are communication of one job. Of a GPU of another process, or where the profile does
    not name both, nobody knows whether it takes part.
    """
    copies = trace.unfiltered.get("memcpys")
    unnamed = copies is None or any(name not in copies for name in _COLUMNS)
    if copies is None or unnamed or len(trace.device_ids) < 2:
        return np.zeros(0 if copies is None else len(copies), dtype=bool)
    source, target = (copies[name] for name in _COLUMNS)
    device = trace.unfiltered["kernels"]["device_id"]
    used = [some for some in trace.device_ids if (device == some).any()]
    between: npt.NDArray[np.bool_] = (
        (source != target) & np.isin(source, used) & np.isin(target, used)
    )
    return between
