"""Steps that NVTX ranges mark: an engine's, those that repeat, a framework's numbered ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.nvtx.range_names import raw_texts
from nsys_llm.analyses.steps.launched_ops import LaunchedOps
from nsys_llm.analyses.steps.steps import (
    ENGINE,
    NUMBERED,
    OPTION,
    REPEATED,
    StepSpans,
    between_marks,
)
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.manifest.range_choice import parse_choice
from nsys_llm.numeric.grouping import distinct_codes, split_by_code
from nsys_llm.numeric.intervals import IntArray, starts_inside, union_intervals
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.names import normalize_range, step_key
from nsys_llm.taxonomy.step_names import (
    LAYER,
    EngineStep,
    NumberedRange,
    engine_steps,
    has_sequence_number,
    is_operator,
    is_warmup,
    numbered_ranges,
    parse_step,
    range_key,
    unit_of,
)
from nsys_llm.trace.ranges import PUSH_POP, closed_ends, lasting, read_ranges, step_ranges
from nsys_llm.trace.rank_trace import RankTrace

#: Ranges that repeat so often may be steps; the numbered ones of a framework, whose name says so,
#: need one to compare with.
_LEAST_REPEATED: Final = 3
_LEAST_NUMBERED: Final = 2
#: Share of the launched GPU time that steps must hold where no engine says what they are; ours.
_LEAST_HELD_PCT: Final = 50

_COLUMNS: Final = ("start_ns", "end_ns", "event_type", "text", "text_id", "global_tid")

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class MarkedRanges:
    """The push/pop ranges of one rank that may be steps or mark them; arrays of shape (ranges,).

    Attributes:
        raw: Distinct texts as recorded, of those that are no operators.
        plain: Distinct names, without what PyTorch counts up: far fewer where it does.
        start_ns: Ascending, the profile's clock; of equal ones the outer range comes first.
        end_ns: Later; the end of the capture where a range was never closed.
        closed: Whether it was.
        threads: The ids behind these codes, sorted.
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
    def of_rank(cls, trace: RankTrace) -> MarkedRanges:
        """Read the ranges of one rank, out of its NVTX events, which may be none."""
        events, strings = trace.tables.get("nvtx_events", Table.empty(_COLUMNS)), trace.strings
        starts = events["start_ns"]
        ends, is_open = closed_ends(events["end_ns"], trace.last_end_ns)
        real = lasting(starts, ends)
        rows = np.flatnonzero((events["event_type"] == PUSH_POP) & real)
        texts, code = raw_texts(events, rows, strings)
        raw = tuple(text or "" for text in texts)
        plain, name_of = _plain_names(raw)
        rows, code = rows[name_of[code] >= 0], code[name_of[code] >= 0]
        order = np.lexsort((-ends[rows], starts[rows]))
        rows, code = rows[order], code[order]
        threads, thread = distinct_codes(events["global_tid"][rows])
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
            end_ns=self.end_ns[rows],
            closed=self.closed[rows],
        )

    def names(self, rows: IntArray) -> npt.NDArray[Any]:
        """Return the texts of some ranges."""
        return np.array([self.raw[code] for code in self.text[rows].tolist()], dtype=object)

    def held_ns(self, rows: IntArray, ops: LaunchedOps) -> int:
        """Return the GPU time launched in some ranges of which none holds another."""
        # Ranges of two domains may interleave: what two hold counts once.
        ends = np.minimum(self.end_ns[rows], np.append(self.start_ns[rows][1:], ops.last_ns + 1))
        return ops.held_ns(self.start_ns[rows], ends)


def chosen_steps(trace: RankTrace, text: str) -> StepSpans | None:
    """Return the ranges that --step names; None where there are none."""
    events = trace.tables.get("nvtx_events")
    if events is None or not len(events):
        return None
    steps = step_ranges(read_ranges(events, trace.strings, trace.last_end_ns), parse_choice(text))
    if not len(steps.start_ns):
        return None
    is_open = events["end_ns"] == NULL_INT
    # A pattern may match several names: their order must not choose between them.
    name = text if text.startswith("re:") else range_key(str(steps.name[0]))
    return StepSpans(
        name=name,
        unit=unit_of(name),
        source=OPTION,
        names=steps.name,
        start_ns=steps.start_ns,
        end_ns=steps.end_ns,
        closed=~np.isin(steps.start_ns, events["start_ns"][is_open]),
    )


