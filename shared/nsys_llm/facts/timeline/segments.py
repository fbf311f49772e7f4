"""Stretches of a lane joined where they are too short to be seen. Pure numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsys_llm.numeric.grouping import exact_sums
from nsys_llm.numeric.intervals import IntArray

#: The name of a stretch that has none.
NO_NAME = -1


@dataclass(frozen=True)
class Pieces:
    """Stretches of one lane, sorted and disjoint; arrays of shape (n,) unless said otherwise.

    Attributes:
        name: What ran, as a code; `NO_NAME` for none.
        parts: Shape (m, 3): piece, state, ns in it. Those of a piece add up to its length.
        row: On which of several rows each stands; those of different rows are not joined.
    """

    start_ns: IntArray
    end_ns: IntArray
    name: IntArray
    parts: IntArray
    row: IntArray


@dataclass(frozen=True)
class LaneSegments:
    """Joined stretches; arrays of shape (n,) unless said otherwise.

    Attributes:
        state: The state with most of its time; of equal ones the lower code.
        name: What ran longest in that state; `NO_NAME` for none.
        pieces_n: How many stretches were joined.
        time_ns: Shape (n, states), time of each state in it; adds up to its length.
    """

    start_ns: IntArray
    end_ns: IntArray
    state: IntArray
    name: IntArray
    pieces_n: IntArray
    time_ns: IntArray
    row: IntArray

    def __len__(self) -> int:
        return self.start_ns.size


def joined(pieces: Pieces, states_n: int, begin_ns: int, cell_ns: int) -> LaneSegments:
    """Join neighbors that are shorter than a cell and lie in the same one.

    A stretch as long as a cell stays as it is, so at most three segments come of a cell.

    Args:
        cell_ns: Length of a cell, 1 or more.
    """
    start_ns, end_ns = pieces.start_ns, pieces.end_ns
    long = end_ns - start_ns >= cell_ns
    cell = ((start_ns + end_ns) // 2 - begin_ns) // cell_ns
    new = np.ones(start_ns.size, dtype=bool)
    new[1:] = long[1:] | long[:-1] | (cell[1:] != cell[:-1]) | (start_ns[1:] != end_ns[:-1])
    new[1:] |= pieces.row[1:] != pieces.row[:-1]
    group = np.cumsum(new) - 1
    first = np.flatnonzero(new)
    groups_n = first.size
    owner, state, time_ns = pieces.parts.T
    sums = exact_sums(group[owner] * states_n + state, time_ns, groups_n * states_n)
    by_state = sums.reshape(groups_n, states_n)
    last = np.append(first, start_ns.size)[1:] - 1
    main = by_state.argmax(axis=1)
    return LaneSegments(
        start_ns=start_ns[first],
        end_ns=end_ns[last],
        state=main,
        name=_longest_names(pieces, group, main),
        pieces_n=last - first + 1,
        time_ns=by_state,
        row=pieces.row[first],
    )


def _longest_names(pieces: Pieces, group: IntArray, main: IntArray) -> IntArray:
    """Return the name of the piece that has most of the main state of each group."""
    owner, state, time_ns = pieces.parts.T
    rows = np.flatnonzero(state == main[group[owner]])
    rows = rows[np.lexsort((owner[rows], -time_ns[rows], group[owner[rows]]))]
    of_group = group[owner[rows]]
    best = rows[np.append(True, of_group[1:] != of_group[:-1])] if rows.size else rows
    name = np.full(main.size, NO_NAME, dtype=np.int64)
    name[group[owner[best]]] = pieces.name[owner[best]]
    return name
