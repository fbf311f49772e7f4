"""One group of peers: who of them is slow or late, and by how much. Pure numpy."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.ranks.chance import (
    CHANCE,
    SMALL,
    FloatArray,
    Standing,
    others_beyond,
    standings,
)
from nsys_llm.analyses.ranks.lateness import Arrivals
from nsys_llm.analyses.ranks.peers import Gpu
from nsys_llm.numeric.intervals import IntArray

#: Least size of what is named, as a share; with few steps more. Ranks that wander (each step 0.9
#: alike to the one before, 1 % noise) were named by 1 % in 8.8, 11.0 and 3.3 % of jobs of 2, 3 and
#: 4 ranks at 10 steps, in 2.3, 6.3 and 1.5 % at 16; by 5 % in none. That loses a rank 2 % slower
#: at 12 steps, which was named in 42 to 96 %.
_LEAST: Final = 0.01
_LEAST_OF_FEW: Final = 0.05
_FEW: Final = 20
#: Each rank of a slow machine has this part of what the machine has beyond the other machines.
_ALIKE: Final = 0.5


@dataclass(frozen=True)
class Group:
    """What peers did in the steps that all have whole, and what the tests say of them.

    Attributes:
        gpus: Positions of the peers.
        hosts: Their machines.
        steps: Rows of their windows.
        compute_ns: Shape (peers, steps).
        more_ns: Likewise, beyond the median of the others; of a slow machine's ranks, of those of
            other machines.
        late_ns: Likewise, lateness, see `Arrivals.late_ns`; 0 where nothing is matched.
        held_ns: Likewise, time in which the profiler kept a GPU idle.
        slow_hosts: Machines that are named, by the kind of evidence that names them first.
        compute: The test of each peer by its compute time.
        late: By its lateness, in shares of a step; None where nothing is matched.
    """

    gpus: tuple[int, ...]
    hosts: tuple[str | None, ...]
    steps: IntArray
    compute_ns: IntArray
    more_ns: FloatArray
    late_ns: FloatArray
    held_ns: FloatArray
    slow_hosts: dict[str, Standing]
    compute: list[Standing]
    late: list[Standing] | None

    @classmethod
    def of(
        cls, gpus: Sequence[Gpu], members: Sequence[int], arrivals: Arrivals | None, alpha: float
    ) -> Group:
        """Measure and test some peers, with a chance for each of the two kinds of evidence."""
        works = [gpus[at].work for at in members]
        steps_n = min(len(work.whole) for work in works)
        whole = np.all([work.whole[:steps_n] for work in works], axis=0)
        whole &= np.all([work.compute_ns[:steps_n] > 0 for work in works], axis=0)
        if len({work.has_steps for work in works}) > 1:
            whole[:] = False
        steps = np.flatnonzero(whole)
        compute_ns = np.array([work.compute_ns[steps] for work in works])
        values = [np.log(np.maximum(compute_ns, 1))]
        late_ns = None if arrivals is None else arrivals.late_ns(members, steps)
        if late_ns is not None:
            lengths = [np.diff(work.window_ns[steps], axis=1)[:, 0] for work in works]
            values.append(late_ns / np.maximum(np.median(lengths, axis=0), 1.0))
        hosts = tuple(gpus[at].host for at in members)
        slow, tests = _tested(values, hosts, alpha)
        profiler_ns = np.array([work.profiler_ns[steps] for work in works])
        late_ns = np.zeros(compute_ns.shape) if late_ns is None else late_ns
        more_ns, late_ns, held_ns = (
            _beyond(some, hosts, slow) for some in (compute_ns, late_ns, profiler_ns)
        )
        measured = steps, compute_ns, more_ns, late_ns, held_ns
        late = tests[1] if len(tests) > 1 else None
        return cls(tuple(members), hosts, *measured, slow, tests[0], late)

    def alike(self, row: int) -> list[int]:
        """Return the rows of a slow machine's ranks, for one of them; of others their own."""
        host = self.hosts[row]
        return _rows_of(host, self.hosts) if host in self.slow_hosts else [row]


def sized_standings(values: FloatArray, alpha: float) -> list[Standing]:
    """Test peers, shape (peers, steps), at least two peers: SMALL is below the least size."""
    least = _LEAST if values.shape[1] >= _FEW else _LEAST_OF_FEW
    return [
        replace(item, reason=SMALL) if item.named and size < least else item
        for item, size in zip(standings(values, alpha), _sizes(values), strict=True)
    ]


def _sizes(values: FloatArray) -> FloatArray:
    """Return how far each lies beyond the median of the others, in the mean of steps."""
    return others_beyond(values).sum(axis=1) / max(values.shape[1], 1)


def _tested(
    values: Sequence[FloatArray], hosts: Sequence[str | None], alpha: float
) -> tuple[dict[str, Standing], list[list[Standing]]]:
    """Test machines first, where two or more have two or more peers each, then ranks.

    Args:
        values: Of each kind of evidence, shape (peers, steps).
        hosts: Machine of each peer.
    """
    rows_of = {host: _rows_of(host, hosts) for host in sorted(filter(None, set(hosts)))}
    rows_of = {host: rows for host, rows in rows_of.items() if len(rows) > 1}
    slow: dict[str, Standing] = {}
    if len(rows_of) > 1:
        alpha /= 2
        for some in values:
            means = np.array([some[rows].mean(axis=0) for rows in rows_of.values()])
            machines = zip(rows_of, sized_standings(means, alpha), _sizes(means), strict=True)
            for host, item, size in machines:
                each = _beyond_rest(some, rows_of[host]).mean(axis=1)
                # All ranks of a slow machine are slow, and neither one of them nor, against a
                # faster rank elsewhere, none.
                if item.named and (each >= _ALIKE * size).all():
                    slow.setdefault(host, item)
    left = [row for row, host in enumerate(hosts) if host not in slow]
    tests = []
    for some in values:
        every = [Standing(0.0, 0, CHANCE)] * len(some)
        if len(left) > 1:
            for row, item in zip(left, sized_standings(some[left], alpha), strict=True):
                every[row] = item
        tests.append(every)
    return slow, tests


def _rows_of(host: str | None, hosts: Sequence[str | None]) -> list[int]:
    return [row for row, other in enumerate(hosts) if other == host]


def _beyond(
    values: npt.NDArray[Any], hosts: Sequence[str | None], slow: Collection[str]
) -> FloatArray:
    result = others_beyond(values.astype(np.float64))
    for rows in (_rows_of(host, hosts) for host in slow):
        result[rows] = _beyond_rest(values, rows)
    return result


def _beyond_rest(values: npt.NDArray[Any], rows: Sequence[int]) -> FloatArray:
    """Return what some peers have beyond the median of all others, in each step."""
    return np.asarray(values[rows] - np.median(np.delete(values, rows, axis=0), axis=0))