def engine_spans(marked: MarkedRanges, ops: LaunchedOps) -> StepSpans | None:
    """Return the ranges that an engine writes around its steps, if work was launched in any.

    Of an engine the first kind with work; of several engines the one whose ranges hold most.
    """
    best: tuple[int, StepSpans] | None = None
    seen: set[str] = set()
    for kind in engine_steps():
        if kind.engine in seen:
            continue
        rows, drafts = _engine_rows(marked, kind)
        held_ns = marked.held_ns(rows, ops) if rows.size else 0
        if not held_ns:
            continue
        seen.add(kind.engine)
        if best is None or held_ns > best[0]:
            spans = marked.spans(rows, kind.name, unit_of(""), ENGINE)
            if drafts.size:
                ends = marked.start_ns[drafts], marked.end_ns[drafts]
                spans = replace(spans, drafts=np.column_stack(ends))
            best = held_ns, spans
    return best[1] if best else None


def _engine_rows(marked: MarkedRanges, kind: EngineStep) -> tuple[IntArray, IntArray]:
    """Return the ranges of an engine's steps, and of its drafts, on the thread with most."""
    is_step = marked.which(kind.pattern.matches)
    rows = np.flatnonzero(is_step)
    if kind.starts is not None and rows.size:
        others = np.flatnonzero(marked.which(kind.starts.matches) & ~is_step)
        if others.size and any(parse_step(marked.plain[code]) for code in marked.name[rows]):
            rows = marked.of_one_thread(rows)
            rows = np.union1d(rows, _apart(marked, others, rows))
    rows = marked.of_one_thread(rows)
    if kind.verified_by is None or kind.steps is None:
        return rows, rows[:0]
    if not marked.which(kind.verified_by.matches)[rows].any():
        return rows, rows[:0]
    is_step = marked.which(kind.steps.matches)[rows]
    if kind.twice is not None:
        is_step &= ~_repeats(marked.name[rows], marked.which(kind.twice.matches)[rows])
    return rows[is_step], rows[~is_step]


def _repeats(name: IntArray, some: _Mask) -> _Mask:
    """Return every second of some equal names in a row; none unless all such rows are of pairs."""
    first = np.flatnonzero(np.diff(name, prepend=-1))
    sizes = np.diff(np.append(first, name.size))
    # The capture may begin or end between two of a pair.
    is_odd = (sizes[1:-1] % 2 == 1) & some[first][1:-1]
    if is_odd.any() or not (some[first] & (sizes > 1)).any():
        return np.zeros(name.size, dtype=bool)
    place = np.arange(name.size) - np.repeat(first, sizes)
    place[: sizes[0]] += sizes[0] % 2
    return np.asarray(some & (place % 2 == 1))


def _apart(marked: MarkedRanges, among: IntArray, steps: IntArray) -> IntArray:
    """Return which of some ranges are on the thread of steps, and neither in nor around any."""
    among = among[marked.thread[among] == marked.thread[steps[0]]]
    begun = np.searchsorted(marked.start_ns[steps], marked.end_ns[among], side="left")
    ended = np.searchsorted(marked.end_ns[steps], marked.start_ns[among], side="right")
    return among[begun == ended]


def repeated_spans(marked: MarkedRanges, ops: LaunchedOps) -> StepSpans | None:
    """Return the ranges of the name that holds most of the launched GPU time, at least half.

    The name repeats at least 3 times on a thread. Of two that hold the same time, one around the
    other, the outer is the step. What a warm-up holds is left out (`warmup_spans`).
    """
    warmups_ns = marked.warmups_ns()
    outside = np.flatnonzero(~starts_inside(marked.start_ns, warmups_ns))
    warmup_gpu_ns = ops.held_ns(warmups_ns[:, 0], warmups_ns[:, 1])
    return _repeated(marked, outside, ops, ops.launched_gpu_ns - warmup_gpu_ns)


