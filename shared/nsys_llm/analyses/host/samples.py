"""Which software ran where a thread was sampled, by the file of the innermost frame. Pure numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.grouping import begins_group, distinct_codes
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.host_modules import UNRESOLVED, module_class, module_classes
from nsys_llm.trace.coded_names import text_of
from nsys_llm.trace.rank_trace import RankTrace

#: Frames of these classes are the user's program: the first of them in a stack is told.
_PROGRAM: Final = ("framework", "other")
#: What frames are told of.
LEAF: Final = "leaf"
PROGRAM: Final = "program"


@dataclass(frozen=True)
class Stacks:
    """The stacks of some samples; arrays of shape (frames,), innermost frame of each first.

    Attributes:
        sample: Position of the sample, ascending; samples without a frame have none.
        first: Whether it is the innermost frame that is recorded of its sample.
        module: Class of its file, position in `module_classes`.
        symbol_id: Id of the function's name.
        module_id: Id of the file's name.
    """

    sample: IntArray
    first: npt.NDArray[np.bool_]
    module: IntArray
    symbol_id: IntArray
    module_id: IntArray

    @classmethod
    def of(cls, trace: RankTrace, rows: IntArray) -> Stacks:
        """Return the stacks of samples by their rows in the table, shape (samples,)."""
        frames, samples = trace.tables.get("sample_frames"), trace.tables["cpu_samples"]
        if frames is None or not len(frames) or not rows.size:
            none = np.empty(0, dtype=np.int64)
            return cls(none, none.astype(bool), none, none, none)
        ids, order = frames["id"], None
        if (ids[1:] < ids[:-1]).any():
            order = np.argsort(ids, kind="stable")
            ids = ids[order]
        wanted = samples["id"][rows]
        first = np.searchsorted(ids, wanted, side="left")
        frames_n = np.searchsorted(ids, wanted, side="right") - first
        sample = np.repeat(np.arange(rows.size), frames_n)
        nth = np.arange(sample.size) - np.repeat(np.cumsum(frames_n) - frames_n, frames_n)
        at = first[sample] + nth
        at = at if order is None else order[at]
        in_stack = np.lexsort((frames["depth"][at], sample))
        at = at[in_stack]
        return cls(
            sample,
            begins_group(sample),
            _classes(frames, at, trace.strings),
            frames["symbol_id"][at],
            frames["module_id"][at],
        )

    def leaf_classes(self, samples_n: int) -> IntArray:
        """Return the class of each sample, `unresolved` without a frame; shape (samples,)."""
        leaves = np.full(samples_n, module_classes().index(UNRESOLVED))
        leaves[self.sample[self.first]] = self.module[self.first]
        return leaves

    def frames(self, chosen: npt.NDArray[np.bool_]) -> dict[str, tuple[IntArray, int]]:
        """Return the frames that are told of some samples, and of how many samples they are.

        The innermost frames of all, and the first ones of the program in stacks that have more than
        one frame.

        Args:
            chosen: Shape (samples,).
        """
        there = chosen[self.sample] if self.sample.size else self.first
        leaves = np.flatnonzero(self.first & there)
        deep = there & (np.bincount(self.sample, minlength=1)[self.sample] > 1)
        classes = [module_classes().index(name) for name in _PROGRAM]
        program = np.flatnonzero(deep & np.isin(self.module, classes))
        program = program[begins_group(self.sample[program])]
        stacks_n = int(np.count_nonzero(deep & self.first))
        return {LEAF: (leaves, leaves.size), PROGRAM: (program, stacks_n)}


def _classes(frames: Table, at: IntArray, strings: Mapping[int, str]) -> IntArray:
    """Return the class of the file of each of some frames."""
    names = module_classes()
    ids, code = distinct_codes(frames["module_id"][at])
    of_id = [
        names.index(UNRESOLVED if key == NULL_INT else module_class(strings.get(key, "")))
        for key in ids.tolist()
    ]
    return np.array(of_id, dtype=np.int64)[code]


def function_name(symbol_id: int, strings: Mapping[int, str]) -> str | None:
    """Return the name of a function; None for an address that was not resolved."""
    name = text_of(symbol_id, strings)
    return None if name.startswith(("0x", "[")) else name


def file_name(module_id: int, strings: Mapping[int, str]) -> str:
    """Return the name of a file without its folders, which may hold a user's name."""
    return text_of(module_id, strings).rpartition("/")[2]
