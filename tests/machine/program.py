"""What a simulated job is told to do: programs of host threads, one or more a rank.

All lengths are int ns. A thread's program is a tuple of instructions, executed in their order;
what is enqueued runs when its prerequisites are done (see `simulation`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

#: The stream that work goes to by default, and the default device.
MAIN_STREAM: Final = 7
DEVICE: Final = 0

WorkKind = Literal["kernel", "collective", "memset", "HtoD", "DtoH", "DtoD"]


@dataclass(frozen=True)
class Work:
    """One operation of a device.

    Attributes:
        name: Demangled name of a kernel; any text for a copy or fill.
        ns: Length; of a collective, from the start of its last member on, as its first rank has it.
        kind: `kernel`, `collective`, `memset` or the kind of a copy.
        pageable: Whether the host side of a copy is pageable memory.
        group: Ranks that take part in a collective, ascending. The n-th collective of a name and
            group is the same on all of them.
        ring: Whether a member exchanges with its two neighbors alone, and leaves when both came.
    """

    name: str
    ns: int
    kind: WorkKind = "kernel"
    size_bytes: int = 0
    pageable: bool = False
    group: tuple[int, ...] = ()
    blocks: int = 1
    ring: bool = False


@dataclass(frozen=True)
class Instruction:
    """Something a host thread does.

    Attributes:
        fault: Name of the fault that it is part of; `Program.without_fault` leaves it out.
    """

    fault: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class Compute(Instruction):
    """Work of the host outside of CUDA."""

    ns: int


@dataclass(frozen=True)
class Push(Instruction):
    """Open an NVTX range, of a step or another; the thread goes on `ns` after its start."""

    text: str
    step: bool = False
    ns: int = 100


@dataclass(frozen=True)
class Pop(Instruction):
    """Close the innermost NVTX range at once; the thread goes on after `ns`."""

    ns: int = 100


@dataclass(frozen=True)
class Enqueue(Instruction):
    """A call that puts an operation into a stream and returns.

    Attributes:
        latency_ns: From the return (or from `submit_ns`) to the earliest start of the operation.
        submit_ns: Where in the call the operation is handed to the device, if not at its return.
        lag_ns: From the end of what the operation waits for on the device to its start.
        load_ns: For how long, at the begin of the call, the driver loads code (inside `call_ns`).
        name: Of the API function; derived from the work if empty.
        room_after: A stream whose work so far leaves no room on the device: it starts after that,
            which nothing in a profile says.
    """

    work: Work
    stream: int = MAIN_STREAM
    call_ns: int = 4000
    latency_ns: int = 1800
    submit_ns: int | None = None
    lag_ns: int = 1000
    load_ns: int = 0
    name: str = ""
    device: int = DEVICE
    room_after: int | None = None


@dataclass(frozen=True)
class Blocking(Instruction):
    """A copy or fill that keeps the host waiting until it is done.

    Attributes:
        staging_ns: From the begin of the call until the device may begin.
        wake_ns: From the end of the copy to the return.
        name: Of the API function; one with Async in it has to have pageable work.
    """

    work: Work
    stream: int = MAIN_STREAM
    staging_ns: int = 5000
    wake_ns: int = 3000
    lag_ns: int = 1000
    name: str = "cudaMemcpy_v3020"
    device: int = DEVICE


@dataclass(frozen=True)
class Node:
    """A node of a graph.

    Attributes:
        stream: On which of the graph's streams; nodes of a stream run in the order they stand.
        after: Numbers of nodes of other streams, all before it, that it waits for.
    """

    work: Work
    stream: int = MAIN_STREAM
    after: tuple[int, ...] = ()
    lag_ns: int = 600


@dataclass(frozen=True)
class LaunchGraph(Instruction):
    """Launch a graph: it begins after all that its streams ran, and they go on after all of it."""

    nodes: tuple[Node, ...]
    graph_id: int = 1
    call_ns: int = 12_000
    latency_ns: int = 2500
    device: int = DEVICE


@dataclass(frozen=True)
class Record(Instruction):
    """Record a CUDA event: it is done when all is that was put into the stream before."""

    event: str
    stream: int = MAIN_STREAM
    call_ns: int = 1200
    device: int = DEVICE


@dataclass(frozen=True)
class WaitEvent(Instruction):
    """Make a stream wait for the latest record of an event."""

    event: str
    stream: int = MAIN_STREAM
    call_ns: int = 1300
    device: int = DEVICE


@dataclass(frozen=True)
class Sync(Instruction):
    """Keep the host waiting for a device, a stream, or the latest record of an event.

    Attributes:
        least_ns: Length of the call if there is nothing to wait for.
        wake_ns: From the end of what it waits for to the return.
    """

    what: Literal["device", "stream", "event"] = "device"
    stream: int = MAIN_STREAM
    event: str = ""
    least_ns: int = 2000
    wake_ns: int = 3000
    device: int = DEVICE


@dataclass(frozen=True)
class Spin(Instruction):
    """Look at a flag in memory until a stream is done: the host waits, and no call is recorded."""

    stream: int = MAIN_STREAM
    wake_ns: int = 1000
    device: int = DEVICE


@dataclass(frozen=True)
class Call(Instruction):
    """Any other CUDA call (cudaMalloc, a poll, ...), by its name in a profile."""

    name: str
    ns: int


@dataclass(frozen=True)
class Signal(Instruction):
    """Hand over to a thread of the same rank that awaits the token."""

    token: str
    ns: int = 50


@dataclass(frozen=True)
class Await(Instruction):
    """Wait outside of CUDA until a thread of the same rank has signaled the token."""

    token: str
    wake_ns: int = 2000


@dataclass(frozen=True)
class Flush(Instruction):
    """The profiler works on this thread, which is in no CUDA call."""

    ns: int


Thread = tuple[Instruction, ...]


@dataclass(frozen=True)
class Rank:
    """A process with its device.

    Attributes:
        threads: Programs; the first thread is the main one.
        gpu_pct: Length of its kernels in percent of their `ns`; collectives and copies keep theirs.
        host_pct: Length of its host work outside of CUDA, likewise.
        capture_ns: When its capture starts on the job's clock: 0 of its profile.
        clock_error_ns: By how much the wall clock that the profile states is ahead.
        rates: From when on its clock runs faster by how many ppm, ascending.
        host: Name of its machine; empty: one of its own.
        blocking_streams: Streams that wait for the legacy default stream (the main one), and it
            for them; not to be mixed with graphs.
        queue_depth: Operations that may be enqueued and not done; a further launch waits. 0: any.
    """

    threads: tuple[Thread, ...]
    gpu_pct: int = 100
    host_pct: int = 100
    capture_ns: int = 0
    clock_error_ns: int = 0
    rates: tuple[tuple[int, int], ...] = ()
    host: str = ""
    blocking_streams: tuple[int, ...] = ()
    queue_depth: int = 0


@dataclass(frozen=True)
class Program:
    """A job: what each rank does. `changes` has what makes another job of it."""

    ranks: tuple[Rank, ...]

    @property
    def ranks_n(self) -> int:
        return len(self.ranks)
