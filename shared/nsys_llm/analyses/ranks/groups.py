"""One group of peers: who of them is slow or late, and by how much. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from nsys_llm.analyses.ranks.chance import (
    CHANCE,
    FEW_STEPS,
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
#: Each rank of a slow machine has this part of what its mean has beyond the others.
_ALIKE: Final = 0.5
_UNTESTED: Final = Standing(0.0, 0, FEW_STEPS)


@dataclass(frozen=True)
class Measured:
    """What the peers of one group did in the steps that all have whole.

    Attributes:
        gpus: Positions of the peers.
        steps: Rows of their windows.
        compute_ns: Shape (peers, steps).
        profiler_ns: Likewise, time in which the profiler kept a GPU idle.
        late_ns: Likewise, see `Arrivals.late_ns`; None where nothing is matched.
        step_ns: Shape (steps,), median length of their windows.
    """

    gpus: tuple[int, ...]
    steps: IntArray
    compute_ns: IntArray
    profiler_ns: IntArray
    late_ns: FloatArray | None
    step_ns: FloatArray

    @classmethod
    def of(cls, gpus: Sequence[Gpu], members: Sequence[int], arrivals: Arrivals | None) -> Measured:
        """Measure some peers."""
        works = [gpus[at].work for at in members]
        steps_n = min(len(work.whole) for work in works)
        whole = np.all([work.whole[:steps_n] for work in works], axis=0)
        whole &= np.all([work.compute_ns[:steps_n] > 0 for work in works], axis=0)
        if len({work.has_steps for work in works}) > 1:
            whole[:] = False
        steps = np.flatnonzero(whole)
        lengths = np.array([np.diff(work.window_ns[steps], axis=1)[:, 0] for work in works])
        return cls(
            tuple(members),
            steps,
            np.array([work.compute_ns[steps] for work in works]),
            np.array([work.profiler_ns[steps] for work in works]),
            None if arrivals is None else arrivals.late_ns(members, steps),
            np.median(lengths, axis=0),
        )

    @cached_property
    def beyond(self) -> tuple[FloatArray, FloatArray | None]:
        """Compute time and lateness of each beyond the median of the others."""
        late_ns = None if self.late_ns is None else others_beyond(self.late_ns)
        return others_beyond(self.compute_ns.astype(np.float64)), late_ns


@dataclass(frozen=True)
class Side:
    """One peer on one kind of evidence.

    Attributes:
        standing: What the test says, and SMALL below the least size.
        size: Mean over steps of its value beyond the median of the others: of the logarithm of its
            compute time, or the share of a step that it is late.
    """

    standing: Standing
    size: float

    @property
    def named(self) -> bool:
        """Whether it stands out."""
        return not self.standing.reason


def sides_of(values: FloatArray, alpha: float) -> list[Side]:
    """Test peers; shape (peers, steps), at least two peers."""
    steps_n = values.shape[1]
    least = _LEAST if steps_n >= _FEW else _LEAST_OF_FEW
    sides = []
    found = standings(values, alpha) if steps_n else [_UNTESTED] * len(values)
    beyond = others_beyond(values)
    for row, standing in enumerate(found):
        size = float(beyond[row].mean()) if steps_n else 0.0
        if not standing.reason and size < least:
            standing = replace(standing, reason=SMALL)
        sides.append(Side(standing, size))
    return sides


@dataclass(frozen=True)
class GroupTest:
    """The tests of one group; lists in the order of its peers.

    Attributes:
        compute: Of compute time.
        late: Of lateness; None where nothing is matched.
        slow_hosts: Machines that are named, with the evidence that did: "compute" or "late".
    """

    compute: list[Side]
    late: list[Side] | None
    slow_hosts: dict[str, Side]


def group_test(measured: Measured, hosts: Sequence[str | None], alpha: float) -> GroupTest:
    """Test machines first, where two or more have two or more peers each, then ranks.

    Args:
        measured: The peers.
        hosts: Machine of each.
        alpha: For each of the two kinds of evidence.
    """
    values = [np.log(np.maximum(measured.compute_ns, 1))]
    if measured.late_ns is not None:
        values.append(measured.late_ns / np.maximum(measured.step_ns, 1.0))
    rows_of = {
        host: [row for row, other in enumerate(hosts) if other == host]
        for host in sorted({host for host in hosts if host is not None})
    }
    rows_of = {host: rows for host, rows in rows_of.items() if len(rows) > 1}
    slow: dict[str, Side] = {}
    if len(rows_of) > 1:
        alpha /= 2
        for some in values:
            means = np.array([some[rows].mean(axis=0) for rows in rows_of.values()])
            for host, side in zip(rows_of, sides_of(means, alpha), strict=True):
                if side.named and _all_of(some, rows_of[host], side):
                    slow.setdefault(host, side)
    left = [row for row, host in enumerate(hosts) if host not in slow]
    sides = []
    for some in values:
        every = [Side(Standing(0.0, 0, CHANCE), 0.0)] * len(some)
        if len(left) > 1:
            for row, side in zip(left, sides_of(some[left], alpha), strict=True):
                every[row] = side
        sides.append(every)
    return GroupTest(sides[0], sides[1] if len(sides) > 1 else None, slow)


def _all_of(values: FloatArray, rows: Sequence[int], side: Side) -> bool:
    """Return whether all ranks of a slow machine are slow, and not one of them."""
    others = np.median(np.delete(values, rows, axis=0), axis=0)
    return bool(((values[rows] - others).mean(axis=1) >= _ALIKE * side.size).all())
