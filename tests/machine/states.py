"""Where a simulated rank stands: its threads, its streams and what is recorded of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from trace_host import WaitKind

from machine.outcome import Activity, Operation
from machine.outcome import Range as NvtxRange
from machine.program import Await


@dataclass
class StreamState:
    """What runs last in a stream, and what the next operation has to wait for besides."""

    tail: list[Operation] = field(default_factory=list)
    pending: list[Operation] = field(default_factory=list)

    @property
    def all(self) -> list[Operation]:
        """Everything that has to end before the stream counts as done."""
        return [*self.tail, *self.pending]


@dataclass
class ThreadState:
    """Where a host thread stands.

    Attributes:
        done: What it did, in order of time.
        open_ranges: Text, start and number of the step (-1: none) of each open NVTX range.
    """

    rank: int
    number: int
    position: int = 0
    done: list[Activity] = field(default_factory=list)
    open_ranges: list[tuple[str, int, int]] = field(default_factory=list)


@dataclass(eq=False)
class Waiter:
    """Runs something as soon as some operations have an end."""

    left_n: int
    then: Callable[[], None]


class RankState:
    """What a rank has done and recorded so far."""

    def __init__(self, rank: int, threads_n: int) -> None:
        self.rank = rank
        self.threads = [ThreadState(rank, number) for number in range(threads_n)]
        self.operations: list[Operation] = []
        self.launched: dict[int, list[Operation]] = {}
        self.ranges: list[NvtxRange] = []
        self.syncs: list[tuple[WaitKind, Activity]] = []
        self.records: list[Activity] = []
        self.streams: dict[tuple[int, int], StreamState] = {}
        self.event_numbers: dict[str, int] = {}
        self.recorded: dict[str, tuple[int, list[Operation]]] = {}
        self.signals: dict[str, Activity] = {}
        self.awaiting: dict[str, list[tuple[ThreadState, Activity, Await]]] = {}
        self.meetings_n: dict[tuple[str, tuple[int, ...]], int] = {}
        self.calls_n = 0
        self.steps_n = 0

    def stream(self, device: int, stream: int) -> StreamState:
        return self.streams.setdefault((device, stream), StreamState())

    def event(self, name: str) -> tuple[int, int]:
        """Return the number of the latest record of an event (0: none), and the event's."""
        number = self.event_numbers.setdefault(name, len(self.event_numbers) + 1)
        return self.recorded.get(name, (0, []))[0], number


def number_steps(state: RankState) -> None:
    """Give each operation the step in whose range its launch starts."""
    steps = [span for span in state.ranges if span.step >= 0]
    for op in state.operations:
        at_ns = op.call.start
        inside = [span.step for span in steps if span.start <= at_ns <= span.end]
        op.step = inside[-1] if inside else -1
