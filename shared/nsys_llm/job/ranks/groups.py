"""One group of peers: who of them is slow or late, and by how much. Pure numpy."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.job.ranks.chance import (
    CHANCE,
    SMALL,
    FloatArray,
    Standing,
    others_beyond,
    standings,
)
from nsys_llm.job.ranks.lateness import Arrivals
from nsys_llm.job.ranks.loads import Loads
from nsys_llm.job.ranks.peers import Gpu
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

#: Rows of peers.
_Rows = tuple[int, ...]


@dataclass(frozen=True)
class Group:
    """What peers did in the steps that all have whole, and what the tests say of them.

    Attributes:
        gpus: Positions of the peers.
        steps: Rows of their windows.
        compute_ns: Shape (peers, steps).
        more_ns: Likewise, beyond the median of the others; of a slow machine's ranks, of those of
            other machines.
        late_ns: Likewise, lateness, see `Arrivals.late_ns`; 0 where they do not meet.
        held_ns: Likewise, time in which the profiler kept a GPU idle.
        slow_machines: Of those that are named, by the rows of their peers, the evidence that names
            them first.
        compute: The test of each peer by its compute time.
        late: By its lateness, in shares of a step.
        meet: Whether any of their collectives are matched.
        loads: What they had to do.
    """

    gpus: tuple[int, ...]
    steps: IntArray
    compute_ns: IntArray
    more_ns: FloatArray
    late_ns: FloatArray
    held_ns: FloatArray
    slow_machines: dict[_Rows, Standing]
    compute: list[Standing]
    late: list[Standing]
    meet: bool
    loads: Loads

    @classmethod
    def of(
        cls, gpus: Sequence[Gpu], members: Sequence[int], arrivals: Arrivals | None, alpha: float
    ) -> Group:
        """Measure and test some peers, with a chance for each of the two kinds of evidence."""
        works = [gpus[at].work for at in members]
        steps_n = min(len(work.whole) for work in works)
        whole = [work.whole[:steps_n] & (work.compute_ns[:steps_n] > 0) for work in works]
        of_one_kind = len({work.has_steps for work in works}) == 1
        steps = np.flatnonzero(np.all(whole, axis=0) & of_one_kind)
        compute_ns = np.array([work.compute_ns[steps] for work in works])
        held_ns = np.array([work.profiler_ns[steps] for work in works])
        met_ns = None if arrivals is None else arrivals.late_ns(members, steps)
        late_ns = np.zeros(compute_ns.shape) if met_ns is None else met_ns
        lengths = [np.diff(work.window_ns[steps], axis=1)[:, 0] for work in works]
        values = np.log(compute_ns), late_ns / np.maximum(np.median(lengths, axis=0), 1.0)
        hosts = [gpus[at].rank.host for at in members]
        slow, (compute, late) = tested(values, hosts, alpha)
        more, behind, held = (_beyond(some, slow) for some in (compute_ns, late_ns, held_ns))
        measured = steps, compute_ns, more, behind, held
        loads = Loads.of(gpus, members, steps, compute_ns)
        return cls(tuple(members), *measured, slow, compute, late, met_ns is not None, loads)

    def machine(self, row: int) -> tuple[_Rows, Standing | None]:
        """Return the rows of a slow machine's ranks, for one of them, and why it is slow.

        Of another peer its row alone, and None.
        """
        return next((some for some in self.slow_machines.items() if row in some[0]), ((row,), None))


def sized_standings(values: FloatArray, alpha: float) -> list[Standing]:
    """Test peers, shape (peers, steps), at least two peers: SMALL is below the least size."""
    least = _LEAST if values.shape[1] >= _FEW else _LEAST_OF_FEW
    sizes = others_beyond(values).sum(axis=1) / max(values.shape[1], 1)
    return [
        replace(item, size=size, reason=SMALL if item.named and size < least else item.reason)
        for item, size in zip(standings(values, alpha), sizes.tolist(), strict=True)
    ]


def tested(
    values: Sequence[FloatArray], hosts: Sequence[str | None], alpha: float
) -> tuple[dict[_Rows, Standing], list[list[Standing]]]:
    """Test machines first, where two or more have two or more peers each, then ranks.

    Args:
        values: Of each kind of evidence, shape (peers, steps).
        hosts: Machine of each peer.

    Returns:
        Rows of the peers of slow machines, with the evidence that names them first; for each kind
        of evidence the test of each peer.
    """
    known = sorted(filter(None, set(hosts)))
    rows_of = [tuple(row for row, host in enumerate(hosts) if host == name) for name in known]
    machines = [rows for rows in rows_of if len(rows) > 1]
    slow: dict[_Rows, Standing] = {}
    if len(machines) > 1:
        alpha /= 2
        for some in values:
            means = np.array([some[list(rows)].mean(axis=0) for rows in machines])
            for rows, item in zip(machines, sized_standings(means, alpha), strict=True):
                # All ranks of a slow machine are slow, and neither one of them nor, against a
                # faster rank elsewhere, none.
                least = _ALIKE * item.size
                if item.named and (_beyond_rest(some, rows).mean(axis=1) >= least).all():
                    slow.setdefault(rows, item)
    left = sorted(set(range(len(hosts))).difference(*slow))
    tests = []
    for some in values:
        tests.append([Standing(0.0, 0, CHANCE)] * len(hosts))
        if len(left) > 1:
            for row, item in zip(left, sized_standings(some[left], alpha), strict=True):
                tests[-1][row] = item
    return slow, tests


def _beyond(values: npt.NDArray[Any], slow: Collection[_Rows]) -> FloatArray:
    result = others_beyond(values)
    for rows in slow:
        result[list(rows)] = _beyond_rest(values, rows)
    return result


def _beyond_rest(values: npt.NDArray[Any], rows: _Rows) -> FloatArray:
    """Return what some peers have beyond the median of all others, in each step."""
    return np.asarray(values[list(rows)] - np.median(np.delete(values, rows, axis=0), axis=0))
