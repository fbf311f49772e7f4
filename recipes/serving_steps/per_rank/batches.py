"""What is in the batch of each step, by its name or that of the one range in or around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.rank_view import RankView
from nsys_llm.analyses.steps.by_range import MarkedRanges
from nsys_llm.analyses.steps.steps import ENGINE, Steps
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.phase_maps import phase_map
from nsys_llm.taxonomy.step_names import Composition, engine_format, parse_step

FIELDS: Final = (
    *("ctx_reqs", "ctx_tokens", "c_sk", "c_sqsq", "c_sqsk"),
    *("gen_reqs", "gen_tokens", "g_sk", "g_sqsq", "g_sqsk"),
)
DECODE, MIXED, PREFILL = "decode", "mixed", "prefill"
PHASES: Final = (DECODE, MIXED, PREFILL)
#: Phases of the built-in maps that are none of these: verifying drafts is decoding.
_ALSO: Final = {"speculation": DECODE}
_NAMES_N: Final = 3
#: Share of steps with a name of no format, in percent, above which nothing is told of costs.
MOST_UNPARSED_PCT: Final = 5.0


@dataclass(frozen=True)
class Batches:
    """The batches of steps.

    Attributes:
        format: Of each step, engine and version; None where its name is of no format.
        phase: Of each, one of `PHASES`; None where nothing tells.
        fields: Shape (steps, 10), `FIELDS`; NULL_INT where the name does not tell.
        engine: That of the first format; None for none.
        tokens_derived: Whether as many tokens as requests are taken to generate, as only those are
            told.
        unparsed: Names that begin like a format and are of none, the first few.
        unparsed_n: How many steps have such.
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

    def field(self, name: str) -> IntArray:
        """Return one of `FIELDS` of all steps."""
        return np.asarray(self.fields[:, FIELDS.index(name)])


def step_batches(view: RankView, steps: Steps) -> Batches:
    """Return what is in the batches of a rank's steps."""
    names = steps.names.tolist()
    texts = names if steps.source == ENGINE else [None] * len(names)
    if not any(name and engine_format(name) for name in texts):
        texts = _names_around(view, steps)
    formats = [engine_format(name) if name else None for name in texts]
    parsed = [parse_step(name) if name else None for name in texts]
    missing = [name for name, item in zip(texts, formats, strict=True) if name and item is None]
    phases = phase_map(view.options.get("phase_map"))
    return Batches(
        format=tuple(None if item is None else item.since for item in formats),
        phase=tuple(
            None if item is None or name is None else _phase(item, name, phases)
            for name, item in zip(texts, parsed, strict=True)
        ),
        fields=np.array([_fields(item) for item in parsed], dtype=np.int64).reshape(
            -1, len(FIELDS)
        ),
        engine=next((item.engine for item in formats if item is not None), None),
        tokens_derived=any(
            item is not None and "gen_tokens" in item.derived and step is not None and not step.g_sk
            for item, step in zip(formats, parsed, strict=True)
        ),
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
        return PREFILL if item.ctx_reqs else DECODE
    place = phases.phase_of(name)
    phase = phases.phases[place] if place >= 0 else ""
    phase = _ALSO.get(phase, phase)
    return phase if phase in PHASES else None


def _names_around(view: RankView, steps: Steps) -> list[str | None]:
    """Return the name of the one range of a format in or around each step; None for several."""
    events = view.trace.tables.get("nvtx_events")
    if events is None or not len(events):
        return [None] * len(steps)
    marked = MarkedRanges.of(events, view.trace.strings, view.trace.last_end_ns)
    is_read = np.array([parse_step(name) is not None for name in marked.plain], dtype=bool)
    rows = np.flatnonzero(is_read[marked.name]) if is_read.any() else marked.name[:0]
    starts, ends = marked.start_ns[rows], np.sort(marked.end_ns[rows])
    # Those that overlap a step: begun before its end, and not ended by its begin.
    last = np.searchsorted(starts, steps.span_end_ns, side="left")
    overlap_n = last - np.searchsorted(ends, steps.span_start_ns, side="right")
    names: list[str | None] = marked.names(rows).tolist()
    sole = _sole(starts, marked.end_ns[rows], steps, last - 1, overlap_n == 1)
    return [names[place] if place >= 0 else None for place in sole.tolist()]


def _sole(
    starts: IntArray, ends: IntArray, steps: Steps, last: IntArray, alone: npt.NDArray[np.bool_]
) -> IntArray:
    """Return the only range that overlaps each step, if one of both holds the other; else -1.

    Args:
        last: Shape (steps,), the last range that begins before each step ends.
        alone: Whether just one overlaps it: of those before, none or the last.
    """
    place = np.where(alone, last, -1)
    some = np.flatnonzero(place >= 0)
    begin, end = steps.span_start_ns[some], steps.span_end_ns[some]
    start, stop = starts[place[some]], ends[place[some]]
    nested = ((start >= begin) & (stop <= end)) | ((start <= begin) & (stop >= end))
    place[some[~nested]] = -1
    return place
