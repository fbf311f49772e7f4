"""Runs a program: a small discrete-event simulation of host threads, streams and ranks.

Threads take their instructions in the order of time (of equal times, in the order they got there).
An operation starts at the latest of what its launch allows and the ends of what it needs plus its
lag. All members of a collective end together, its transfer after the last one's start.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from machine.outcome import Activity, ActivityKind, EdgeKind, Operation, Outcome
from machine.outcome import Range as NvtxRange
from machine.program import (
    MAIN_STREAM,
    Await,
    Blocking,
    Call,
    Compute,
    Enqueue,
    Flush,
    Instruction,
    LaunchGraph,
    Pop,
    Program,
    Push,
    Record,
    Signal,
    Spin,
    Sync,
    Thread,
    WaitEvent,
    Work,
)
from machine.states import (
    RankState,
    StreamState,
    ThreadState,
    Waiter,
    number_steps,
)
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES, call_cause

_Needs = list[tuple[EdgeKind, Operation]]


class DeadlockError(Exception):
    """Some thread waits for what never happens."""


def simulate(program: Program) -> Outcome:
    """Run a program to its end; the same program always gives the same outcome.

    Raises:
        DeadlockError: A thread waits forever, or a collective lacks a member.
    """
    ranks = [RankState(rank, len(program.ranks[rank].threads)) for rank in range(program.ranks_n)]
    machine = _Machine(program, ranks)
    machine.run()
    for state in ranks:
        number_steps(state)
    return Outcome(
        program,
        [state.operations for state in ranks],
        [[thread.done for thread in state.threads] for state in ranks],
        [state.ranges for state in ranks],
        [state.syncs for state in ranks],
        [state.records for state in ranks],
    )


class _Machine:
    def __init__(self, program: Program, ranks: list[RankState]) -> None:
        self.program = program
        self.ranks = ranks
        self.queue: list[tuple[int, int, ThreadState]] = []
        self.entries_n = 0
        self.waiters: dict[Operation, list[Waiter]] = {}
        self.ready: deque[Operation] = deque()
        self.meetings: dict[tuple[str, tuple[int, ...], int], list[Operation]] = {}
        self.handlers: dict[type[Instruction], Callable[[ThreadState, int, Any], None]] = {
            Compute: self._compute,
            Push: self._push,
            Pop: self._pop,
            Enqueue: self._enqueue,
            Blocking: self._blocking,
            LaunchGraph: self._launch_graph,
            Record: self._record,
            WaitEvent: self._wait_event,
            Sync: self._sync,
            Spin: self._spin,
            Call: self._call,
            Signal: self._signal,
            Await: self._await,
            Flush: self._flush,
        }

    def run(self) -> None:
        for state in self.ranks:
            for thread in state.threads:
                self._resume(thread, 0)
        while self.queue:
            now, _, thread = heapq.heappop(self.queue)
            todo = self._program_of(thread)
            if thread.position < len(todo):
                task = todo[thread.position]
                thread.position += 1
                self.handlers[type(task)](thread, now, task)
        for state in self.ranks:
            for thread in state.threads:
                if thread.position < len(self._program_of(thread)) or any(
                    act.end < 0 for act in thread.done
                ):
                    raise DeadlockError(f"rank {state.rank}: thread {thread.number} waits forever.")
            if any(op.end < 0 for op in state.operations):
                raise DeadlockError(f"rank {state.rank}: an operation never ends.")

    def _program_of(self, thread: ThreadState) -> Thread:
        return self.program.ranks[thread.rank].threads[thread.number]

    def _resume(self, thread: ThreadState, at_ns: int) -> None:
        self.entries_n += 1
        heapq.heappush(self.queue, (at_ns, self.entries_n, thread))

    def _end(self, thread: ThreadState, activity: Activity, at_ns: int) -> None:
        activity.end = at_ns
        self._resume(thread, at_ns)

    # ---- host activities -----------------------------------------------------------------------

    def _begin(self, thread: ThreadState, now: int, kind: ActivityKind, name: str = "") -> Activity:
        text = thread.open_ranges[-1][0] if thread.open_ranges else ""
        place = (thread.rank, thread.number, len(thread.done))
        activity = Activity(*place, kind, name, now, text)
        if kind == "call":
            self.ranks[thread.rank].calls_n += 1
            activity.correlation = self.ranks[thread.rank].calls_n
        thread.done.append(activity)
        return activity

    def _plain_call(self, thread: ThreadState, now: int, name: str, length_ns: int) -> Activity:
        call = self._begin(thread, now, "call", name)
        call.parts = [(CAUSE_NAMES[call_cause(name)], now, now + length_ns)]
        self._end(thread, call, now + length_ns)
        return call

    def _compute(self, thread: ThreadState, now: int, task: Compute) -> None:
        length_ns = task.ns * self.program.ranks[thread.rank].host_pct // 100
        self._end(thread, self._begin(thread, now, "host"), now + length_ns)

    def _push(self, thread: ThreadState, now: int, task: Push) -> None:
        step = -1
        if task.step:
            step = self.ranks[thread.rank].steps_n
            self.ranks[thread.rank].steps_n += 1
        thread.open_ranges.append((task.text, now, step))
        self._end(thread, self._begin(thread, now, "host"), now + task.ns)

    def _pop(self, thread: ThreadState, now: int, task: Pop) -> None:
        text, start_ns, step = thread.open_ranges.pop()
        place = (thread.rank, thread.number)
        self.ranks[thread.rank].ranges.append(NvtxRange(*place, text, start_ns, now, step))
        self._end(thread, self._begin(thread, now, "host"), now + task.ns)

    def _flush(self, thread: ThreadState, now: int, task: Flush) -> None:
        self._end(thread, self._begin(thread, now, "flush"), now + task.ns)

    def _call(self, thread: ThreadState, now: int, task: Call) -> None:
        self._plain_call(thread, now, task.name, task.ns)

    def _signal(self, thread: ThreadState, now: int, task: Signal) -> None:
        state = self.ranks[thread.rank]
        signal = self._begin(thread, now, "signal", task.token)
        state.signals[task.token] = signal
        for waiting, activity, await_ in state.awaiting.pop(task.token, []):
            activity.signaled = signal
            self._end(waiting, activity, now + await_.wake_ns)
        self._end(thread, signal, now + task.ns)

    def _await(self, thread: ThreadState, now: int, task: Await) -> None:
        state = self.ranks[thread.rank]
        activity = self._begin(thread, now, "await", task.token)
        if task.token in state.signals:
            self._end(thread, activity, now)
        else:
            state.awaiting.setdefault(task.token, []).append((thread, activity, task))

    # ---- events and waits ----------------------------------------------------------------------

    def _record(self, thread: ThreadState, now: int, task: Record) -> None:
        state = self.ranks[thread.rank]
        call = self._plain_call(thread, now, "cudaEventRecord_v3020", task.call_ns)
        snapshot = state.stream(task.device, task.stream).all
        _, number = state.event(task.event)
        state.recorded[task.event] = (len(state.records) + 1, snapshot)
        call.event, call.stream, call.device = state.event(task.event), task.stream, task.device
        assert call.event[1] == number
        state.records.append(call)

    def _wait_event(self, thread: ThreadState, now: int, task: WaitEvent) -> None:
        state = self.ranks[thread.rank]
        call = self._plain_call(thread, now, "cudaStreamWaitEvent_v3020", task.call_ns)
        call.event, call.stream, call.device = state.event(task.event), task.stream, task.device
        state.syncs.append(("stream_wait", call))
        _, snapshot = state.recorded.get(task.event, (0, []))
        state.stream(task.device, task.stream).pending += snapshot

    def _sync(self, thread: ThreadState, now: int, task: Sync) -> None:
        state = self.ranks[thread.rank]
        names = {"device": "Device", "stream": "Stream", "event": "Event"}
        call = self._begin(thread, now, "call", f"cuda{names[task.what]}Synchronize_v3020")
        call.device = task.device
        if task.what == "event":
            call.event = state.event(task.event)
            targets = list(state.recorded.get(task.event, (0, []))[1])
        elif task.what == "stream":
            call.stream = task.stream
            targets = state.stream(task.device, task.stream).all
        else:
            of_device = [at for (device, _), at in state.streams.items() if device == task.device]
            targets = [op for stream in of_device for op in stream.all]
        state.syncs.append(("context" if task.what == "device" else task.what, call))
        call.targets, call.unwaited_end = targets, now + task.least_ns

        def finish() -> None:
            waited_ns = max((op.end + task.wake_ns for op in targets), default=now)
            end_ns = max(now + task.least_ns, waited_ns)
            call.parts = [("host_sync", now, end_ns)]
            self._end(thread, call, end_ns)

        self._when_ended(targets, finish)

    def _spin(self, thread: ThreadState, now: int, task: Spin) -> None:
        activity = self._begin(thread, now, "host")
        targets = self.ranks[thread.rank].stream(task.device, task.stream).all

        def finish() -> None:
            self._end(thread, activity, max([now, *(op.end for op in targets)]) + task.wake_ns)

        self._when_ended(targets, finish)

    # ---- operations ----------------------------------------------------------------------------

    def _enqueue(self, thread: ThreadState, now: int, task: Enqueue) -> None:
        name = task.name or _launch_name(task.work)
        call = self._begin(thread, now, "call", name)
        call.held_by = held_by = self._held_by(thread.rank, task.device, 1)

        def launch() -> None:
            free_ns = max([now, *(op.end for op in held_by)])
            end_ns = free_ns + task.call_ns
            cause = CAUSE_NAMES[call_cause("cudaMemcpy" if task.work.pageable else name)]
            loaded_ns = free_ns + min(task.load_ns, task.call_ns)
            call.parts = _parts(
                ("back_pressure", now, free_ns),
                ("module_load", free_ns, loaded_ns),
                (cause, loaded_ns, end_ns),
            )
            submit_ns = end_ns if task.submit_ns is None else free_ns + task.submit_ns
            op = self._operation(call, task.work, (task.device, task.stream), task.lag_ns)
            op.ready_ns = submit_ns + task.latency_ns
            needs = self._needs_of(op)
            if task.room_after is not None:
                room = self.ranks[thread.rank].stream(task.device, task.room_after)
                needs += [("room", before) for before in room.tail]
            self._append(op, needs)
            self._end(thread, call, end_ns)

        self._when_ended(held_by, launch)

    def _blocking(self, thread: ThreadState, now: int, task: Blocking) -> None:
        call = self._begin(thread, now, "call", task.name)
        op = self._operation(call, task.work, (task.device, task.stream), task.lag_ns)
        op.ready_ns = now + task.staging_ns
        call.targets = [op]

        def finish() -> None:
            call.parts = [("sync_memop", now, op.end + task.wake_ns)]
            self._end(thread, call, op.end + task.wake_ns)

        self._append(op, self._needs_of(op))
        self._when_ended([op], finish)

    def _launch_graph(self, thread: ThreadState, now: int, task: LaunchGraph) -> None:
        state = self.ranks[thread.rank]
        call = self._begin(thread, now, "call", "cudaGraphLaunch_v10000")
        call.held_by = held_by = self._held_by(thread.rank, task.device, len(task.nodes))

        def launch() -> None:
            free_ns = max([now, *(op.end for op in held_by)])
            end_ns = free_ns + task.call_ns
            call.parts = _parts(("back_pressure", now, free_ns), ("launch_api", free_ns, end_ns))
            used = sorted({node.stream for node in task.nodes})
            streams = [state.stream(task.device, stream) for stream in used]
            before = [need for stream in streams for need in _needs(stream)]
            last: dict[int, Operation] = {}
            nodes: list[Operation] = []
            for number, node in enumerate(task.nodes):
                op = self._operation(call, node.work, (task.device, node.stream), node.lag_ns)
                op.ready_ns = end_ns + task.latency_ns
                op.node = (task.graph_id, number)
                needs: _Needs = before
                if node.stream in last:
                    needs = [("stream", last[node.stream])]
                needs = [*needs, *(("graph", nodes[number]) for number in node.after)]
                last[node.stream] = op
                nodes.append(op)
                self._append(op, needs)
            for stream in streams:
                stream.tail, stream.pending = list(last.values()), []
            self._end(thread, call, end_ns)

        self._when_ended(held_by, launch)

    def _operation(
        self, call: Activity, work: Work, place: tuple[int, int], lag_ns: int
    ) -> Operation:
        state = self.ranks[call.rank]
        number, call.device = len(state.operations), place[0]
        op = Operation(call.rank, *place, work, call, number, lag_ns)
        state.operations.append(op)
        state.launched.setdefault(op.device, []).append(op)
        return op

    def _needs_of(self, op: Operation) -> _Needs:
        """Return what an operation that joins its stream now comes after."""
        blocking = self.program.ranks[op.rank].blocking_streams
        streams = [op.stream]
        if op.stream == MAIN_STREAM:
            streams += [stream for stream in blocking if stream != MAIN_STREAM]
        elif op.stream in blocking:
            streams.append(MAIN_STREAM)
        state = self.ranks[op.rank]
        return [need for stream in streams for need in _needs(state.stream(op.device, stream))]

    def _append(self, op: Operation, needs: Sequence[tuple[EdgeKind, Operation]]) -> None:
        """Put an operation behind what it needs, at the end of its stream."""
        state = self.ranks[op.rank]
        op.needs = list(needs)
        stream = state.stream(op.device, op.stream)
        stream.tail, stream.pending = [op], []
        if op.work.kind == "collective":
            key = (op.work.name, op.work.group)
            ordinal = state.meetings_n.get(key, 0)
            state.meetings_n[key] = ordinal + 1
            op.members = self.meetings.setdefault((*key, ordinal), [])
        self._when_ended([need for _, need in needs], lambda: self._start(op))

    def _start(self, op: Operation) -> None:
        op.start = max([op.ready_ns, *(need.end + op.lag_ns for _, need in op.needs)])
        if op.work.kind != "collective":
            pct = self.program.ranks[op.rank].gpu_pct if op.work.kind == "kernel" else 100
            self._finish(op, op.start + op.work.ns * pct // 100)
            return
        op.members.append(op)
        if op.work.ring:
            for member in [member for member in op.members if member.end < 0]:
                near = [other for other in op.members if _are_near(member, other)]
                if len(near) == min(len(op.work.group), 3):
                    self._finish(member, max(other.start for other in near) + member.work.ns)
        elif len(op.members) == len(op.work.group):
            op.members.sort(key=lambda member: member.rank)
            end_ns = op.last_member.start + op.members[0].work.ns
            for member in op.members:
                self._finish(member, end_ns)

    def _finish(self, op: Operation, end_ns: int) -> None:
        op.end = end_ns
        self.ready.append(op)
        if len(self.ready) > 1:
            return  # the loop below, further up the stack, comes to it
        while self.ready:
            for waiter in self.waiters.pop(self.ready[0], []):
                waiter.left_n -= 1
                if waiter.left_n == 0:
                    waiter.then()
            self.ready.popleft()

    def _when_ended(self, operations: Sequence[Operation], then: Callable[[], None]) -> None:
        """Do something as soon as the ends of all these operations are known, maybe at once."""
        unknown = [op for op in operations if op.end < 0]
        waiter = Waiter(len(unknown), then)
        for op in unknown:
            self.waiters.setdefault(op, []).append(waiter)
        if not unknown:
            then()

    def _held_by(self, rank: int, device: int, count: int) -> list[Operation]:
        """Return the operations that have to end before `count` more fit into the queue."""
        depth = self.program.ranks[rank].queue_depth
        if not depth:
            return []
        of_device = self.ranks[rank].launched.setdefault(device, [])
        fit_n = max(0, len(of_device) + min(count, depth) - depth)
        return of_device[max(0, fit_n - count) : fit_n]


def _are_near(op: Operation, other: Operation) -> bool:
    """Tell whether two members of a ring are one, or exchange with each other."""
    group = op.work.group
    apart_n = abs(group.index(op.rank) - group.index(other.rank))
    return min(apart_n, len(group) - apart_n) <= 1


def _needs(stream: StreamState) -> _Needs:
    after: _Needs = [("stream", op) for op in stream.tail]
    return after + [("event", op) for op in stream.pending]


def _parts(*parts: tuple[str, int, int]) -> list[tuple[str, int, int]]:
    return [part for part in parts if part[2] > part[1]]


def _launch_name(work: Work) -> str:
    if work.kind in ("kernel", "collective"):
        return "cudaLaunchKernel_v7000"
    return "cudaMemsetAsync_v3020" if work.kind == "memset" else "cudaMemcpyAsync_v3020"
