"""What walks of the job charge, added up: by walk and charge, by rank, and behind waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from nsys_llm.critical_path.job.walk import Trail
from nsys_llm.critical_path.path.blocks import HOST, Charge
from nsys_llm.critical_path.path.classes import LAUNCH_LATENCY, SYNC_LATENCY, UNKNOWN
from nsys_llm.critical_path.path.forest import PathForest
from nsys_llm.critical_path.path.ops import Bools
from nsys_llm.numeric.grouping import distinct_rows, exact_sums, positions
from nsys_llm.numeric.intervals import IntArray

#: So many stretches at a time stay small beside the facts.
_BLOCK: Final = 1 << 19

_Columns = tuple[Any, ...]


@dataclass(frozen=True)
class ChargedPieces:
    """Some of what walks charged, in the order in which they went; arrays of shape (pieces,).

    Attributes:
        rank: Position of the rank; `NO_RANK` for none.
        start_ns: Begin, on the common clock.
        doubtful: Whether an edge before it was inferred.
        idle_ns: How much of it no device of the rank ran anything: of host time its part of the
            segment's, of all else the whole piece.
    """

    walk: IntArray
    rank: IntArray
    charge: IntArray
    start_ns: IntArray
    end_ns: IntArray
    doubtful: Bools
    idle_ns: IntArray

    @cached_property
    def time_ns(self) -> IntArray:
        """Length of each piece."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True)
class Sums:
    """Time by something and walk, and the part of it to which no inferred edge led.

    Attributes:
        time_ns: Shape (things, walks).
    """

    time_ns: IntArray
    certain_ns: IntArray

    @classmethod
    def empty(cls, things_n: int, walks_n: int) -> Sums:
        """Return sums of nothing."""
        return cls(*np.zeros((2, things_n, walks_n), dtype=np.int64))

    def add(self, thing: IntArray, pieces: ChargedPieces, time_ns: IntArray) -> None:
        """Add pieces up, in place.

        Args:
            thing: Shape (pieces,); -1 for none.
            time_ns: Shape (pieces,), what of them.
        """
        if not thing.size:
            return
        # Walks come in order, so that those of a few pieces are few.
        low, high = int(pieces.walk.min()), int(pieces.walk.max()) + 1
        things_n = self.time_ns.shape[0] + 1
        code = (thing + 1) * (high - low) + (pieces.walk - low)
        for sums, chosen in ((self.time_ns, slice(None)), (self.certain_ns, ~pieces.doubtful)):
            # Doubles hold these integers exactly: a capture is below 2^53 ns.
            added = np.bincount(
                code[chosen], weights=time_ns[chosen], minlength=things_n * (high - low)
            )
            sums[:, low:high] += added.astype(np.int64).reshape(things_n, high - low)[1:]

    def by_key(self, keys: Sequence[Any]) -> dict[Any, tuple[IntArray, IntArray]]:
        """Return time by walk of each key, and the certain part; `keys` are of things, or None."""
        sums: dict[Any, tuple[IntArray, IntArray]] = {}
        groups: dict[Any, list[int]] = {}
        for thing, key in enumerate(keys):
            if key is not None:
                groups.setdefault(key, []).append(thing)
        for key in sorted(groups, key=str):
            rows = groups[key]
            sums[key] = self.time_ns[rows].sum(axis=0), self.certain_ns[rows].sum(axis=0)
        return sums


@dataclass(frozen=True)
class Charged:
    """What walks charged.

    Attributes:
        on_host: Shape (rows, 5), host time of the last walk: position of the rank, of the wait that
            it lies behind (-1 for none), code of the charge, ns, and ns in which devices were idle.
        waits: API functions that waited for the GPU.
        behind_waits: Sums of host time between what they waited for and the next operation in which
            the devices were idle: it is on the path because of the wait.
    """

    charges: tuple[Charge, ...]
    by_charge: Sums
    by_rank: Sums
    on_host: IntArray
    waits: tuple[str, ...]
    behind_waits: Sums
    trail: Trail
    forests: tuple[PathForest, ...]

    def pieces_of(self, walk: int) -> ChargedPieces:
        """Return the pieces of one walk, those of 0 ns left out."""
        visits, others = self.trail.visits, self.trail.others
        rows, more = np.flatnonzero(visits[:, 0] == walk), others[others[:, 1] == walk]
        pieces = _pieces(self.forests, _codes(self.forests, self.trail), visits, rows, more)
        kept = pieces.time_ns > 0
        return ChargedPieces(*(values[kept] for values in list(vars(pieces).values())[:7]))


