"""Memory events of a rank (`--cuda-memory-usage=true`): which can be believed, and of what kind."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.cuda_codes import ALLOCATION, FREE

#: Kinds of memory that are added up.
DEVICE: Final = "device"
#: By memory kind (see `nsys_llm.taxonomy.cuda_codes`). Managed memory may be on the host.
_KIND_OF_CODE: Final = {
    0: "host",
    1: "host",
    2: DEVICE,
    3: DEVICE,
    4: "managed",
    5: DEVICE,
    6: "managed",
}

#: No GPU has a petabyte; larger sizes are damage, and a thousand of them would outgrow 64 bits.
_LARGEST_BYTES: Final = 1 << 50
_LARGEST_TIME_NS: Final = 1 << 53


def sane_memory_events(events: Table) -> npt.NDArray[np.bool_]:
    """Return which events are allocations or frees with a time, a size and a device."""
    at_ns, size = events["start_ns"], events["size_bytes"]
    sane = (at_ns > -_LARGEST_TIME_NS) & (at_ns < _LARGEST_TIME_NS)
    sane &= (size >= 0) & (size < _LARGEST_BYTES) & (events["device_id"] != NULL_INT)
    return np.asarray(sane & np.isin(events["operation"], (ALLOCATION, FREE)))


def memory_kinds(code: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return what kind of memory each code is: host, device, managed or unknown."""
    used, index = np.unique(code, return_inverse=True)
    names = [_KIND_OF_CODE.get(value, "unknown") for value in used.tolist()]
    return np.array(names, dtype=object)[index]
