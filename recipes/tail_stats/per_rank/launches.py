"""Kernels as launches of a name in a configuration: grid, block and dynamic shared memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.grouping import distinct_codes, distinct_rows
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.communication import is_communication
from nsys_llm.trace.coded_names import coded_names, text_of
from nsys_llm.trace.device_ops import shown_name_ids
from nsys_llm.trace.rank_trace import RankTrace

#: Columns of a configuration (design section 5).
CONFIG: Final = (
    "grid_x",
    "grid_y",
    "grid_z",
    "block_x",
    "block_y",
    "block_z",
    "dynamic_shared_bytes",
)

#: Shown name, whether it is communication (0 or 1), and the values of `CONFIG`; NULL_INT for what
#: the report does not have.
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Launches:
    """Kernels of one rank in order of their starts, and what each of them launches.

    Attributes:
        rows: The kernels.
        keys: Distinct keys, sorted.
        key: Shape (kernels,), position in `keys`.
    """

    rows: Table
    keys: tuple[Key, ...]
    key: IntArray

    @cached_property
    def duration_ns(self) -> IntArray:
        """Duration of each."""
        return np.asarray(self.rows["end_ns"] - self.rows["start_ns"])

    def name_codes(self) -> IntArray:
        """Return a code of the name of each key, shape (keys,)."""
        names = [key[0] for key in self.keys]
        place = {name: index for index, name in enumerate(dict.fromkeys(names))}
        return np.array([place[name] for name in names], dtype=np.int64)

    def communicates(self) -> npt.NDArray[np.bool_]:
        """Return which keys are communication, shape (keys,)."""
        return np.array([bool(key[1]) for key in self.keys], dtype=bool)


def coded_launches(trace: RankTrace, options: Mapping[str, Any]) -> tuple[Launches, Launches]:
    """Return the kernels that the filters leave, and all of the rank; keys mean the same in both.

    Args:
        trace: One rank.
        options: base and mangled choose the names.
    """
    every = _by_start(trace.unfiltered["kernels"])
    if trace.tables["kernels"] is trace.unfiltered["kernels"]:
        whole = _coded(every, trace.strings, options)
        return whole, whole
    kept = _by_start(trace.tables["kernels"])
    columns = {name: np.concatenate((every[name], kept[name])) for name in every.columns}
    both = _coded(Table(columns), trace.strings, options)
    kept_key, every_key = both.key[len(every) :], both.key[: len(every)]
    return Launches(kept, both.keys, kept_key), Launches(every, both.keys, every_key)


def key_codes(keys: Sequence[Key], among: Mapping[Key, int]) -> IntArray:
    """Return the position of each key among others."""
    return np.array([among[key] for key in keys], dtype=np.int64)


def config_text(key: Key) -> str:
    """Return the configuration of a key as people write it: `132x1x1 / 384x1x1 / 1024 B`.

    The dynamic shared memory is left out where there is none.
    """
    sizes = ["?" if value == NULL_INT else str(value) for value in key[2:]]
    shared = "" if sizes[6] in ("0", "?") else f" / {sizes[6]} B"
    return f"{'x'.join(sizes[:3])} / {'x'.join(sizes[3:6])}{shared}"


def _by_start(kernels: Table) -> Table:
    starts = kernels["start_ns"]
    if (starts[1:] >= starts[:-1]).all():
        return kernels
    return kernels.take(np.argsort(starts, kind="stable"))


def _coded(kernels: Table, strings: Mapping[int, str], options: Mapping[str, Any]) -> Launches:
    names, name = coded_names(shown_name_ids(kernels, options), strings)
    used, full = distinct_codes(kernels["demangled_name_id"])
    reported = [is_communication(text_of(key, strings)) for key in used.tolist()]
    talks = np.array(reported, dtype=np.int64)[full]
    columns = [name, talks, *(kernels[column] for column in CONFIG)]
    first, key = distinct_rows(columns)
    values = zip(*(column[first].tolist() for column in columns), strict=True)
    return Launches(kernels, tuple((names[code], *rest) for code, *rest in values), key)
