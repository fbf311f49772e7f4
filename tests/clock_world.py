"""Ranks on nodes whose clocks differ and drift, in communicators; the true waits are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from nsys_llm.facts.lanes import LaneRows
from nsys_llm.job.collectives.matched import (
    MatchedCollectives,
    communicator,
    match_collectives,
)
from nsys_llm.profile.capture import CaptureFacts
from nsys_llm.trace.identity import Rank, RankKey

KERNEL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
EPOCH_NS = 1_760_000_000_000_000_000


@dataclass(frozen=True)
class Communicators:
    """Groups that all meet on one stream, `each_n` times a step."""

    stream: int
    groups: Sequence[Sequence[int]]
    each_n: int = 1
    kernel: str = KERNEL


@dataclass
class ClockWorld:
    """What each rank ran, in true time: (rank, stream) -> (start, end), shape (collectives,)."""

    ranks_n: int
    sets: Sequence[Communicators]
    start_ns: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)
    end_ns: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)
    kept: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)

    @classmethod
    def run(
        cls,
        ranks_n: int,
        sets: Sequence[Communicators],
        *,
        steps: int,
        compute_ns: float,
        rng: np.random.Generator,
        scatter: float = 0.1,
    ) -> ClockWorld:
        """Let all ranks compute for about `compute_ns` before each collective, and then meet."""
        world = cls(ranks_n, sets)
        times: dict[tuple[int, int], list[np.ndarray]] = {}
        free = np.zeros(ranks_n)
        pace = 1 + 0.02 * rng.random(ranks_n)
        for _ in range(steps):
            for communicators in sets:
                for _ in range(communicators.each_n):
                    free = free + compute_ns * pace * (1 + scatter * rng.exponential(1, ranks_n))
                    start, end = free.copy(), free.copy()
                    for group in communicators.groups:
                        members = list(group)
                        moved_ns = 20_000 * (1 + 0.1 * rng.random())
                        end[members] = free[members].max() + moved_ns
                    end += rng.integers(0, 1_500, ranks_n)
                    times.setdefault((communicators.stream, 0), []).append(np.rint(start))
                    times.setdefault((communicators.stream, 1), []).append(np.rint(end))
                    free = end + 2_000
        for communicators in sets:
            start, end = (
                np.array(times[communicators.stream, at]).astype(np.int64) for at in (0, 1)
            )
            for rank in sorted({rank for group in communicators.groups for rank in group}):
                key = rank, communicators.stream
                world.start_ns[key], world.end_ns[key] = start[:, rank], end[:, rank]
                world.kept[key] = np.ones(len(start), dtype=bool)
        return world

    def cut(self, rank: int, from_ns: float, to_ns: float) -> None:
        """Leave out what a rank runs outside of a time."""
        for key, start in self.start_ns.items():
            if key[0] == rank:
                self.kept[key] = (start >= from_ns) & (self.end_ns[key] <= to_ns)

    @property
    def length_ns(self) -> int:
        return max(int(end.max()) for end in self.end_ns.values())

    def waits(self) -> dict[tuple[str, int], int]:
        """Return the true waiting of each communicator, in collectives that all its ranks show."""
        wait_of = {}
        for communicators in self.sets:
            for group in communicators.groups:
                keys = [(rank, communicators.stream) for rank in group]
                shown = np.logical_and.reduce([self.kept[key] for key in keys])
                start = np.array([self.start_ns[key][shown] for key in keys])
                name = ",".join(str(rank) for rank in group), communicators.stream
                wait_of[name] = int((start.max(axis=0) - start).sum())
        return wait_of

    def matched(
        self,
        *,
        offset_ns: Sequence[int] | None = None,
        ppm: Sequence[float] | None = None,
        hosts: Sequence[str] | None = None,
        streams: Mapping[tuple[int, int], int] | None = None,
        slews: Sequence[Sequence[tuple[float, float]]] | None = None,
    ) -> MatchedCollectives:
        """Show it to the product, one report a rank, each with a clock of its own.

        Args:
            slews: Of each rank, by how many ppm its clock runs faster from when on.
        """
        offset = [0] * self.ranks_n if offset_ns is None else offset_ns
        rates = slews or [[(0, rate)] for rate in ppm or [0.0] * self.ranks_n]
        kernels = {communicators.stream: communicators.kernel for communicators in self.sets}
        ranks, parts = [], {}
        for rank in range(self.ranks_n):
            key = RankKey(f"/in/rank{rank}.sqlite", 1 << 24)
            host = f"node{rank}" if hosts is None else hosts[rank]
            facts = CaptureFacts(host=host, utc_epoch_ns=EPOCH_NS)
            ranks.append(Rank(key, rank, f"rank{rank}", "file_name", facts))
            parts[key] = tuple(
                LaneRows(
                    kernels[stream],
                    "all_reduce",
                    0,
                    (streams or {}).get((rank, stream), stream),
                    _seen(self.start_ns[rank, stream][kept], offset[rank], rates[rank]),
                    _seen(self.end_ns[rank, stream][kept], offset[rank], rates[rank]),
                    0,
                    0,
                )
                for (owner, stream), kept in sorted(self.kept.items())
                if owner == rank and kept.any()
            )
        return match_collectives(parts, ranks, {"disable_alignment": False})


def matched_waits(collectives: MatchedCollectives) -> dict[tuple[str, int], int]:
    """Return the waiting that the product tells, by ranks and stream."""
    waits: dict[tuple[str, int], int] = {}
    for sequence in collectives.sequences:
        ranks = [collectives.devices[owner].rank.number for owner in sequence.owners]
        key = ",".join(str(rank) for rank in ranks), sequence.matched.lanes[0].stream
        waits[key] = waits.get(key, 0) + int(sequence.waits.wait_ns[sequence.waits.met].sum())
    return waits


def names(collectives: MatchedCollectives) -> list[str]:
    return [
        communicator(collectives.devices, sequence.owners) for sequence in collectives.sequences
    ]


def _seen(true_ns: np.ndarray, offset_ns: int, rates: Sequence[tuple[float, float]]) -> np.ndarray:
    from_ns, ppm = np.array(rates).T
    spans = np.clip(true_ns[:, None] - from_ns, 0, np.append(np.diff(from_ns), np.inf))
    return true_ns + offset_ns + np.rint(spans @ (ppm * 1e-6)).astype(np.int64)