def add_up(trail: Trail, forests: Sequence[PathForest], walks_n: int) -> Charged:
    """Add up what walks charge."""
    charges = _charges(forests, trail)
    codes = _codes(forests, trail)
    by_charge, by_rank = (Sums.empty(n, walks_n) for n in (len(charges), len(forests)))
    names = sorted({charge.detail for charge in charges if charge.kind == SYNC_LATENCY})
    behind = Sums.empty(len(names), walks_n)
    on_host = list[IntArray]()
    visits, others = trail.visits, trail.others
    for rows, more in _blocks(forests, visits, others):
        pieces = _pieces(forests, codes, visits, rows, more)
        by_charge.add(pieces.charge, pieces, pieces.time_ns)
        by_rank.add(pieces.rank, pieces, pieces.time_ns)
        wait = _waits_before(pieces, charges, names)
        behind.add(wait, pieces, pieces.idle_ns)
        on_host.append(_on_host(pieces, wait, charges, walks_n - 1))
    return Charged(
        charges=charges,
        by_charge=by_charge,
        by_rank=by_rank,
        on_host=_summed(np.concatenate(on_host)),
        waits=tuple(names),
        behind_waits=behind,
        trail=trail,
        forests=tuple(forests),
    )


def _charges(forests: Sequence[PathForest], trail: Trail) -> tuple[Charge, ...]:
    charges = {charge for forest in forests for charge in forest.charges} | set(trail.charges)
    return tuple(sorted(charges))


def _codes(forests: Sequence[PathForest], trail: Trail) -> list[IntArray]:
    """Return the code of each charge of each forest, and last those of the trail."""
    place = {charge: code for code, charge in enumerate(_charges(forests, trail))}
    lists = [forest.charges for forest in forests] + [trail.charges]
    return [np.array([place[item] for item in some], dtype=np.int64) for some in lists]


def _blocks(
    forests: Sequence[PathForest], visits: IntArray, others: IntArray
) -> Iterator[tuple[IntArray, IntArray]]:
    """Cut visits into blocks; host time behind one wait stays together."""
    sizes = np.empty(len(visits), dtype=np.int64)
    of_device = np.empty(len(visits), dtype=bool)
    for rank in np.unique(visits[:, 1]).tolist():
        rows, forest = np.flatnonzero(visits[:, 1] == rank), forests[rank]
        segment = visits[rows, 2]
        sizes[rows] = np.diff(forest.first)[segment]
        devices = np.array([charge.device_id for charge in forest.charges], dtype=np.int64)
        of_device[rows] = devices[forest.code[forest.first[segment]]] != HOST
    starts = np.flatnonzero(of_device)
    reached = np.cumsum(sizes) - sizes
    low, every = 0, np.arange(len(visits))
    while True:
        limit = (int(reached[low]) if low < len(visits) else 0) + _BLOCK
        after = np.searchsorted(reached[starts], limit, side="right")
        high = int(starts[after]) if after < starts.size else len(visits)
        high = max(high, low + 1) if low < len(visits) else len(visits)
        last = high >= len(visits)
        more = others[(others[:, 0] >= low) & ((others[:, 0] < high) | last)]
        yield every[low:high], more
        if last:
            return
        low = high


def _pieces(
    forests: Sequence[PathForest],
    codes: Sequence[IntArray],
    visits: IntArray,
    rows: IntArray,
    others: IntArray,
) -> ChargedPieces:
    """Return the stretches of some visits, and what belongs to none, in order."""
    parts = list[_Columns]()
    for rank in np.unique(visits[rows, 1]).tolist():
        rank_visits = rows[visits[rows, 1] == rank]
        parts.append(_of_rank(forests[rank], codes[rank], rank_visits, visits[rank_visits]))
    if len(others):
        # Before the visit that came next.
        order, before = others[:, 0], np.full(len(others), -1)
        charge = codes[-1][others[:, 3]]
        start, end, doubt = others[:, 4:].T
        columns = others[:, 1], others[:, 2], charge, start, end, doubt != 0, end - start
        parts.append((order, before, *columns))
    if not parts:
        none = np.empty(0, dtype=np.int64)
        return ChargedPieces(none, none, none, none, none, none.astype(bool), none)
    if len(parts) == 1:
        return ChargedPieces(*parts[0][2:])
    joined: list[Any] = [np.concatenate(column) for column in zip(*parts, strict=True)]
    in_order = np.lexsort((joined[1], joined[0]))
    return ChargedPieces(*(column[in_order] for column in joined[2:]))


