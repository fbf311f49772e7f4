"""What a finding says is at fault. Findings of one cause are one opportunity."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

CauseKind = Literal[
    "kernels",  # detail: category or kernel name
    "transfer",
    "link",
    "waiting",
    "rank",  # detail: the verdict of `rank_verdicts`, and the kernel where it names one
    "stage",
    "schedule",
    "experts",
    "copies",  # detail: kind of copy
    "host",  # of one rank, or of all where `rank` is None
    "wait",  # detail: API function; of one rank, or of all
    "allocation",
    "module_load",
    "dependency",
    "queued",
    "profiler",
    "place",  # where or when time goes, and not why; detail: the phase or steps
]

#: Kinds whose detail says which thing is at fault. Of the others it only describes: a rank is one
#: cause whether or not its longer kernel is known.
_DETAIL_IDENTIFIES: Final = ("kernels", "copies", "wait", "place")


@dataclass(frozen=True)
class Cause:
    """What is at fault.

    Attributes:
        rank: Whose; None where it is not one rank's.
        device_id: CUDA device of that rank; None where it is not one device's.
        detail: Which kernels, copies, wait or phase; of other kinds more about it. Part of equality
            only for kernels, copies, wait and place.
    """

    kind: CauseKind
    rank: int | None = None
    device_id: int | None = None
    detail: str | None = field(default=None, compare=False)
    _thing: str | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        thing = self.detail if self.kind in _DETAIL_IDENTIFIES else None
        object.__setattr__(self, "_thing", thing)
