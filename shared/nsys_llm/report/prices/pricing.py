"""The price of a finding's change: its bound, its usual size, and the replay where that counts.

One place for all recipes. A recipe that is run by itself prices with the tables that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from nsys_llm.analyses.ranks.verdicts import HOST_VERDICTS
from nsys_llm.report.changes import Change
from nsys_llm.report.findings import PERFORMANCE, Finding
from nsys_llm.report.price import Basis, Price
from nsys_llm.report.prices.copies import Copies
from nsys_llm.report.prices.replays import Replays
from nsys_llm.report.prices.steps import SpanSteps
from nsys_llm.report.records import Tables, records
from nsys_llm.report.walls import Gpu, Walls
from nsys_llm.taxonomy.kernel_levers import load_kernel_levers
from nsys_llm.taxonomy.wall_classes import (
    COMMUNICATION,
    COMPUTE,
    COPIES,
    IDLE,
    NOT_MATCHED,
    TRANSFER,
    WAITING,
)

#: Share of its time that a usual fix gains, where nothing more is known of the change: half of a
#: transfer, of a bubble, of the gaps between queued kernels.
_HALF: Final = 0.5
#: Changes of a time that the finding knows: its wall classes, if the change does not name them, and
#: which part a usual fix gains.
_OF_KNOWN_TIME: Final[Mapping[str, tuple[tuple[str, ...], float | None]]] = {
    "launches": ((COMPUTE,), 1.0),
    "host_part": ((IDLE,), 1.0),
    "microbatches": ((COMMUNICATION, IDLE), _HALF),
    "experts": ((COMMUNICATION,), 1.0),
    "roofline": ((), 1.0),
    "unknown": ((), None),
}
#: Classes that a rank as fast as its peers has less of.
_OF_RANKS: Final = (COMPUTE, COPIES, IDLE)


@dataclass(frozen=True)
class _Size:
    """What a change may gain on a GPU, ns; None where it is not known."""

    wall_classes: tuple[str, ...]
    bound_ns: float | None
    usual_ns: float | None
    #: Most of a replay, where that is less than the bound, or there is none.
    clip_ns: float | None = None


class Prices:
    """Prices changes by the tables of a run."""

    def __init__(self, tables: Tables) -> None:
        self._walls = Walls(tables)
        self._replays = Replays(tables, self._walls)
        self._steps = SpanSteps(tables)
        self._copies = Copies(tables, self._walls)
        verdicts = records(tables["rank_verdicts"]) if "rank_verdicts" in tables else []
        self._verdicts = {(row["rank"], row["device_id"]): row for row in verdicts}

    def of(self, finding: Finding) -> Price | None:
        """Return the price of a finding's change; None where it has none, or no GPU."""
        change = finding.change
        if change is None or finding.rank is None or finding.device_id is None:
            return finding.price
        gpu = finding.rank, finding.device_id
        span_ns = self._walls.span_ns(*gpu)
        size = _SIZES[change.kind](self, gpu, change)
        limit_ns = min(self._walls.class_ns(*gpu, *size.wall_classes), span_ns)
        bound_ns = None if size.bound_ns is None else _between(size.bound_ns, limit_ns)
        most_ns = limit_ns if bound_ns is None else bound_ns
        if size.clip_ns is not None:
            most_ns = _between(size.clip_ns, most_ns)
        about_ns, basis, reason = self._about(gpu, change, size, span_ns)
        return Price(
            span_ns=span_ns,
            wall_classes=size.wall_classes,
            bound_ns=bound_ns,
            about_ns=None if about_ns is None else _between(about_ns, most_ns),
            about_basis=basis,
            replay_reason=reason,
            steps_n=self._steps.in_span(gpu, span_ns),
            step_unit=self._steps.unit or "step",
            tail_pct=change.worst_pct,
        )

    def _about(
        self, gpu: Gpu, change: Change, size: _Size, span_ns: int
    ) -> tuple[float | None, Basis | None, str | None]:
        """Return what a usual fix gains, what that rests on, and why its replay does not count."""
        replayed = self._replays.of(change, gpu[0])
        usual: tuple[float | None, Basis | None] = (
            (None, None) if size.usual_ns is None else (size.usual_ns, "usual")
        )
        if replayed is None:
            return *usual, None
        step_ns, reason = replayed
        gain_ns = step_ns * self._steps.replayed_n
        if reason is None and not self._steps.are_span(span_ns):
            reason = "not_replayed"
        if change.kind == "rank" and reason is None:
            if size.usual_ns is None:
                return None, None, None
            if 2 * gain_ns < size.usual_ns:
                reason = "contradicted"
        return (gain_ns, "replay", None) if reason is None else (*usual, reason)

    def _kernels(self, gpu: Gpu, change: Change) -> _Size:
        time_ns, levers = change.time_ns or 0.0, load_kernel_levers()
        if change.name is None or change.name not in levers:
            return _Size((COMPUTE,), time_ns, None)
        lever = levers[change.name]
        least, usual = 1.0 - lever.time_left, 1.0 - lever.left
        return _Size((COMPUTE,), least * time_ns, usual * time_ns)

    def _transfer(self, gpu: Gpu, change: Change) -> _Size:
        """Half of the transfer, and half of what nobody divides on the GPU with least of it."""
        walls = self._walls
        transfer_ns = walls.detail_ns(gpu, COMMUNICATION, TRANSFER)
        undivided = {
            one: walls.detail_ns(one, COMMUNICATION, NOT_MATCHED, None) for one in walls.gpus
        }
        some = [ns for one, ns in undivided.items() if walls.class_ns(*one, COMMUNICATION)]
        usual_ns = _HALF * (transfer_ns + min(some, default=0))
        return _Size((COMMUNICATION,), transfer_ns + undivided.get(gpu, 0), usual_ns)

    def _copy(self, gpu: Gpu, change: Change) -> _Size:
        sizes = self._copies.sizes(gpu, change.name)
        # No fix of some copies gains more than a job without any.
        step_ns, reason = self._replays.row("copies=0", change)
        return _Size((COPIES,), *sizes, None if reason else step_ns * self._steps.replayed_n)

    def _host(self, gpu: Gpu, change: Change) -> _Size:
        """Idle time by host causes, and what others wait for this rank's host."""
        idle_ns = self._walls.host_idle_ns(gpu)
        return _Size((IDLE, COMMUNICATION), idle_ns + self._waited_ns(gpu), idle_ns)

    def _waited_ns(self, gpu: Gpu) -> int:
        row = self._verdicts.get(gpu, {})
        return int(row["about_ns"] or 0) if row.get("verdict") in HOST_VERDICTS else 0

    def _wait(self, gpu: Gpu, change: Change) -> _Size:
        # Who launches earlier comes earlier, and is waited for less; not whom the profiler holds.
        held = any(row["verdict"] == "profiler" for row in self._verdicts.values())
        waiting_ns = 0 if held else self._walls.detail_ns(gpu, COMMUNICATION, WAITING)
        clip_ns = self._walls.host_idle_ns(gpu) + self._waited_ns(gpu) + waiting_ns
        return _Size((IDLE, COMMUNICATION), None, None, clip_ns)

    def _rank(self, gpu: Gpu, change: Change) -> _Size:
        """What the judge of ranks says, and at most all that the rank has beyond its peers.

        Where its host is late, all that its GPU idles for the host.

        The others may wait for less of that. A replay leaves more in place.
        """
        row = self._verdicts.get(gpu)
        if row is None or row["about_ns"] is None:
            return _Size(_OF_RANKS, None, None)
        about_ns, more_ns = float(row["about_ns"]), self._more_ns(gpu)
        steps_n = self._steps.in_span(gpu, self._walls.span_ns(*gpu)) or 0.0
        late_ns = (row["late_ns"] or 0.0) * steps_n
        idle_ns = self._walls.host_idle_ns(gpu) if row["verdict"] in HOST_VERDICTS else 0
        return _Size(_OF_RANKS, max(about_ns, more_ns, late_ns, idle_ns), about_ns, about_ns)

    def _stages(self, gpu: Gpu, change: Change) -> _Size:
        """What the judge of ranks says, by the schedule of the pipeline where that is known."""
        size = self._rank(gpu, change)
        return _Size((COMPUTE,), size.bound_ns or self._more_ns(gpu), size.usual_ns)

    def _more_ns(self, gpu: Gpu) -> float:
        """Return for how long a GPU computes beyond its peers, or a stage beyond the mean one."""
        share = (self._verdicts[gpu]["more_pct"] or 0.0) / 100.0
        return self._walls.class_ns(*gpu, COMPUTE) * share / (1.0 + share)

    def _known_time(self, gpu: Gpu, change: Change) -> _Size:
        time_ns, (wall_classes, share) = change.time_ns or 0.0, _OF_KNOWN_TIME[change.kind]
        sure_ns = time_ns if change.sure_ns is None else change.sure_ns
        usual_ns = None if share is None else share * sure_ns
        return _Size(change.wall_classes or wall_classes, time_ns, usual_ns)

    def _queued(self, gpu: Gpu, change: Change) -> _Size:
        time_ns = self._walls.detail_ns(gpu, IDLE, "queued")
        return _Size((IDLE,), time_ns, None if change.name else _HALF * time_ns)

    def _idle(self, gpu: Gpu, change: Change) -> _Size:
        time_ns = self._walls.detail_ns(gpu, IDLE, *(change.name or "").split(","))
        return _Size((IDLE,), time_ns, time_ns)


_SIZES: Final[Mapping[str, Callable[[Prices, Gpu, Change], _Size]]] = {
    "kernels": Prices._kernels,
    "transfer": Prices._transfer,
    "copies": Prices._copy,
    "host": Prices._host,
    "wait": Prices._wait,
    "rank": Prices._rank,
    "stages": Prices._stages,
    "queued": Prices._queued,
    "idle": Prices._idle,
    **dict.fromkeys(_OF_KNOWN_TIME, Prices._known_time),
}


def _between(time_ns: float, most_ns: float) -> int:
    return max(min(round(time_ns), round(most_ns)), 0)


def priced(findings: Iterable[Finding], tables: Tables) -> list[Finding]:
    """Return findings with the prices of their changes; what was measured has its price."""
    every = list(findings)
    if not any(finding.change for finding in every):
        return every
    prices = Prices(tables)
    return [
        replace(finding, price=prices.of(finding)) if finding.kind == PERFORMANCE else finding
        for finding in every
    ]
