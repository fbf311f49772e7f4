"""What the codes in an export's CUDA tables stand for. Pure.

Source: the tables ENUM_CUDA_MEMCPY_OPER, ENUM_CUDA_MEM_KIND and ENUM_CUDA_DEV_MEM_EVENT_OPER of
exports of Nsight Systems 2023.4.4 and 2026.2, which agree.
"""

from __future__ import annotations

from typing import Final

#: Copy kinds by name.
HOST_TO_DEVICE: Final = 1
DEVICE_TO_HOST: Final = 2

#: The memory kind of host memory that is not pinned.
PAGEABLE: Final = 0

#: By copy kind: host, device, CUDA array, peer; the last three are migrations of unified memory.
COPY_KIND_NAMES: Final = {
    0: "unknown",
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
    11: "unified HtoD",
    12: "unified DtoH",
    13: "unified DtoD",
}

#: By memory kind.
MEMORY_KIND_NAMES: Final = {
    0: "pageable",
    1: "pinned",
    2: "device",
    3: "array",
    4: "managed",
    5: "device static",
    6: "managed static",
    7: "unknown",
}

#: Operations of memory events.
ALLOCATION: Final = 0
FREE: Final = 1


def copy_kind_name(code: int) -> str:
    """Return the name of a copy kind; a number that is none keeps its number."""
    return COPY_KIND_NAMES.get(code, f"kind {code}")
