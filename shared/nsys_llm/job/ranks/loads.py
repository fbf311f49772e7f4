"""Who constantly has less or more to do than its peers. Pure numpy.

What names of steps tell of a batch decides; where they tell nothing, how long peers compute, or the
same launches with smaller grids. What varies from step to step is nobody's load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.job.ranks.chance import of_others
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
            members: Positions of the peers.
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
