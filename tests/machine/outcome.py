"""What happened in a simulated job: operations, host activities, and what each waited for.

Times are int ns of the job's clock, which all ranks share; -1 where something has not happened.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from trace_host import WaitKind

from machine.program import Program, Work

#: How an operation depends on what comes before; of equal ends, the first in this order counts.
EdgeKind = Literal["launch", "stream", "event", "graph", "room"]
EDGE_ORDER: tuple[EdgeKind, ...] = ("launch", "stream", "event", "graph", "room")

ActivityKind = Literal["call", "host", "await", "signal", "flush"]


@dataclass(eq=False, repr=False)
class Activity:
    """A stretch of a host thread; those of a thread follow each other without a gap.

    Attributes:
        kind: `call` for a CUDA call.
        name: API function with its version, or token.
        end: End; of a call its return.
        text: Innermost NVTX range, empty outside of all.
        parts: Of a call: class, begin and end of what it did, in order and without a gap.
        targets: Of a call that waits: the operations that it waited for.
        unwaited_end: Of such a call: when it would have returned without them; -1 for never.
        held_by: Of a launch: operations that had to end first, as the queue was full.
        event: Of a call about an event: the number of its record, unique in its rank, and the
            number of the event, which is recorded again and again.
        stream: Of a call about one stream; -1 else.
        device: Of a call about a device or stream.
        correlation: Of a call: number that is unique in its rank.
        signaled: Of an `await`: the `signal` that ended it.
    """

    rank: int
    thread: int
    index: int
    kind: ActivityKind
    name: str
    start: int
    text: str = ""
    end: int = -1
    parts: list[tuple[str, int, int]] = field(default_factory=list)
    targets: list[Operation] = field(default_factory=list)
    unwaited_end: int = -1
    held_by: list[Operation] = field(default_factory=list)
    event: tuple[int, int] | None = None
    stream: int = -1
    device: int = 0
    correlation: int = -1
    signaled: Activity | None = None

    def __repr__(self) -> str:
        place = f"{self.rank}.{self.thread}[{self.index}]"
        return f"<{self.kind} {place} {self.name} {self.start}..{self.end}>"


@dataclass(eq=False, repr=False)
class Operation:
    """What ran on a device.

    Attributes:
        device: In the process.
        stream: In the device.
        work: What it is.
        call: That launched it.
        number: Position among all operations of its rank, in the order they were launched.
        lag_ns: From the end of a prerequisite on the device to its earliest start.
        ready_ns: Earliest start by its launch.
        node: Graph and number of the node in it; None outside of graphs.
        needs: What it waited for on the device.
        members: Operations of the same collective, itself included, by rank.
        step: Step in whose range its launch starts; -1 outside of all.
    """

    rank: int
    device: int
    stream: int
    work: Work
    call: Activity
    number: int
    lag_ns: int
    ready_ns: int = -1
    node: tuple[int, int] | None = None
    needs: list[tuple[EdgeKind, Operation]] = field(default_factory=list)
    members: list[Operation] = field(default_factory=list)
    step: int = -1
    start: int = -1
    end: int = -1

    def __repr__(self) -> str:
        place = f"{self.rank}.{self.device}.{self.stream}[{self.number}]"
        return f"<{self.work.kind} {place} {self.start}..{self.end}>"

    @property
    def last_member(self) -> Operation:
        """The member of its collective that started last; of several, the lowest rank's."""
        return max(self.members, key=lambda member: (member.start, -member.rank))

    @property
    def launch_ns(self) -> int:
        """When the launch counts as done: at its return, or its start if that was too late."""
        return self.call.end if self.start >= self.call.end else self.call.start

    def prerequisites(self) -> list[Prerequisite]:
        """Return all that it waited for, in the order that decides between equal ends."""
        launch = Prerequisite("launch", self.launch_ns, self.ready_ns, self.call)
        others = [Prerequisite(kind, op.end, op.end + self.lag_ns, op) for kind, op in self.needs]
        return [launch, *sorted(others, key=lambda need: EDGE_ORDER.index(need.kind))]

    def activator(self) -> Prerequisite:
        """Return the prerequisite that finished last, as the contract has it."""
        return max(self.prerequisites(), key=lambda need: need.end)

    def binding(self) -> Prerequisite:
        """Return the prerequisite without which it would have started earlier, lags counted."""
        return max(self.prerequisites(), key=lambda need: need.allows)


@dataclass(frozen=True)
class Prerequisite:
    """Something that an operation waited for.

    Attributes:
        kind: How.
        end: When it was done.
        allows: The earliest start that it allows.
        source: The operation, or the launching call.
    """

    kind: EdgeKind
    end: int
    allows: int
    source: Activity | Operation


@dataclass(frozen=True)
class Range:
    """An NVTX range of a thread; `step` is its number among the rank's steps, -1 for others."""

    rank: int
    thread: int
    text: str
    start: int
    end: int
    step: int


@dataclass(frozen=True, eq=False, repr=False)
class Outcome:
    """All that happened.

    Attributes:
        program: What was told.
        operations: By rank, in the order of launches.
        threads: By rank and thread, activities in order of time.
        ranges: By rank.
        syncs: By rank: calls that have a row of their own in the profile, with the kind of the
            wait: `stream_wait`, `stream`, `event`, `context` or `query`.
        records: By rank: calls that recorded an event.
    """

    program: Program
    operations: list[list[Operation]]
    threads: list[list[list[Activity]]]
    ranges: list[list[Range]]
    syncs: list[list[tuple[WaitKind, Activity]]]
    records: list[list[Activity]]

    @property
    def steps_n(self) -> int:
        """Number of steps of the job; 0 without ranges of steps."""
        return 1 + max((span.step for spans in self.ranges for span in spans), default=-1)

    def of_device(self, rank: int, device: int = 0) -> list[Operation]:
        """Return the operations of a device in the order of launches."""
        return [op for op in self.operations[rank] if op.device == device]

    def calls(self, rank: int) -> Iterator[Activity]:
        """Return all calls of a rank, thread by thread."""
        for thread in self.threads[rank]:
            yield from (act for act in thread if act.kind == "call")

    @property
    def wall_ns(self) -> int:
        """From 0 of the job's clock to the end of its last operation."""
        return max(op.end for ops in self.operations for op in ops)
