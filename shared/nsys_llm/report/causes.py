"""What a finding says is at fault, and what somebody would do about it. Prices: `prices`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

#: What GPUs are idle for, of one rank's host or of all.
IdleCause = Literal["host", "wait", "queued", "dependency", "module_load", "allocation"]
#: What other ranks wait for.
WaitedFor = Literal["rank", "stage", "schedule", "experts", "link"]
#: The place is where or when time goes, and not why.
CauseKind = Literal[
    IdleCause, WaitedFor, "kernels", "copies", "transfer", "waiting", "profiler", "place"
]
ChangeKind = Literal[
    "kernels",  # shorter ones; name: the lever, None where no usual size is known
    "launches",  # slow launches of a kernel that take what others of their group take
    "transfer",  # faster, or hidden; name: the operation, None for all
    "copies",  # moved, pinned, hidden; name: their kind, None for all
    "host",  # faster, ahead, or launching less
    "host_part",  # the same in some steps, time_ns: idle time by host causes in them
    "wait",  # removed; name: the API function
    "rank",  # like its peers
    "load",  # as much to do as its peers have
    "stages",  # of a pipeline, evened
    "microbatches",  # more of them in a step
    "experts",  # evened
    "known",  # made as another is, time_ns: at most what that gains
    "queued",  # half as many kernels in a row
    "idle",  # start-up, allocations; name: the causes of idle time, joined by commas
    "roofline",  # as near to what the hardware can do as others come; time_ns: what that gains
    "unknown",  # where or when time goes, and not what would change it
]


@dataclass(frozen=True)
class Cause:
    """What is at fault. Findings of one cause are one opportunity.

    Attributes:
        rank: Whose; None where it is not one rank's.
        device_id: CUDA device of that rank; None where it is not one device's.
        detail: Which kernels (category or name), copies, API function, phase or steps.
        note: More about a rank, stage or waiting: verdict, communicator. No part of equality: a
            rank is one cause whether or not it is known why.
    """

    kind: CauseKind
    rank: int | None = None
    device_id: int | None = None
    detail: str | None = None
    note: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Change:
    """What somebody would do.

    Attributes:
        name: Of what; None where the kind says all.
        time_ns: Time that it is about on the finding's GPU, where that is no class of the table
            `wall`: of an operation, kernels, slow launches, stages, waits, a part of the host's;
            None else.
        sure_ns: The part of that time of which the change is known to gain; None: all of it.
        wall_classes: Classes of the table `wall` that this time is in, where they are not those of
            the kind.
        worst_pct: Share of the worst step that it takes there, 0 to 100; None where not known.
    """

    kind: ChangeKind
    name: str | None = None
    time_ns: float | None = None
    sure_ns: float | None = None
    wall_classes: tuple[str, ...] = ()
    worst_pct: float | None = None
