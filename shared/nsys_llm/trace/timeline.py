"""The timeline of one rank as lines of slices and counters, for viewers that know neither. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from nsys_llm.numeric.intervals import IntArray

#: Columns of a track.
_OF_SLICES: Final = ("start_ns", "end_ns", "name", "kind", "link")


@dataclass(frozen=True)
class Track:
    """One line of a timeline; arrays of shape (slices,), int64, in any order.

    Attributes:
        start_ns: In the clock of the profile; slices may overlap.
        end_ns: Likewise, `end_ns >= start_ns`.
        kinds: What slices are, a word each: `kernel`, `call`, `step`.
        link: What a launch and its operations have in common, from 0; -1 for none.
        launches: Whether arrows leave these slices; else they arrive.
        details: Further values of each slice by name; NULL_INT and None are left out.
    """

    label: str
    start_ns: IntArray
    end_ns: IntArray
    texts: Sequence[str]
    name: IntArray
    kinds: Sequence[str]
    kind: IntArray
    link: IntArray
    launches: bool = False
    details: Mapping[str, Sequence[int | str | None] | IntArray] = field(default_factory=dict)

    @classmethod
    def plain(
        cls,
        label: str,
        kind: str,
        times_ns: IntArray,
        texts: Sequence[str],
        name: IntArray,
        details: Mapping[str, Sequence[int | str | None] | IntArray] | None = None,
    ) -> Track:
        """Return a line of slices of one kind, without arrows; `times_ns` has shape (slices, 2)."""
        kind_code, nothing = np.zeros_like(name), np.full_like(name, -1)
        start_ns, end_ns = times_ns[:, 0], times_ns[:, 1]
        return cls(
            label, start_ns, end_ns, texts, name, (kind,), kind_code, nothing, details=details or {}
        )

    def take(self, rows: IntArray) -> Track:
        """Return some slices."""
        columns = {name: getattr(self, name)[rows] for name in _OF_SLICES}
        details = {
            name: [values[row] for row in rows.tolist()] for name, values in self.details.items()
        }
        return replace(self, **columns, details=details)

    def __len__(self) -> int:
        return int(self.start_ns.size)


@dataclass(frozen=True)
class Counter:
    """A number that changes over time.

    Attributes:
        at_ns: Shape (changes,), ascending, in the clock of the profile.
        value: Shape (changes,), from then on.
    """

    label: str
    unit: str
    at_ns: IntArray
    value: IntArray


@dataclass(frozen=True)
class RankTimeline:
    """Lines and counters of one rank, in the order in which to show them.

    Attributes:
        tracks: Lines; those without a slice are left out.
        left_out_n: Operations, calls and ranges of the wanted windows that are not there, for
            want of room.
    """

    tracks: tuple[Track, ...]
    counters: tuple[Counter, ...]
    left_out_n: int = 0

    @property
    def events_n(self) -> int:
        """Slices and changes of counters."""
        return sum(map(len, self.tracks)) + sum(counter.at_ns.size for counter in self.counters)