def warmup_spans(marked: MarkedRanges, ops: LaunchedOps) -> StepSpans | None:
    """Return what `repeated_spans` does, warm-ups counted in: where nothing else is a step."""
    if not marked.warmups_ns().size:
        return None
    return _repeated(marked, np.arange(marked.name.size), ops, ops.launched_gpu_ns)


def _repeated(
    marked: MarkedRanges, among: IntArray, ops: LaunchedOps, launched_gpu_ns: int
) -> StepSpans | None:
    best: tuple[tuple[int, int, int, str], IntArray] | None = None
    for key, every in marked.by_key(among):
        if every.size < _LEAST_REPEATED:
            continue
        rows = marked.of_one_thread(every)
        held_ns = marked.held_ns(rows, ops)
        if rows.size < _LEAST_REPEATED or not _is_half(held_ns, launched_gpu_ns):
            continue
        wall_ns = int((marked.end_ns[rows] - marked.start_ns[rows]).sum())
        score = (held_ns, wall_ns, -rows.size, key)
        if best is None or score > best[0]:
            best = score, rows
    if best is None:
        return None
    key = best[0][-1]
    return marked.spans(best[1], key, unit_of(key), REPEATED)


def numbered_spans(marked: MarkedRanges, ops: LaunchedOps) -> StepSpans | None:
    """Return the steps or layers that a framework's numbered ranges mark.

    They have to hold half of the launched GPU time; of layers, those whose next one is marked.
    """
    for kind in numbered_ranges():
        rows = np.flatnonzero(marked.which(kind.pattern.matches))
        if not rows.size:
            continue
        spans = _numbered(marked, rows, kind, ops.last_ns)
        if spans is None or len(spans) < _LEAST_NUMBERED:
            continue
        counted = spans.closed if kind.unit == LAYER else np.ones(len(spans), dtype=bool)
        if holds_enough(ops.held_ns(spans.start_ns[counted], spans.end_ns[counted]), ops):
            return spans
    return None


def holds_enough(held_ns: int, ops: LaunchedOps) -> bool:
    """Return whether some GPU time is at least half of all that was launched."""
    return _is_half(held_ns, ops.launched_gpu_ns)


def _is_half(held_ns: int, launched_gpu_ns: int) -> bool:
    return held_ns > 0 and 100 * held_ns >= _LEAST_HELD_PCT * launched_gpu_ns


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


def _numbered(
    marked: MarkedRanges, rows: IntArray, kind: NumberedRange, last_ns: int
) -> StepSpans | None:
    """Return the steps that ranges of one kind mark, of the name that most of them have."""
    keys = [step_key(text) for text in marked.names(rows)]
    # Wrapped modules within a block have longer names than the block itself.
    name = min(set(keys), key=lambda key: (-keys.count(key), len(key), key))
    rows = marked.of_one_thread(rows[np.array([key == name for key in keys], dtype=bool)])
    if kind.edge == "both":
        return marked.spans(rows, name, kind.unit, NUMBERED)
    if kind.edge == "end":
        return _ending(marked, rows, name, kind.unit)
    spans = between_marks(
        name, kind.unit, NUMBERED, marked.names(rows), marked.start_ns[rows], last_ns
    )
    return replace(spans, closed=spans.closed & _followed(spans.names, kind.pattern.expression))


def _ending(marked: MarkedRanges, rows: IntArray, name: str, unit: str) -> StepSpans:
    """Return steps that end with a range; where the first one began is not known."""
    ends = marked.end_ns[rows]
    starts = np.append(min(0, int(marked.start_ns[rows[0]])), ends[:-1])
    closed = marked.closed[rows] & (np.arange(rows.size) > 0)
    return StepSpans(name, unit, NUMBERED, marked.names(rows), starts, ends, closed)


def _followed(names: npt.NDArray[Any], pattern: re.Pattern[str]) -> _Mask:
    """Tell after which names comes the next number: a last layer holds what follows it, too."""
    if "number" not in pattern.groupindex:
        return np.ones(len(names), dtype=bool)
    matches = [pattern.search(normalize_range(text)) for text in names.tolist()]
    numbers = np.array([int(match["number"]) if match else -1 for match in matches], dtype=np.int64)
    return np.append(numbers[1:] == numbers[:-1] + 1, False)
