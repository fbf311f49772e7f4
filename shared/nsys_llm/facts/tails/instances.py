"""Single launches that may turn out to be outliers, with what the trace shows around each.

Whether a launch is an outlier is known only when the medians over all ranks are. So every rank
sends the longest launches of each configuration, as many as the list may have at all: a launch that
is among the top by its time beyond the median has at most so many longer ones of its configuration,
on its own rank and on all. Merging keeps as many over all ranks, for the same reason. Where that is
more than `MOST_CANDIDATES` (hundreds of thousands of configurations), a rank sends those that take
longest beyond its own medians.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.grouping import joined, positions
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.longest import longest_of_each
from nsys_llm.trace.identity import RankKey

#: Launches that a rank sends at most, but for equals of the last.
MOST_CANDIDATES: Final = 100_000

#: Integer columns. `owner` is a position in `Instances.ranks`, `key` one in the keys of the facts
#: (see `launches`), `ncu_skip_n` as in `NcuLaunches`; the others are those of the table
#: `outliers`. NULL_INT where that has null.
NUMBERS: Final = (
    "owner",
    "key",
    "duration_ns",
    "start_ns",
    "device_id",
    "stream_id",
    "launch",
    "config_launch",
    "before_first_step_end",
    "kernels_ns",
    "communication_ns",
    "copies_ns",
    "beside_ns",
    "ncu_skip_n",
)
TEXTS: Final = ("range", "beside", "function")

#: What orders equally long launches of one configuration, on one rank and over all.
_TIES: Final = ("owner", "start_ns", "device_id", "stream_id", "launch", "config_launch")


@dataclass(frozen=True)
class Instances:
    """Launches of many ranks; columns of equal length, by configuration and longest first.

    Attributes:
        most: How many of each configuration are kept.
        ranks: Those of `owner`, sorted.
        texts: By name, see `TEXTS`; None for null.
    """

    most: int = 0
    ranks: tuple[RankKey, ...] = ()
    numbers: Mapping[str, IntArray] = field(
        default_factory=lambda: {name: np.empty(0, dtype=np.int64) for name in NUMBERS}
    )
    texts: Mapping[str, npt.NDArray[Any]] = field(
        default_factory=lambda: {name: np.empty(0, dtype=object) for name in TEXTS}
    )

    def __len__(self) -> int:
        return self.numbers["key"].size

    def take(self, rows: npt.NDArray[Any] | slice) -> Instances:
        """Return some of the launches."""
        return Instances(
            self.most,
            self.ranks,
            {name: values[rows] for name, values in self.numbers.items()},
            {name: values[rows] for name, values in self.texts.items()},
        )

    def longest(self) -> Instances:
        """Return the launches that are to be kept, in order."""
        ties = [self.numbers[name] for name in _TIES]
        return self.take(
            longest_of_each(self.numbers["key"], self.numbers["duration_ns"], ties, self.most)
        )


def merged_instances(parts: Sequence[Instances], codes: Sequence[IntArray]) -> Instances:
    """Join the launches of distinct ranks and keep the longest of each configuration.

    Args:
        parts: At least one.
        codes: For each part, what its keys are called now.
    """
    every = {rank for part in parts for rank in part.ranks}
    ranks = tuple(sorted(every, key=lambda rank: (rank.path, rank.global_pid)))
    numbers = [
        {
            **part.numbers,
            "owner": positions(part.ranks, ranks)[part.numbers["owner"]],
            "key": code[part.numbers["key"]],
        }
        for part, code in zip(parts, codes, strict=True)
    ]
    together = Instances(
        max(part.most for part in parts),
        ranks,
        {name: joined([some[name] for some in numbers]) for name in NUMBERS},
        {name: joined([part.texts[name] for part in parts]) for name in TEXTS},
    )
    return together.longest()
