"""One group of peers: who is slow or late, by how much, and who has less or more to do. Pure.

What names of steps tell of a batch decides on loads; where they tell nothing, how long peers
compute, or the same launches with smaller grids. What varies from step to step is nobody's load.
"""

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
    of_others,
    others_beyond,
    standings,
)
from nsys_llm.job.ranks.lateness import Arrivals
from nsys_llm.job.ranks.peers import Gpu
from nsys_llm.numeric.intervals import IntArray

#: Less to do is below this part of what the median of the others has, in so many of the steps, and
#: in so many steps at least: where names tell of batches, and where they do not.
_LESS: Final = 0.7
_CONSTANT: Final = 0.9
_LEAST_NAMED: Final = 5
_LEAST_STEPS: Final = 20
#: Smaller grids have less than this part of the blocks, each kernel by its time, in as many
#: launches of each within this share, and less than this part of the time.
_FEWER_BLOCKS: Final = 0.9
_SAME_LAUNCHES: Final = 0.01
_SHORTER: Final = 0.95

_Mask = npt.NDArray[np.bool_]
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
class Loads:
    """What peers had to do.

    Attributes:
        requests: Shape (2, peers, steps), in the batch of each step, and the median of the others;
            None where names do not tell.
        less: Shape (peers, steps), where one had less to do, and computed less.
        under: Shape (peers,), who constantly has less.
        over: Who constantly has more, by the batches.
    """

    requests: npt.NDArray[np.float64] | None
    less: _Mask
    under: _Mask
    over: _Mask

    @classmethod
    def of(
        cls, gpus: Sequence[Gpu], members: Sequence[int], steps: IntArray, compute_ns: IntArray
    ) -> Loads:
        """Compare some peers.

        Args:
            steps: Rows of their windows that are compared.
            compute_ns: Shape (peers, steps).
        """
        works = [gpus[at].work for at in members]
        told = [work.requests[steps] for work in works if work.requests is not None]
        usual_ns = of_others(compute_ns)
        if len(told) == len(works) and min(some.min(initial=0) for some in told) >= 0:
            requests = np.array(told)
            others = of_others(requests)
            # Where most have nothing, so has the median of the others.
            empty = (requests == 0) & (requests.max(axis=0) > 0)
            less = (requests < _LESS * others) & (compute_ns < usual_ns)
            less |= empty & (compute_ns < compute_ns.max(axis=0))
            more = (_LESS * requests > others) & (compute_ns > usual_ns)
            under, over = (_constant(some, _LEAST_NAMED) for some in (less, more))
            if 2 * under.sum() >= len(works):
                # Half have less than the others: only who has nothing is the exception.
                under &= _constant(empty, _LEAST_NAMED)
                under &= not under.all()
                over &= not under.any()
            return cls(np.array([requests, others]), less, under, over)
        less = compute_ns < _LESS * usual_ns
        small = _small_grids([gpus[at] for at in members])
        less[small] = (compute_ns < _SHORTER * usual_ns)[small]
        facts = {gpu.rank.facts and gpu.rank.facts.gpus[:1] for gpu in (gpus[at] for at in members)}
        meet = all(gpus[at].wall.communication_ns for at in members)
        under = _constant(less, _LEAST_STEPS) & meet & (len(facts) == 1)
        under &= 2 * under.sum() < len(works)
        return cls(None, less, under, np.zeros_like(under))


def _constant(some: _Mask, least_n: int) -> _Mask:
    """Return for which peers something holds in nearly all of the steps."""
    if some.shape[1] < least_n:
        return np.zeros(len(some), dtype=bool)
    return np.asarray(some.mean(axis=1) >= _CONSTANT)


def _small_grids(gpus: Sequence[Gpu]) -> _Mask:
    """Return who launches as many kernels as the others, of fewer blocks."""
    if not all(gpu.work.has_shapes for gpu in gpus):
        return np.zeros(len(gpus), dtype=bool)
    names = sorted(set[str]().union(*(gpu.kernels for gpu in gpus)))
    own_n, time_ns = (
        np.array([[gpu.kernels.get(name, (0, 0))[at] for name in names] for gpu in gpus])
        for at in (0, 1)
    )
    every = [gpu.blocks for gpu in gpus]
    blocks = np.array([[some.get(name, 0) for name in names] for some in every])
    others_n, others_ns, others = of_others(own_n), of_others(time_ns), of_others(blocks)
    same = (np.abs(own_n - others_n) <= _SAME_LAUNCHES * others_n).all(axis=1)
    part = np.minimum(blocks / np.maximum(others, 1), 1)
    left = (part * others_ns).sum(axis=1) / np.maximum(others_ns.sum(axis=1), 1)
    return np.asarray(same & (left < _FEWER_BLOCKS))


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
