"""The price of a finding's change: its bound, its usual size, and the replay where that counts.

One place for all recipes. A recipe that is run by itself prices with the tables that it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from nsys_llm.job.ranks.verdicts import HOST_VERDICTS
from nsys_llm.report.causes import Change, ChangeKind
from nsys_llm.report.findings import Finding
from nsys_llm.report.price import FEW_STEPS, LIMITS_PCT, Basis, Price
from nsys_llm.report.prices.replays import Replays, row_by_gpu, rows_of
from nsys_llm.report.records import Record, Tables, grouped
from nsys_llm.report.unprofiled import Unprofiled, with_gone
from nsys_llm.report.walls import Gpu, Walls
from nsys_llm.taxonomy import wall_classes as wall
from nsys_llm.taxonomy.cuda_codes import LARGE_BYTES
from nsys_llm.taxonomy.kernel_levers import load_kernel_levers

#: Share of its time that a usual fix gains, where nothing more is known of the change: half of a
#: transfer, of a bubble, of the gaps between queued kernels, of copies that run beside the other
#: direction: they share the memory of the host.
_HALF: Final = 0.5
#: From this share of the span on, and if they take more than computation, copies bind the job.
BOUND_PCT: Final = 50.0


#: Directions of copies, and the column of `overlap` with the time in which only they run.
_WAYS: Final = {"HtoD": "exposed_htod_ns", "DtoH": "exposed_dtoh_ns"}


class _Size(NamedTuple):
    """What a change may gain on a GPU, ns; None where it is not known."""

    wall_classes: tuple[str, ...]
    bound_ns: float | None
    usual_ns: float | None
    #: Row of `what_if`; None where no replay is of such a change.
    replay: str | None = None
    #: Most of it where that is less than the bound, or there is none.
    clip_ns: float | None = None
    #: What of a verdict is measured, said where nothing else is known.
    measured_ns: float | None = None


#: Rows of `ceilings` that say in which steps a change gains: `change`, and `name`, else its own.
_ON_PATH: Final[Mapping[str, tuple[str, str]]] = {
    "host": ("class", "host_no_cuda"),
    "wait": ("wait", ""),
    "transfer": ("class", "transfer"),
    "copies": ("class", "copy"),
}


def bind(walls: Walls, gpu: Gpu) -> bool:
    """Tell whether copies bind a GPU: they fill half of its span, and more than it computes."""
    copies_ns = walls.class_ns(*gpu, wall.COPIES)
    most = 100.0 * copies_ns >= BOUND_PCT * max(walls.span_ns(*gpu), 1)
    return most and copies_ns > walls.class_ns(*gpu, wall.COMPUTE)


class _Prices:
    def __init__(self, tables: Tables) -> None:
        self._walls = walls = Walls(tables)
        self._replays = Replays(tables, walls)
        self._verdicts = row_by_gpu(tables, "rank_verdicts")
        self._exposed = row_by_gpu(tables, "overlap")
        self._memops = grouped(rows_of(tables, "memops"), "rank", "device_id")
        undivided_ns = (
            walls.detail_ns(gpu, wall.COMMUNICATION, wall.NOT_MATCHED, None)
            for gpu in walls.gpus
            if walls.class_ns(*gpu, wall.COMMUNICATION)
        )
        self._undivided_ns = min(undivided_ns, default=0)
        self._unprofiled = Unprofiled(tables)
        self._is_held = any(row["verdict"] == "profiler" for row in self._verdicts.values())

    def of(self, finding: Finding) -> tuple[Price | None, Price | None]:
        """Return the price of a finding's change without and under the profiler, see `Unprofiled`.

        None where it has none, or no GPU.
        """
        change = finding.change
        if change is None or finding.rank is None or finding.device_id is None:
            return finding.price, finding.price
        gpu = finding.rank, finding.device_id
        profiled = self._profiled(gpu, change)
        times = {name: self._walls.class_ns(*gpu, name) for name in profiled.wall_classes}
        return self._unprofiled.price(profiled, gpu, times), profiled

    def _profiled(self, gpu: Gpu, change: Change) -> Price:
        steps = self._replays.steps
        size, span_ns = self._sizes(gpu, change)[change.kind], self._walls.span_ns(*gpu)
        limits_ns = self._walls.class_ns(*gpu, *size.wall_classes), span_ns
        bound_ns = _within(size.bound_ns, *limits_ns)
        gain_ns, reason = self._replays.gain(change.kind, size.replay, span_ns, size.usual_ns)
        about_ns = size.usual_ns if gain_ns is None else gain_ns
        basis: Basis = "usual" if gain_ns is None else "replay"
        is_known = (about_ns, bound_ns) != (None, None)
        return Price(
            span_ns=span_ns,
            wall_classes=size.wall_classes,
            bound_ns=bound_ns,
            about_ns=_within(about_ns, bound_ns, size.clip_ns, *limits_ns),
            about_basis=None if about_ns is None else basis,
            replay_reason=reason,
            steps_n=steps.in_span(gpu, span_ns),
            step_unit=steps.unit or "step",
            tail_pct=change.worst_pct,
            is_rare=self._is_rare(gpu, change, about_ns or bound_ns or 0),
            measured_ns=None if is_known else _within(size.measured_ns, *limits_ns),
        )

    def _is_rare(self, gpu: Gpu, change: Change, gain_ns: float) -> bool:
        """Tell whether one to three steps have what a change is about, as far as tables tell."""
        late_n = self._verdicts.get(gpu, {}).get("late_steps_n") or 0
        if change.kind in ("rank", "host") and 0 < late_n <= FEW_STEPS:
            return True
        row, name = _ON_PATH.get(change.kind, ("", ""))
        return self._replays.steps.is_once(row, name or change.name, gain_ns)

    def _sizes(self, gpu: Gpu, change: Change) -> Mapping[ChangeKind, _Size]:
        """Return what a change would gain on a GPU, were it of each of the kinds."""
        walls, name, time_ns = self._walls, change.name, change.time_ns or 0.0
        sure_ns = time_ns if change.sure_ns is None else change.sure_ns
        kernels = _Size(change.wall_classes or (wall.COMPUTE,), time_ns, None)
        if lever := load_kernel_levers().get(name or ""):
            least_ns, usual_ns = (1.0 - lever.time_left) * time_ns, (1.0 - lever.left) * time_ns
            kernels = _Size((wall.COMPUTE,), least_ns, usual_ns, f"kernels:{name}")
        transfer_ns = walls.detail_ns(gpu, wall.COMMUNICATION, wall.TRANSFER)
        # Of what nobody divides as much is transfer as the GPU has that has least of it.
        half_ns = _HALF * (transfer_ns + self._undivided_ns)
        transfer_ns += walls.detail_ns(gpu, wall.COMMUNICATION, wall.NOT_MATCHED, None)
        transfer = _Size((wall.COMMUNICATION,), transfer_ns, half_ns, "transfer=0.5")
        if change.kind == "transfer" and change.time_ns is not None:
            # Of one operation; what surely overlaps is no matter of speed.
            transfer = transfer._replace(bound_ns=min(transfer_ns, time_ns))
            if change.sure_ns is not None:
                transfer = transfer._replace(usual_ns=sure_ns, replay=None)
        queued_ns = walls.detail_ns(gpu, wall.IDLE, "queued")
        caused_ns = walls.detail_ns(gpu, wall.IDLE, *(name or "").split(","))
        return {
            "kernels": kernels,
            "launches": _Size((wall.COMPUTE,), time_ns, sure_ns),
            "transfer": transfer,
            "copies": self._copies(gpu, name, change.sure_ns),
            **self._of_ranks(gpu, name),
            "host_part": _Size((wall.IDLE,), time_ns, sure_ns),
            "microbatches": _Size((wall.COMMUNICATION, wall.IDLE), time_ns, _HALF * sure_ns),
            "experts": _Size((wall.COMMUNICATION,), time_ns, sure_ns),
            "queued": _Size(
                (wall.IDLE,), queued_ns, {None: _HALF * queued_ns, "copies": queued_ns}.get(name)
            ),
            "idle": _Size((wall.IDLE,), caused_ns, caused_ns),
            "roofline": _Size(change.wall_classes, time_ns, sure_ns),
            "known": _Size(change.wall_classes, time_ns, sure_ns),
            "unknown": _Size(change.wall_classes, time_ns, None),
        }

    def _copies(self, gpu: Gpu, kind: str | None, sure_ns: float | None) -> _Size:
        """Return what pinned memory, both directions at once, and computation beside them gain.

        Each of what the ones before it leave. Where copies bind the job and these gain too little,
        what moving fewer bytes gains is not known. Slow ones gain `sure_ns` at their usual rate.
        """
        walls, exposed = self._walls, self._exposed.get(gpu)
        bound_ns, beside_ns = walls.class_ns(*gpu, wall.COPIES), walls.class_ns(*gpu, wall.COMPUTE)
        usual_ns = 0.0
        rows = grouped(self._memops.get(gpu, ()), "kind")
        if exposed is not None:
            if kind is not None:
                bound_ns = min(bound_ns, sum(row["exposed_ns"] for row in rows.get((kind,), ())))
            beside_ns = exposed["compute_only_ns"] + exposed["compute_communication_ns"]
        if exposed is not None and kind in (None, *_WAYS):
            left_ns = {}
            for way, column in _WAYS.items():
                saved_ns = exposed[column] * _pinned_part(rows.get((way,), ()))
                left_ns[way] = exposed[column] - saved_ns
                usual_ns += saved_ns * (kind in (None, way))
            usual_ns += _HALF * min(left_ns.values())
        usual_ns = min(usual_ns, bound_ns)
        usual_ns += min(bound_ns - usual_ns, beside_ns)
        least_ns = LIMITS_PCT["low"] / 100 * walls.span_ns(*gpu)
        is_known = kind is not None or usual_ns >= least_ns
        usual_ns = usual_ns if sure_ns is None else sure_ns
        # No fix of some copies gains more than a job without any, however little of a span that is.
        clip_ns, _ = self._replays.gain("copies", "copies=0", 0, None)
        return _Size((wall.COPIES,), bound_ns, usual_ns if is_known else None, clip_ns=clip_ns)

    def _of_ranks(self, gpu: Gpu, name: str | None) -> Mapping[ChangeKind, _Size]:
        """Return the sizes of changes for which other ranks wait, too.

        A rank gains what its judge says, at most all that it has beyond its peers, and where its
        host is late all that its GPU idles for it: the others may wait for less of that. A replay
        leaves more in place.
        """
        walls, row = self._walls, self._verdicts.get(gpu, {})
        judged_ns, is_late = row.get("about_ns"), row.get("verdict") in HOST_VERDICTS
        most_ns = row.get("bound_ns") if judged_ns is None else judged_ns
        idle_ns = walls.host_idle_ns(gpu)
        host_ns = idle_ns + (most_ns or 0) * is_late
        # Who launches earlier comes earlier, and is waited for less; not whom the profiler holds.
        waiting_ns = 0 if self._is_held else walls.detail_ns(gpu, wall.COMMUNICATION, wall.WAITING)
        share = max(row.get("more_pct") or 0.0, 0.0) / 100.0
        more_ns = walls.class_ns(*gpu, wall.COMPUTE) * share / (1.0 + share)
        less_ns = (
            walls.class_ns(*gpu, wall.COMPUTE) * max(-(row.get("more_pct") or 0.0), 0.0) / 100.0
        )
        steps_n = self._replays.steps.in_span(gpu, walls.span_ns(*gpu)) or 0.0
        late_ns = (row.get("late_ns") or 0.0) * steps_n
        bound_ns = most_ns
        if judged_ns is not None:
            bound_ns = max(judged_ns, more_ns, late_ns, idle_ns * is_late)
        text = None if most_ns is None else self._replays.of_rank(gpu[0])
        host, work = (wall.IDLE, wall.COMMUNICATION), (wall.COMPUTE, wall.COPIES, wall.IDLE)
        waits_ns = walls.class_ns(*gpu, wall.COMMUNICATION)
        # A GPU could do more in the time in which it waits for others.
        unused = (wall.COMMUNICATION,) if waits_ns else work
        return {
            "host": _Size(host, host_ns, idle_ns, "host=0"),
            "wait": _Size(host, None, None, f"wait:{name}", host_ns + waiting_ns),
            "rank": _Size(work, bound_ns, judged_ns, text, judged_ns, max(more_ns, late_ns)),
            "load": _Size(unused, most_ns, None, measured_ns=less_ns),
            "stages": _Size((wall.COMPUTE,), bound_ns or more_ns, judged_ns),
        }


def _pinned_part(rows: Sequence[Record]) -> float:
    """Return the share of the time of copies of one way that pinned memory saves, of large ones."""
    saved_ns = 0.0
    for row in rows:
        is_large = (row["size_bytes"] or 0) >= LARGE_BYTES * max(row["ops_n"], 1)
        if row["pageable"] and is_large and row["rate_gb_s"] and row["pinned_gb_s"]:
            saved_ns += row["exposed_ns"] * max(1 - row["rate_gb_s"] / row["pinned_gb_s"], 0.0)
    return saved_ns / max(sum(row["exposed_ns"] for row in rows), 1)


def _within(time_ns: float | None, *limits_ns: float | None) -> int | None:
    """Return a time as far as the limits that are known allow, at least 0."""
    if time_ns is None:
        return None
    return max(round(min(time_ns, *(ns for ns in limits_ns if ns is not None))), 0)


def priced(findings: Iterable[Finding], tables: Tables) -> list[Finding]:
    """Return findings with the prices of their changes; what was measured has its price."""
    every = list(findings)
    if not any(finding.change for finding in every):
        return every
    prices = _Prices(tables)
    both = [prices.of(finding) for finding in every]
    return with_gone(
        (replace(finding, price=price), profiled)
        for finding, (price, profiled) in zip(every, both, strict=True)
    )
