"""Names of NVTX ranges as codes; each distinct text is looked at once. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.grouping import coded, distinct_codes
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.names import normalize_range
from nsys_llm.taxonomy.phase_maps import PhaseMap
from nsys_llm.trace.ranges import DOMAIN_CREATED


@dataclass(frozen=True)
class RangeNames:
    """The names of some ranges, without what PyTorch counts up in them, and their domains.

    Attributes:
        texts: Distinct names, sorted.
        code: Shape (ranges,), position in `texts`.
        examples: For each name, the raw text of the first range that has it.
        domains: Distinct names of domains, sorted; "" is the default domain.
        domain: Shape (ranges,), position in `domains`.
    """

    texts: tuple[str, ...]
    code: IntArray
    examples: tuple[str, ...]
    domains: tuple[str, ...]
    domain: IntArray

    @classmethod
    def of(cls, events: Table | None, rows: IntArray, strings: Mapping[int, str]) -> RangeNames:
        """Name some ranges of one process.

        Args:
            events: Columns event_type, text, text_id, domain_id; None where there are none.
            rows: Shape (ranges,), rows of the events; an earlier one gives the example.
        """
        if events is None:
            nothing = np.empty(0, dtype=np.int64)
            return cls((), nothing, (), (), nothing)
        raw, raw_code = raw_texts(events, rows, strings)
        texts, of_raw = coded([normalize_range(text) for text in raw])
        code = of_raw[raw_code]
        first = np.full(len(texts), -1, dtype=np.int64)
        first[code[::-1]] = raw_code[::-1]  # the last assignment, the first range, stays
        domains, domain = _domains(events, rows, strings)
        examples = tuple(raw[place] for place in first.tolist())
        return cls(texts, code, examples, domains, domain)

    def phases(self, phases: PhaseMap) -> IntArray:
        """Return the phase of each range's own name, -1 for none."""
        return np.array(phases.codes(self.texts), dtype=np.int64)[self.code]

    def mapped(self, of: Callable[[str], int]) -> IntArray:
        """Return a number for each range out of its name, asked for once a name."""
        return np.array([of(text) for text in self.texts], dtype=np.int64)[self.code]


def raw_texts(
    events: Table, rows: IntArray, strings: Mapping[int, str]
) -> tuple[Sequence[str], IntArray]:
    """Return distinct raw texts, and each range's position among them."""
    ids = events["text_id"][rows]
    code = np.empty(rows.size, dtype=np.int64)
    registered = ids != NULL_INT
    used, code[registered] = distinct_codes(ids[registered])
    position_of: dict[Any, int] = {}
    for key in used.tolist():
        position_of.setdefault(strings.get(key, f"[unknown name {key}]"), len(position_of))
    of_id = [position_of[strings.get(key, f"[unknown name {key}]")] for key in used.tolist()]
    code[registered] = np.array(of_id, dtype=np.int64)[code[registered]]
    plain = np.flatnonzero(~registered)
    if plain.size:
        words = events["text"][rows[plain]].tolist()
        for word in dict.fromkeys(words):
            position_of.setdefault(word, len(position_of))
        code[plain] = np.fromiter(
            map(position_of.__getitem__, words), dtype=np.int64, count=plain.size
        )
    return ["" if text is None else text for text in position_of], code


def _domains(
    events: Table, rows: IntArray, strings: Mapping[int, str]
) -> tuple[tuple[str, ...], IntArray]:
    created = np.flatnonzero(events["event_type"] == DOMAIN_CREATED)
    texts, code = raw_texts(events, created, strings)
    names = [texts[place] for place in code.tolist()]
    known = dict(zip(events["domain_id"][created].tolist(), names, strict=True))
    used, of_range = distinct_codes(events["domain_id"][rows])
    domains, of_id = coded([known.get(key, "") for key in used.tolist()])
    return domains, of_id[of_range]