def _of_rank(forest: PathForest, codes: IntArray, order: IntArray, visits: IntArray) -> _Columns:
    """Return the stretches of visits of one rank: order, place in it, and the columns of pieces."""
    walk, rank, segment, high, low, back, doubt = visits.T
    sizes = np.diff(forest.first)[segment]
    owner = np.repeat(np.arange(sizes.size), sizes)
    nth = np.arange(owner.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    at = forest.first[segment][owner] + nth
    end = np.where(nth == 0, forest.top_ns[segment][owner], forest.begin_ns[at - 1])
    low_ns, upper = low[owner], np.maximum(high, low)[owner]
    begin = np.clip(forest.begin_ns[at], low_ns, upper)
    end = np.clip(end, begin, upper)
    # The end of a wait is kept even where the clocks leave it no time: it ends what it held back.
    waits = np.array([charge.kind == SYNC_LATENCY for charge in forest.charges], dtype=bool)
    kept = (end > begin) | (waits[forest.code[at]] & (end > low_ns))
    owner, nth, at, begin, end = (item[kept] for item in (owner, nth, at, begin, end))
    idle_ns = _idle_ns(forest, segment[owner], at, end - begin)
    return (
        order[owner],
        nth,
        walk[owner],
        rank[owner],
        codes[forest.code[at]],
        begin - back[owner],
        end - back[owner],
        (doubt != 0)[owner] | forest.doubtful[at],
        idle_ns,
    )


def _idle_ns(forest: PathForest, segment: IntArray, at: IntArray, time_ns: IntArray) -> IntArray:
    devices = np.array([charge.device_id for charge in forest.charges], dtype=np.int64)
    length_ns = np.maximum(forest.top_ns - forest.begin_ns[forest.first[1:] - 1], 1)
    part = (forest.idle_ns / length_ns)[segment]
    return np.where(devices[forest.code[at]] == HOST, np.rint(time_ns * part), time_ns).astype(
        np.int64
    )


def _on_host(
    pieces: ChargedPieces, wait: IntArray, charges: Sequence[Charge], walk: int
) -> IntArray:
    """Return the rows of `Charged.on_host` of some pieces of a walk."""
    kept = (pieces.walk == walk) & (pieces.rank >= 0) & _of_host(charges)[pieces.charge]
    columns = pieces.rank, wait, pieces.charge, pieces.time_ns, pieces.idle_ns
    return _summed(np.column_stack([column[kept] for column in columns]))


def _summed(rows: IntArray) -> IntArray:
    first, code = distinct_rows(tuple(rows[:, :3].T))
    sums = [exact_sums(code, rows[:, column], first.size) for column in (3, 4)]
    return np.column_stack((rows[first, :3], *sums))


def _of_host(charges: Sequence[Charge]) -> Bools:
    """Return which charges are time of a host, and of its way to the GPU."""
    of_host = [
        charge.kind != UNKNOWN and (charge.device_id == HOST or charge.kind == LAUNCH_LATENCY)
        for charge in charges
    ]
    return np.array(of_host, dtype=bool)


def _waits_before(
    pieces: ChargedPieces, charges: Sequence[Charge], names: Sequence[str]
) -> IntArray:
    """Return behind which wait each piece lies, -1 for none, shape (pieces,)."""
    waits = np.array([charge.kind == SYNC_LATENCY for charge in charges], dtype=bool)
    on_host = _of_host(charges)[pieces.charge]
    ends = waits[pieces.charge]
    # A stretch ends where the device takes over, where a wait ended it, and with its walk.
    changes = np.ones(on_host.size, dtype=bool)
    changes[1:] = (on_host[1:] != on_host[:-1]) | ends[:-1] | (np.diff(pieces.walk) != 0)
    group = np.cumsum(changes) - 1
    of_charge = positions((charge.detail for charge in charges), names)
    of_group = np.full(int(group[-1]) + 1 if group.size else 0, -1, dtype=np.int64)
    at = np.flatnonzero(ends)
    of_group[group[at]] = of_charge[pieces.charge[at]]
    return of_group[group]
