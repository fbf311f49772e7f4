"""The true critical path of a simulated job: a plain walk over what each thing really waited for.

Nothing here guesses: prerequisites, the targets of waits, hand-overs between threads, the members
of collectives and the common clock are those of the simulation. Classes are those of the step
budget: what an operation did, the causes of idle time, and `device_latency`, `launch_latency`,
`sync_latency`, `transfer`, `wait_for_rank`, `unknown`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from machine.outcome import Activity, Operation, Outcome, Prerequisite
from machine.usual import usual_activator

Scope = Literal["local", "global"]
#: Which prerequisite activates an operation: the one that finished last, the one whose end and
#: usual lag are latest, or the one that, lags counted, determined its start. They differ where
#: lags do.
Rule = Literal["finished", "usual", "binding"]

RUNGS = ("compute", "communication", "copy", "overhead", "idle")


@dataclass(frozen=True)
class Segment:
    """A stretch of a critical path.

    Attributes:
        label: Class of the time.
        detail: Kernel, API function, NVTX range, or the rank that is waited for.
        rank: To which the time is charged.
        device: Of an operation; -1 on the host.
    """

    label: str
    detail: str
    rank: int
    device: int
    start: int
    end: int


@dataclass(frozen=True)
class Path:
    """The critical path of a window, from its end to its begin."""

    begin: int
    end: int
    segments: tuple[Segment, ...]

    def by_class(self) -> dict[str, int]:
        """Return the ns of each class; they add up to the window."""
        sums: Counter[str] = Counter()
        for segment in self.segments:
            sums[segment.label] += segment.end - segment.start
        return dict(sums)

    def by_rank(self) -> dict[int, int]:
        sums: Counter[int] = Counter()
        for segment in self.segments:
            sums[segment.rank] += segment.end - segment.start
        return dict(sums)


def device_bounds(outcome: Outcome, rank: int, device: int = 0) -> list[int]:
    """Return E_-1, E_0, ... of a device; without steps its first start and last end.

    A device that ran nothing has none.
    """
    operations = outcome.of_device(rank, device)
    if not operations:
        return []
    steps = sorted(
        (span for span in outcome.ranges[rank] if span.step >= 0), key=lambda span: span.step
    )
    if not steps:
        return [min(op.start for op in operations), max(op.end for op in operations)]
    first_ns = steps[0].start
    bounds = [max([first_ns, *(op.end for op in operations if op.call.start < first_ns)])]
    for span in steps:
        ends = [op.end for op in operations if op.step == span.step]
        bounds.append(max([bounds[-1], *ends]))
    return bounds


def job_bounds(outcome: Outcome) -> list[int]:
    """Return J_-1, J_0, ... of the job; all ranks have to have as many steps."""
    bounds = [
        device_bounds(outcome, rank, device)
        for rank, operations in enumerate(outcome.operations)
        for device in sorted({op.device for op in operations})
    ]
    assert len({len(each) for each in bounds}) == 1
    return [
        min(each[0] for each in bounds),
        *map(max, zip(*(each[1:] for each in bounds), strict=True)),
    ]


def local_paths(
    outcome: Outcome, rank: int, device: int = 0, rule: Rule = "finished"
) -> list[Path]:
    """Return the critical path of each step of a device, in local scope."""
    operations = outcome.of_device(rank, device)
    bounds = device_bounds(outcome, rank, device)
    return _paths(operations, bounds, "local", rule, outcome)


def global_paths(outcome: Outcome, rule: Rule = "finished") -> list[Path]:
    """Return the critical path of each step of the job, through all ranks."""
    operations = [op for ops in outcome.operations for op in ops]
    return _paths(operations, job_bounds(outcome), "global", rule, outcome)


def run_path(outcome: Outcome, rank: int | None = None, rule: Rule = "finished") -> Path:
    """Return the path of one walk over all steps: of the job, or of a rank in local scope."""
    if rank is None:
        operations = [op for ops in outcome.operations for op in ops]
        bounds, scope = job_bounds(outcome), "global"
    else:
        operations = outcome.of_device(rank)
        bounds, scope = device_bounds(outcome, rank), "local"
    whole = [bounds[0], bounds[-1]]
    return _paths(operations, whole, "global" if scope == "global" else "local", rule, outcome)[0]


def _paths(
    operations: Sequence[Operation],
    bounds: Sequence[int],
    scope: Scope,
    rule: Rule,
    outcome: Outcome,
) -> list[Path]:
    stepped = [op for op in operations if op.step >= 0 or not outcome.steps_n]
    paths = []
    for begin, end in pairwise(bounds):
        walk = _Walk(outcome, scope, rule, begin, end)
        if end > begin:
            walk.follow(next(op for op in stepped if op.end == end))
        paths.append(Path(begin, end, tuple(walk.segments)))
    return paths


@dataclass
class _Walk:
    """Goes back from an operation's end; `at` never moves forward, nor below `begin`."""

    outcome: Outcome
    scope: Scope
    rule: Rule
    begin: int
    at: int
    segments: list[Segment] = field(default_factory=list)

    def follow(self, operation: Operation) -> None:
        """Walk from the end of an operation to the begin of the window."""
        place: Operation | Activity | None = operation
        while self.at > self.begin:
            if isinstance(place, Operation):
                place = self._operation(place)
            elif place is not None:
                place = self._activity(place)
            else:
                self._charge("unknown", "before_capture", self._last_rank(), -1, self.begin)

    def _last_rank(self) -> int:
        return self.segments[-1].rank

    def _charge(self, label: str, detail: str, rank: int, device: int, down_to: int) -> None:
        low = max(down_to, self.begin)
        if low < self.at:
            self.segments.append(Segment(label, detail, rank, device, low, self.at))
            self.at = low

    def _operation(self, op: Operation) -> Operation | Activity | None:
        """Charge an operation and the way to it; return what activated it."""
        name = op.work.name
        if op.work.kind != "collective":
            label = "compute" if op.work.kind == "kernel" else "copy"
            self._charge(label, name, op.rank, op.device, op.start)
        elif len(op.work.group) == 1:
            self._charge("communication", name, op.rank, op.device, op.start)
        else:
            last = op.last_member
            self._charge("transfer", name, last.rank, last.device, last.start)
            if self.scope == "global":
                op = last
            else:
                self._charge("wait_for_rank", str(last.rank), op.rank, op.device, op.start)
        return self._activated(op, self._activator(op))

    def _activator(self, op: Operation) -> Prerequisite:
        if self.rule == "usual":
            return usual_activator(self.outcome, op)
        return op.activator() if self.rule == "finished" else op.binding()

    def _activated(self, op: Operation, need: Prerequisite) -> Operation | Activity | None:
        source = need.source
        if isinstance(source, Operation):
            self._charge("device_latency", op.work.name, op.rank, op.device, source.end)
            return source
        if op.start >= source.end:
            self._charge("launch_latency", op.work.name, op.rank, op.device, source.end)
            return source
        return self._call(source)

    def _call(self, call: Activity) -> Operation | Activity | None:
        """Charge a call, from where the walk stands back to its start; return what came before."""
        held_ns = max((op.end for op in call.held_by), default=call.start)
        holds = self.rule == "binding" and held_ns > call.start
        for label, start, _ in reversed(call.parts):
            self._charge(label, call.name, call.rank, -1, max(start, held_ns) if holds else start)
        if holds:
            return max(call.held_by, key=lambda op: op.end)
        return self._before(call)

    def _before(self, activity: Activity) -> Activity | None:
        if activity.index == 0:
            return None
        return self.outcome.threads[activity.rank][activity.thread][activity.index - 1]

    def _activity(self, activity: Activity) -> Operation | Activity | None:
        """Charge what a thread did, from its end; return what it did before, or waited for."""
        if activity.targets:
            target = max(activity.targets, key=lambda op: op.end)
            if self._waited(activity, target):
                self._charge("sync_latency", activity.name, activity.rank, -1, target.end)
                return target
        if activity.kind == "call":
            return self._call(activity)
        if activity.kind == "await" and activity.signaled is not None:
            self._charge("host_no_cuda", activity.text, activity.rank, -1, activity.signaled.start)
            return self._before(activity.signaled)
        label = "profiler_overhead" if activity.kind == "flush" else "host_no_cuda"
        self._charge(label, activity.text, activity.rank, -1, activity.start)
        return self._before(activity)

    def _waited(self, call: Activity, target: Operation) -> bool:
        if self.rule == "binding":
            return call.end > call.unwaited_end
        return target.end > call.start


def rungs(outcome: Outcome, rank: int, begin: int, end: int, device: int = 0) -> dict[str, int]:
    """Return the ns of a window in each state of a device; they add up to the window."""
    changes: list[tuple[int, int, int]] = []
    for op in outcome.of_device(rank, device):
        level = {"kernel": 0, "collective": 1}.get(op.work.kind, 2)
        changes += [(op.start, level, 1), (op.end, level, -1)]
    for thread in outcome.threads[rank]:
        for act in thread:
            if act.kind == "flush":
                changes += [(act.start, 3, 1), (act.end, 3, -1)]
    sums = dict.fromkeys(RUNGS, 0)
    active = [0, 0, 0, 0, 1]
    at = begin
    for time, level, change in sorted(changes):
        upto = min(max(time, begin), end)
        state = next(number for number, count in enumerate(active) if count > 0)
        sums[RUNGS[state]] += upto - at
        at = upto
        active[level] += change
    sums["idle"] += end - at
    return sums
