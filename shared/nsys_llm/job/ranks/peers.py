"""Which GPUs should do the same. Pure.

Devices are compared by place in their ranks. Two that take part in matched collectives together,
directly or through others, do the same operations of a model; experts may have other shapes. Two
that have nothing in common have to launch the same kernels with the same grids and blocks: servers
with other requests do not, and are compared where the names of their steps tell of batches. Stages
of a pipeline may launch the same kernels, and are no peers, nor are ranks of groups that have
nothing in common.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from nsys_llm.numeric.grouping import distinct, exact_sums
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.categories import RuleSet
from nsys_llm.taxonomy.communication import computes, is_communication, operation_of
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.wall import DeviceWall, DeviceWork

#: Share of the compute time of its rank's busiest device from which a device has peers; ours. A
#: context that PyTorch opens by mistake has a few fills.
_FAIR_SHARE: Final = 0.1
#: Peers have this part of their launches in common.
COMMON: Final = 0.9

_Mix = Mapping[Any, float]


def device_places(rank: IntArray, device_id: IntArray, compute_ns: IntArray) -> IntArray:
    """Return for each device its place in its rank, from 0: devices are compared by place.

    Devices of one process have different work as a rule, so each is compared with those at the same
    place of other ranks, in order of ids. A device with next to none of its rank's work takes no
    place from the others: it has one after all of them, that no other device has. A single rank has
    nothing but its devices to compare: all have place 0.

    Args:
        rank: Shape (devices,), which rank each is of.
        device_id: Shape (devices,), CUDA device ids.
        compute_ns: Shape (devices,), time of kernels other than communication.
    """
    devices_n = rank.size
    place = np.zeros(devices_n, dtype=np.int64)
    if np.unique(rank).size < 2:
        return place
    ranks, code = np.unique(rank, return_inverse=True)
    most_ns = np.zeros(ranks.size, dtype=np.int64)
    np.maximum.at(most_ns, code, compute_ns)
    working = compute_ns >= _FAIR_SHARE * most_ns[code]
    order = np.lexsort((device_id, ~working, code))
    first = np.searchsorted(code[order], code[order])
    place[order] = np.arange(devices_n) - first
    return np.where(working, place, devices_n + np.arange(devices_n))


@dataclass(frozen=True)
class Gpu:
    """One device of one rank, and the rules that tell the operations of its kernels."""

    rank: Rank
    wall: DeviceWall
    work: DeviceWork
    rules: RuleSet

    @property
    def key(self) -> tuple[Any, int]:
        """Its rank and device."""
        return self.rank.key, self.wall.device_id

    @property
    def blocks(self) -> Mapping[str, int]:
        """Blocks of the grids of kernels that compute, by name."""
        rows, names = self.work.launches, self.work.names
        sums = exact_sums(rows[:, 0], rows[:, 1:4].prod(axis=1) * rows[:, 7], len(names)).tolist()
        return {name: n for name, n in zip(names, sums, strict=True) if name in self.kernels}

    @property
    def steps_n(self) -> float:
        """Whole steps in its span, and the parts of those that a filter or the capture cuts."""
        start_ns, end_ns = self.work.window_ns.T
        edges_ns = self.wall.span_start_ns or 0, self.wall.span_end_ns or 0
        whole = self.work.whole
        if not whole.any():
            return 0.0
        inside_ns = np.diff(np.clip(self.work.window_ns, *edges_ns), axis=1)[:, 0]
        cut = ~whole & (inside_ns < end_ns - start_ns)
        parts = inside_ns[cut] / float(self.work.whole_ns.mean())
        return float(whole.sum() + np.minimum(parts, 1).sum())

    @cached_property
    def _names(self) -> Mapping[str, IntArray]:
        names, rows = self.work.names, self.work.launches
        sums = np.array([exact_sums(rows[:, 0], some, len(names)) for some in rows[:, 7:9].T])
        return {names[code]: sums[:, code] for code in distinct(rows[:, 0]).tolist()}

    @cached_property
    def kernels(self) -> Mapping[str, IntArray]:
        """Launches and their time by name, arrays of shape (2,), of kernels that compute."""
        return {name: some for name, some in self._names.items() if computes(name)}

    @cached_property
    def operations(self) -> Mapping[str, int]:
        """Launches by operation; a name without one by itself."""
        return self._counted(self.kernels, lambda name: self.rules.classify(name).operation or name)

    @cached_property
    def communication(self) -> Mapping[str, int]:
        """Launches by operation of communication."""
        return self._counted(filter(is_communication, self._names), operation_of)

    def _counted(self, names: Iterable[str], key: Callable[[str], str]) -> Mapping[str, int]:
        counts = Counter[str]()
        for name in names:
            counts[key(name)] += int(self._names[name][0])
        return counts

    @cached_property
    def shapes(self) -> _Mix:
        """Share of its launches by name, grid and block."""
        rows = [(self.work.names[row[0]], *row[1:8]) for row in self.work.launches.tolist()]
        counts = {row[:7]: row[7] for row in rows if computes(row[0])}
        whole = max(sum(counts.values()), 1)
        return {key: n / whole for key, n in counts.items()}


def in_common(mix: _Mix, other: _Mix) -> float:
    """Return what two mixes have in common, 0 to 1; of numbers of launches how many."""
    if not mix and not other:  # whole graphs alone
        return 1.0
    return sum(min(amount, other.get(key, 0)) for key, amount in mix.items())


def peer_groups(
    gpus: Sequence[Gpu], apart: Sequence[int | None], joined: Sequence[int] | None
) -> list[list[int]]:
    """Return the positions of GPUs that are peers, groups in the order of their first.

    Args:
        apart: Of each, a number that those share which may be peers: one stage's, or None.
        joined: Of each, a number that those share which have matched collectives together; None
            where nothing is matched: then those that communicate equally often do.
    """
    numbers = {key: at for at, key in enumerate({gpu.rank.key: None for gpu in gpus})}
    devices = [(numbers[gpu.rank.key], gpu.wall.device_id, gpu.wall.compute_ns) for gpu in gpus]
    places = device_places(*np.array(devices, dtype=np.int64).reshape(-1, 3).T).tolist()
    groups: list[list[int]] = []
    for at, gpu in enumerate(gpus):
        for group in groups:
            first = group[0]
            near = (places[first], apart[first]) == (places[at], apart[at])
            near = near and gpus[first].rank.group == gpu.rank.group
            together = None if joined is None else joined[first] == joined[at]
            if near and _alike(gpus[first], gpu, together):
                group.append(at)
                break
        else:
            groups.append([at])
    return groups


def _alike(gpu: Gpu, other: Gpu, together: bool | None) -> bool:
    if together is None:
        most_n = max(sum(it.communication.values()) for it in (gpu, other))
        met_n = in_common(gpu.communication, other.communication)
        together = most_n > 0 and met_n >= COMMON * most_n
    if together:
        # One that launches more of some has more work: what the other does is what they share.
        less_n, more_n = sorted(sum(it.operations.values()) for it in (gpu, other))
        shared_n = in_common(gpu.operations, other.operations)
        return shared_n >= COMMON * less_n if less_n else not more_n
    works = gpu.work, other.work
    if all(work.requests is not None and (work.requests >= 0).all() for work in works):
        # Engines of one model, whose grids are as large as their batches.
        return _share(gpu.kernels, other.kernels) >= COMMON
    known = all(work.has_shapes for work in works)
    return known and in_common(gpu.shapes, other.shapes) >= COMMON


def _share(some: Mapping[str, IntArray], others: Mapping[str, IntArray]) -> float:
    """Return what two mixes of kernels have in common by launches, each of its own, 0 to 1."""
    every_n = [sum(int(row[0]) for row in mix.values()) or 1 for mix in (some, others)]
    mixes = [
        {name: row[0] / whole_n for name, row in mix.items()}
        for mix, whole_n in zip((some, others), every_n, strict=True)
    ]
    return in_common(*mixes)
