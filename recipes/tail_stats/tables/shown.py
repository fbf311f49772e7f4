"""Which configurations have rows of their own: of very many only those that matter.

Some jobs launch hundreds of thousands of shapes a few times each. Nobody reads so many rows, and to
write their texts would take longer than to count their launches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns, sorted_columns, taken

from .medians import Medians, RankParts

#: More configurations than this are limited.
MANY: Final = 10_000
#: Percentage of a rank's kernel time from which on a configuration has a row of its own then.
LEAST_PCT: Final = 0.01
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


@dataclass(frozen=True)
class ShownKeys:
    """Keys that have rows, shape (keys,), and the texts of all."""

    medians: Medians
    shown: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, medians: Medians, parts: RankParts, listed: IntArray) -> ShownKeys:
        """Choose communication, what takes `LEAST_PCT` of any rank's time, and what is listed.

        Args:
            listed: Keys of launches that other tables list.
        """
        if len(medians.keys) <= MANY:
            return cls(medians, np.ones(len(medians.keys), dtype=bool))
        shown = medians.communication.copy()
        shown[listed] = True
        for _, tails in parts:
            large = 100 * tails.total_ns >= LEAST_PCT * tails.total_ns.sum()
            shown[medians.codes(tails.keys)[tails.key[large]]] = True
        return cls(medians, shown)

    def limited(
        self, columns: Columns, code: IntArray, place: Sequence[str], order: Sequence[str]
    ) -> Columns:
        """Return the rows that are shown, sorted; after them the others of each place as one.

        Args:
            columns: Without texts.
            code: Key of each row.
            place: Columns that name a place.
            order: See `sorted_columns`.
        """
        kept = self.shown[code]
        rows = {**taken(columns, np.flatnonzero(kept)), **self.medians.configs(code[kept])}
        rows = sorted_columns(rows, *order)
        if kept.all():
            return rows
        rest = _rest(columns, ~kept, place)
        rest |= dict.fromkeys(_FLAGS, [False] * len(rest["name"]))
        nothing = [None] * len(rest["name"])
        return {name: [*values, *rest.get(name, nothing)] for name, values in rows.items()}


def _rest(columns: Columns, chosen: npt.NDArray[np.bool_], place: Sequence[str]) -> dict[str, Any]:
    """Return a row for the chosen ones of each place."""
    names = (*place, *_SUMS)
    frame = pd.DataFrame({name: columns[name] for name in names})[chosen]
    groups = frame.groupby(list(place) or np.zeros(len(frame)))
    sums = groups[list(_SUMS)].sum().reset_index()
    texts = [f"{rows_n:,} configurations" for rows_n in groups.size()]
    return {
        **{name: sums[name].tolist() for name in names},
        "name": [REST] * len(texts),
        "config": texts,
        "label": [f"{REST} [{text}]" for text in texts],
        "ranks_n": [int(columns["ranks_n"][chosen].max())] if "ranks_n" in columns else [],
    }
