"""The NVTX ranges of a rank in which steps are looked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.nvtx.range_names import raw_texts
from nsys_llm.facts.steps.launched_ops import LaunchedOps
from nsys_llm.facts.steps.steps import StepSpans
from nsys_llm.numeric.grouping import distinct_codes, split_by_code
from nsys_llm.numeric.intervals import IntArray, union_intervals
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.names import normalize_range
from nsys_llm.taxonomy.step_names import has_sequence_number, is_operator, is_warmup, range_key
from nsys_llm.trace.ranges import PUSH_POP, closed_ends, lasting
from nsys_llm.trace.rank_trace import RankTrace

_COLUMNS: Final = ("start_ns", "end_ns", "event_type", "text", "text_id", "global_tid")
#: Ranges that follow each other may overlap by so much of their time: where they begin on one
#: thread and end on another, the next may have begun.
_MOST_OVERLAP_PCT: Final = 10

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class MarkedRanges:
    """Ranges of one rank that may be steps or mark them; arrays of shape (ranges,).

    Attributes:
        raw: Distinct texts as recorded, of those that are no operators.
        plain: Distinct names, without what PyTorch counts up: far fewer where it does.
        start_ns: Ascending, the profile's clock; of equal ones the outer range comes first.
        end_ns: Later; the end of the capture where a range was never closed.
        threads: The ids behind these codes, sorted; start/end ranges have one for all of them.
    """

    raw: tuple[str, ...]
    text: IntArray
    plain: tuple[str, ...]
    name: IntArray
    start_ns: IntArray
    end_ns: IntArray
    closed: _Mask
    thread: IntArray
    threads: IntArray

    @classmethod
    def of_rank(cls, trace: RankTrace, kind: int = PUSH_POP) -> MarkedRanges:
        """Read the ranges of one rank, out of its NVTX events, which may be none.

        Args:
            kind: `PUSH_POP` or `START_END`.
        """
        events, strings = trace.tables.get("nvtx_events", Table.empty(_COLUMNS)), trace.strings
        starts = events["start_ns"]
        ends, is_open = closed_ends(events["end_ns"], trace.last_end_ns)
        real = lasting(starts, ends)
        rows = np.flatnonzero((events["event_type"] == kind) & real)
        texts, code = raw_texts(events, rows, strings)
        raw = tuple(text or "" for text in texts)
        plain, name_of = _plain_names(raw)
        rows, code = rows[name_of[code] >= 0], code[name_of[code] >= 0]
        order = np.lexsort((-ends[rows], starts[rows]))
        rows, code = rows[order], code[order]
        # A start/end range may begin on one thread and end on another.
        threads, thread = distinct_codes(events["global_tid"][rows] * (kind == PUSH_POP))
        return cls(
            raw=raw,
            text=code,
            plain=plain,
            name=name_of[code],
            start_ns=starts[rows],
            end_ns=ends[rows],
            closed=~is_open[rows],
            thread=thread,
            threads=threads,
        )

    def of_thread(self, thread: int) -> IntArray:
        """Return the rows of the ranges of a thread (globalTid)."""
        code = np.searchsorted(self.threads, thread)
        is_there = code < self.threads.size and self.threads[code] == thread
        return np.flatnonzero(self.thread == code) if is_there else np.empty(0, dtype=np.int64)

    def which(self, is_one: Callable[[str], bool]) -> _Mask:
        """Return of which ranges the name is one that is asked for, shape (ranges,)."""
        return _by_code(self.name, [is_one(name) for name in self.plain]) > 0

    def warmups_ns(self) -> IntArray:
        """Return the union of the ranges whose name says warm-up, shape (intervals, 2)."""
        rows = np.flatnonzero(self.which(is_warmup))
        return union_intervals(self.start_ns[rows], self.end_ns[rows])

    def by_key(self, among: IntArray) -> Iterable[tuple[str, IntArray]]:
        """Return each name with # for running numbers, and its rows among some."""
        place: dict[str, int] = {}
        code = _by_code(
            self.name, [place.setdefault(range_key(item), len(place)) for item in self.plain]
        )
        parts = split_by_code(code[among], len(place))
        return ((key, among[part]) for key, part in zip(place, parts, strict=True))

    def of_one_thread(self, rows: IntArray) -> IntArray:
        """Return the outermost of some ranges on the thread that has most of them."""
        if not rows.size:
            return rows
        rows = rows[self.thread[rows] == np.bincount(self.thread[rows]).argmax()]
        latest = np.maximum.accumulate(self.end_ns[rows])
        return rows[np.append(True, self.end_ns[rows][1:] > latest[:-1])]

    def spans(self, rows: IntArray, name: str, unit: str, source: str) -> StepSpans:
        """Return ranges as steps."""
        return StepSpans(
            name=name,
            unit=unit,
            source=source,
            names=self.names(rows),
            start_ns=self.start_ns[rows],
            end_ns=self._ends_ns(rows),
            closed=self.closed[rows],
        )

    def names(self, rows: IntArray) -> npt.NDArray[Any]:
        """Return the texts of some ranges."""
        return np.array([self.raw[code] for code in self.text[rows].tolist()], dtype=object)

    def held_ns(self, rows: IntArray, ops: LaunchedOps) -> int:
        """Return the GPU time launched in some ranges of which none holds another."""
        return ops.held_ns(self.start_ns[rows], self._ends_ns(rows))

    def follow_each_other(self, rows: IntArray) -> bool:
        """Return whether some ranges of one thread come one after the other: overlaps are small."""
        starts, ends = self.start_ns[rows], self.end_ns[rows]
        beyond_ns = np.maximum(ends[:-1] - starts[1:], 0)
        few = 100 * beyond_ns.sum() <= _MOST_OVERLAP_PCT * (ends - starts).sum()
        return bool(few and (ends[1:] > ends[:-1]).all())

    def _ends_ns(self, rows: IntArray) -> IntArray:
        """Return when ranges end, or the next one begins: those of two domains may interleave."""
        last = np.iinfo(np.int64).max
        return np.minimum(self.end_ns[rows], np.append(self.start_ns[rows][1:], last))


def _plain_names(raw: Sequence[str]) -> tuple[tuple[str, ...], IntArray]:
    """Return the distinct names of texts, and each text's position among them; -1: an operator."""
    place: dict[str, int] = {}
    code = []
    for text in raw:
        if ", seq = " in text and has_sequence_number(text):
            name = ""
        else:
            # Most texts of emit_nvtx, of which there may be a million: `name, op_id = 7`.
            name, _, number = text.partition(", op_id = ")
            if ", " in text and not number.isdecimal():
                name = normalize_range(text)
        code.append(place.setdefault(name, len(place)))
    kept = np.array([name != "" and not is_operator(name) for name in place], dtype=bool)
    of_name = np.where(kept, np.cumsum(kept) - 1, -1)
    plain = tuple(
        name.strip() for name, is_kept in zip(place, kept.tolist(), strict=True) if is_kept
    )
    return plain, of_name[np.array(code, dtype=np.int64)]


def _by_code(code: IntArray, values: Sequence[int]) -> IntArray:
    return np.array(values, dtype=np.int64)[code] if len(values) else code
