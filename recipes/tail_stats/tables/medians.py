"""Each kernel and configuration over all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from nsys_llm.facts.tails.kernels import KernelTails, RankTails
from nsys_llm.facts.tails.launches import Key, config_text
from nsys_llm.numeric.grouping import distinct_codes
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.tails import Beyond, beyond_medians, second_modes, twice_medians
from nsys_llm.report.columns import Columns, taken
from nsys_llm.trace.identity import Rank

RankParts = Sequence[tuple[Rank, RankTails]]


class Medians:
    """Each key over all ranks.

    Attributes:
        keys: See `launches`.
        order: Around their percentiles.
        beyond: What launches take beyond it.
        modes: Which have a second mode, see `nsys_llm.numeric.tails.second_modes`.
        communication: Which move data between GPUs.
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
            rank: self._codes(tails.keys)[tails.key] for rank, tails in kernels.ranks.items()
        }

    @cached_property
    def _place(self) -> dict[Key, int]:
        return {key: index for index, key in enumerate(self.keys)}

    def _codes(self, keys: Sequence[Key]) -> IntArray:
        if keys == self.keys:  # compares by identity first, which takes no time
            return np.arange(len(keys))
        return np.array([self._place[key] for key in keys], dtype=np.int64)

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
