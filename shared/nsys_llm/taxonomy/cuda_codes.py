"""What the codes in an export's CUDA tables stand for, and one code for a kind of copy. Pure.

Source: the tables ENUM_CUDA_MEMCPY_OPER, ENUM_CUDA_MEM_KIND and ENUM_CUDA_DEV_MEM_EVENT_OPER of
exports of Nsight Systems 2023.4.4 and 2026.2, which agree; of causes CUPTI's documentation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.intervals import IntArray

#: Copy kinds by name.
HOST_TO_DEVICE: Final = 1
DEVICE_TO_HOST: Final = 2

_COPIED: Final = (
    *("unknown", "HtoD", "DtoH", "HtoA", "AtoH"),
    *("AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"),
)
#: Pages of unified memory that the driver moves; no call launches that.
MIGRATION: Final = "page migration"
_MIGRATED: Final = tuple(f"{MIGRATION} {way}" for way in ("HtoD", "DtoH", "DtoD"))
#: Why they are moved, in the order of CUPTI's CUpti_ActivityUnifiedMemoryMigrationCause from 1.
_CAUSES: Final = (
    "by prefetch",
    "by page fault",
    "ahead of use",
    "by eviction",
    "by access counters",
)

#: By copy kind: host, device, CUDA array, peer; then migrations, and those of each cause.
COPY_KINDS: Final = (
    *_COPIED,
    *_MIGRATED,
    *(f"{kind} {cause}" for cause in _CAUSES for kind in _MIGRATED),
)
_FIRST_MIGRATED: Final = len(_COPIED)

#: By memory kind.
MEMORY_KINDS: Final = (
    "pageable",
    "pinned",
    "device",
    "array",
    "managed",
    "device static",
    "managed static",
    "unknown",
)

#: Operations of memory events.
ALLOCATION: Final = 0
FREE: Final = 1
#: Host memory that is not pinned.
PAGEABLE: Final = MEMORY_KINDS.index("pageable")

_UNKNOWN_MEMORY: Final = MEMORY_KINDS.index("unknown")
_NOT_RECORDED: Final = len(MEMORY_KINDS)
_FILL: Final = len(COPY_KINDS)
_BASE: Final = _NOT_RECORDED + 1
#: Bytes of device memory traffic for each byte of the operation: a copy inside the device reads and
#: writes, a fill writes. Other copies are bound by the bus or the link.
_DEVICE_TRAFFIC: Final = {"DtoD": 2, "memset": 1}


#: Kinds of memory that are added up, by memory kind. Managed memory may be on the host.
DEVICE: Final = "device"
_ADDED_UP: Final = ("host", "host", DEVICE, DEVICE, "managed", DEVICE, "managed")


def copy_kind_name(code: int) -> str:
    """Return the name of a copy kind; a number that is none keeps its number."""
    return COPY_KINDS[code] if 0 <= code < len(COPY_KINDS) else f"kind {code}"


def migration_kinds(copy_kind: IntArray, cause: IntArray) -> IntArray:
    """Return the copy kinds of an export, those of migrations with their cause.

    Args:
        copy_kind: Shape (n,), CUPTI's code.
        cause: Shape (n,), CUPTI's code of why a page is moved; NULL or 0: not recorded.
    """
    migrated_n = len(_MIGRATED)
    moves = (copy_kind >= _FIRST_MIGRATED) & (copy_kind < _FIRST_MIGRATED + migrated_n)
    known = moves & (cause >= 1) & (cause <= len(_CAUSES))
    return np.where(known, copy_kind + migrated_n * cause, copy_kind)


@dataclass(frozen=True)
class MoveKind:
    """What a code of `move_codes` or `fill_codes` stands for.

    Attributes:
        source: Kind of the memory read; None for a fill and where the export does not record it.
        target: Kind of the memory written; None where the export does not record it.
    """

    kind: str
    source: str | None
    target: str | None

    @classmethod
    def of(cls, code: int) -> MoveKind:
        """Return the meaning of a packed code."""
        kind, rest = divmod(code, _BASE * _BASE)
        source, target = divmod(rest, _BASE)
        name = "memset" if kind == _FILL else COPY_KINDS[kind]
        return cls(name, _memory(source), _memory(target))

    @property
    def pageable(self) -> bool | None:
        """Whether a side is pageable host memory; None where the export does not record it."""
        sides = [self.target] if self.kind == "memset" else [self.source, self.target]
        if MEMORY_KINDS[PAGEABLE] in sides:
            return True
        return None if None in sides else False

    @property
    def device_traffic(self) -> int | None:
        """Bytes of device memory traffic a byte; None where the bus or a link is the limit."""
        return _DEVICE_TRAFFIC.get(self.kind)


def move_codes(copy_kind: IntArray, source: IntArray, target: IntArray) -> IntArray:
    """Return one code for each copy.

    Args:
        copy_kind: Shape (n,), CUPTI's code; what is no known code counts as unknown.
        source: Shape (n,), kind of the memory read; negative (NULL) where it is not recorded.
        target: Shape (n,), kind of the memory written, likewise.
    """
    known = (copy_kind >= 0) & (copy_kind < len(COPY_KINDS))
    return _packed(np.where(known, copy_kind, 0), _memory_codes(source), _memory_codes(target))


def fill_codes(target: IntArray) -> IntArray:
    """Return one code for each fill of memory of a kind; negative (NULL): not recorded."""
    memory = _memory_codes(target)
    return _packed(np.full_like(memory, _FILL), np.full_like(memory, _NOT_RECORDED), memory)


def memory_kinds(code: IntArray) -> npt.NDArray[Any]:
    """Return what kind of memory each code is: host, device, managed or unknown."""
    used, index = np.unique(code, return_inverse=True)
    known = dict(enumerate(_ADDED_UP))
    return np.array([known.get(value, "unknown") for value in used.tolist()], dtype=object)[index]


def _packed(kind: IntArray, source: IntArray, target: IntArray) -> IntArray:
    return (kind * _BASE + source) * _BASE + target


def _memory_codes(kind: IntArray) -> IntArray:
    known = np.where(kind < len(MEMORY_KINDS), kind, _UNKNOWN_MEMORY)
    return np.where(kind < 0, _NOT_RECORDED, known)


def _memory(code: int) -> str | None:
    return None if code == _NOT_RECORDED else MEMORY_KINDS[code]


#: From here on the link's rate decides how long a copy takes, or the rate at which the driver
#: stages pageable memory, and not what any copy costs.
LARGE_BYTES: Final = 1 << 20
