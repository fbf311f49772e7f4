"""What is in the batch of each step, by its name or that of the one range in or around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.steps.marked_ranges import MarkedRanges
from nsys_llm.facts.steps.steps import ENGINE, OPTION, Steps
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.phase_maps import DECODE, MIXED, OF_BATCHES, PREFILL, phase_map
from nsys_llm.taxonomy.step_names import FIELDS, Composition, engine_of_start, parse_step
from nsys_llm.trace.rank_trace import RankTrace

_NAMES_N: Final = 3
#: Share of steps with a name of no format, in percent, above which nothing is told of costs.
MOST_UNPARSED_PCT: Final = 5.0


@dataclass(frozen=True)
class Batches:
    """The batches of steps.

    Attributes:
        format: Of each step, engine and version; None where its name is of no format.
        phase: Of each, one of `OF_BATCHES`; None where nothing tells.
        fields: Shape (steps, 10), `FIELDS`; NULL_INT where the name does not tell.
        engine: That of the first format, or of the first name that begins like one.
        tokens_derived: Whether as many tokens as requests are taken to generate, as only those are
            told.
        unparsed: Names that begin like a format and are of none, the first few.
    """

    format: tuple[str | None, ...]
    phase: tuple[str | None, ...]
    fields: IntArray
    engine: str | None
    tokens_derived: bool
    unparsed: tuple[str, ...]
    unparsed_n: int

    @property
    def is_read(self) -> bool:
        """Whether enough of the names are of a format to tell costs."""
        return 100 * self.unparsed_n <= MOST_UNPARSED_PCT * len(self.format)

    def tokens(self, step: IntArray) -> IntArray:
        """Return the tokens of some steps; -1 for no step, or where they are not told."""
        context, generated = self.field("ctx_tokens"), self.field("gen_tokens")
        known = (context != NULL_INT) & (generated != NULL_INT)
        return np.asarray(np.append(np.where(known, context + generated, -1), -1)[step])

    @property
    def requests(self) -> IntArray:
        """The requests of each step; -1 where they are not told."""
        read, generate = self.field("ctx_reqs"), self.field("gen_reqs")
        known = (read != NULL_INT) & (generate != NULL_INT)
        return np.where(known, read + generate, -1)

    @property
    def load(self) -> IntArray:
        """Shape (steps, 3): requests, tokens and keys; -1 where they are not told."""
        read, generate = self.field("c_sk"), self.field("g_sk")
        keys = np.where((read != NULL_INT) & (generate != NULL_INT), read + generate, -1)
        return np.column_stack((self.requests, self.tokens(np.arange(keys.size)), keys))

    def field(self, name: str) -> IntArray:
        """Return one of `FIELDS` of all steps."""
        return np.asarray(self.fields[:, FIELDS.index(name)])


def step_batches(
    trace: RankTrace,
    steps: Steps | None,
    marked: Callable[[], MarkedRanges],
    phase_option: str | None,
) -> Batches | None:
    """Return what is in the batches of a rank's steps; None where no name is an engine's.

    Args:
        phase_option: That of --phase-map.
    """
    if steps is None or not set(steps.devices) & set(trace.device_ids):
        return None
    names = steps.names.tolist()
    if steps.source not in (ENGINE, OPTION) and not any(map(engine_of_start, set(names))):
        return None
    if steps.source != ENGINE or not any(map(parse_step, names)):
        around = _names_around(trace, steps, marked)
        if any(around) or steps.source == OPTION:
            names = around
        else:
            names = [name if engine_of_start(name) else "" for name in names]
    pairs = [(name, parse_step(name)) for name in names]
    missing = [name for name, item in pairs if name and item is None]
    known = [item for _, item in pairs if item is not None]
    if not known and not missing:
        return None
    phases = phase_map(phase_option)
    return Batches(
        format=tuple(None if item is None else item.since for _, item in pairs),
        phase=tuple(None if item is None else _phase(item, name, phases) for name, item in pairs),
        fields=np.array([_fields(item) for _, item in pairs], dtype=np.int64).reshape(
            -1, len(FIELDS)
        ),
        engine=known[0].engine if known else engine_of_start(missing[0]),
        tokens_derived=any(item.tokens_derived for item in known),
        unparsed=tuple(dict.fromkeys(missing))[:_NAMES_N],
        unparsed_n=len(missing),
    )


def _fields(item: Composition | None) -> list[int]:
    values = (None if item is None else getattr(item, name) for name in FIELDS)
    return [NULL_INT if value is None else value for value in values]


def _phase(item: Composition, name: str, phases: Any) -> str | None:
    """Return the phase by the requests of each kind; where these are not told, by the name."""
    if item.ctx_reqs is not None and item.gen_reqs is not None:
        if item.ctx_reqs and item.gen_reqs:
            return MIXED
        if item.ctx_reqs or item.gen_reqs:
            return PREFILL if item.ctx_reqs else DECODE
        return None  # of nobody, as beside other ranks of data parallelism
    place = phases.phase_of(name)
    phase = phases.phases[place] if place >= 0 else ""
    return phase if phase in OF_BATCHES else None


def _names_around(
    trace: RankTrace, steps: Steps, marked_ranges: Callable[[], MarkedRanges]
) -> list[str]:
    """Return the name of the one range of a format in or around each step; "" for any other."""
    events = trace.tables.get("nvtx_events")
    if events is None or not len(events):
        return [""] * len(steps)
    marked = marked_ranges()
    is_read = np.array([parse_step(name) is not None for name in marked.plain], dtype=bool)
    rows = np.flatnonzero(is_read[marked.name]) if is_read.any() else marked.name[:0]
    rows = marked.of_one_thread(rows)  # disjoint, in order of time
    starts, ends = marked.start_ns[rows], marked.end_ns[rows]
    begin, stop = steps.start_ns, steps.end_ns
    place = np.searchsorted(ends, begin, side="right")
    alone = np.searchsorted(starts, stop, side="left") == place + 1
    place = np.where(alone, place, 0)
    inside = (starts[place] >= begin) & (ends[place] <= stop) if rows.size else alone
    around = (starts[place] <= begin) & (ends[place] >= stop) if rows.size else alone
    names = marked.names(rows).tolist()
    known = (alone & (inside | around)).tolist()
    return [names[at] if is_known else "" for at, is_known in zip(place, known, strict=True)]
