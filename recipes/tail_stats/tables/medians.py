"""Each kernel and configuration over all ranks, and which of very many have rows of their own.

Some jobs launch hundreds of thousands of shapes a few times each. Nobody reads so many rows, and to
write their texts would take longer than to count their launches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.tails.kernels import KernelTails, RankTails
from nsys_llm.facts.tails.launches import config_text
from nsys_llm.numeric.grouping import distinct_codes, joined, positions, summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.longest import among_largest
from nsys_llm.numeric.tails import Beyond, beyond_medians, second_modes, twice_medians
from nsys_llm.report.columns import Columns, sorted_columns, taken
from nsys_llm.trace.identity import Rank
from nsys_llm.view.text import counted

RankParts = Sequence[tuple[Rank, RankTails]]

#: More configurations than this are limited.
MANY: Final = 10_000
#: Percentage of a rank's kernel time from which on a configuration has a row of its own then.
LEAST_PCT: Final = 0.01
#: So many with most time beyond the median have one, too, and so many with most time in outliers
#: on one device, which findings are about.
MOST_SLOW: Final = 1_000
#: Name of the row of all others.
REST: Final = "(other kernels)"
#: What that row has as sums, and what as false; anything else is null.
_SUMS: Final = (
    *("launches_n", "total_ns", "total_pct", "excess_ns", "outliers_n", "outlier_excess_ns"),
)
_FLAGS: Final = (
    *("communication", "graph_node", "outlier", "systematic", "hidden"),
    *("second_mode", "shape_mix"),
)


class Medians:
    """Each key over all ranks.

    Attributes:
        order: Around their percentiles.
        beyond: What launches take beyond it.
        modes: Which have a second mode, see `nsys_llm.numeric.tails.second_modes`.
        rows: Of each rank, the position of the key of each of its rows.
    """

    def __init__(self, kernels: KernelTails) -> None:
        self.keys, counts = kernels.durations.keys, kernels.durations.counts
        self.moments = counts.moments(len(self.keys))
        self.order = counts.order_statistics(len(self.keys))
        self.twice = twice_medians(self.order)
        self.beyond = beyond_medians(counts, self.twice, len(self.keys))
        self.modes = second_modes(counts, self.twice, len(self.keys))
        self.communication = np.array([bool(key[1]) for key in self.keys], dtype=bool)
        self.rows = {
            rank: tails.key
            if tails.keys == self.keys  # compares by identity first, which takes no time
            else positions(tails.keys, self.keys)[tails.key]
            for rank, tails in kernels.ranks.items()
        }

    def beyond_of(self, rank: Rank, tails: RankTails) -> Beyond:
        """Return what each row of a rank has beyond the medians over all ranks."""
        twice = self.twice[self.rows[rank.key]]
        return beyond_medians(tails.counts.widened(), twice, len(tails.key))

    def configs(self, code: IntArray) -> Columns:
        """Return name and configuration of some keys, in columns and as texts."""
        used, row = distinct_codes(code)
        keys = [self.keys[at] for at in used.tolist()]
        texts = [config_text(key) for key in keys]
        labels = [f"{key[0]} [{text}]" for key, text in zip(keys, texts, strict=True)]
        columns = {
            # Not lists: their rows are taken one by one.
            "name": np.array([key[0] for key in keys], dtype=object),
            "config": np.array(texts, dtype=object),
            "label": np.array(labels, dtype=object),
            "communication": self.communication[used],
            "graph_node": np.array([bool(key[2]) for key in keys], dtype=bool),
            "phase": np.array([key[3] or None for key in keys], dtype=object),
        }
        return taken(columns, row)


@dataclass(frozen=True)
class ShownKeys:
    """Which keys have rows, shape (keys,)."""

    medians: Medians
    shown: npt.NDArray[np.bool_]

    @classmethod
    def of(
        cls, medians: Medians, parts: RankParts, beyond: Sequence[Beyond], listed: IntArray
    ) -> ShownKeys:
        """Choose communication, what takes much time in all or in its tail, and what is listed.

        Args:
            beyond: Of each rank, what its rows have beyond the medians.
            listed: Keys of launches that other tables list.
        """
        if len(medians.keys) <= MANY:
            return cls(medians, np.ones(len(medians.keys), dtype=bool))
        tail = medians.beyond.twice
        shown = medians.communication | (among_largest(tail, MOST_SLOW) & (tail > 0))
        for rank, tails in parts:
            total_ns = summed(tails.key, tails.total_ns, len(tails.keys))
            large = 100 * total_ns >= LEAST_PCT * total_ns.sum()
            shown[medians.rows[rank.key][large[tails.key]]] = True
        key = joined([medians.rows[rank.key] for rank, _ in parts])
        slow = joined([some.outliers_twice for some in beyond])
        slow = np.where(medians.communication[key] | medians.modes[key], 0, slow)
        shown[key[among_largest(slow, MOST_SLOW) & (slow > 0)]] = True
        shown[listed] = True
        return cls(medians, shown)

    def rows(self, numbers: Columns, order: Sequence[str]) -> Columns:
        """Return the rows that are shown, sorted, with their texts.

        Args:
            numbers: Columns without texts; `key` has the key of each row.
        """
        rows = taken(numbers, np.flatnonzero(self.shown[numbers["key"]]))
        return sorted_columns({**rows, **self.medians.configs(rows["key"])}, *order)

    def with_rest(self, rows: Columns, numbers: Columns) -> Columns:
        """Return the rows of keys, and after them one that stands for those not shown, if any."""
        others_n = int((~self.shown).sum())
        if not others_n:
            return rows
        config = counted(others_n, "configuration")
        rest = {
            **{name: numbers[name][~self.shown].sum() for name in _SUMS},
            **dict.fromkeys(_FLAGS, False),
            "ranks_n": numbers["ranks_n"][~self.shown].max(),
            **{"name": REST, "config": config, "label": f"{REST} [{config}]"},
        }
        return {name: [*values, rest.get(name)] for name, values in rows.items()}
