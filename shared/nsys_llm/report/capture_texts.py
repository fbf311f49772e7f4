"""The kinds of statements on a capture: what follows from each, its sentence, advice and flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from nsys_llm.report.findings import CAPTURE
from nsys_llm.report.rules import OURS, Rule, rules_by_id
from nsys_llm.trace.rank_trace import BROKEN_ROWS


@dataclass(frozen=True)
class Kind:
    """What a kind of statement means.

    Attributes:
        limits: Whether it limits what can be said of a run; it is then read first.
        follows: What follows for the numbers, as a clause.
    """

    limits: bool
    follows: str


#: By kind, in the order in which they are said.
KINDS: Final[Mapping[str, Kind]] = {
    "broken_times": Kind(limits=True, follows="these operations are in no number"),
    "unknown_table": Kind(limits=True, follows="what it holds is in no number"),
    "page_migrations": Kind(limits=False, follows="no call launches them"),
}

#: By kind.
RULES: Final = rules_by_id(
    Rule(
        "broken_times",
        scope="run",
        kind=CAPTURE,
        title="{count_n} of {of_n} GPU operations have no usable times and are left out",
        details=f"{{names}}: {BROKEN_ROWS}.",
        threshold="a row of GPU work is left out for its times",
        source=OURS,
        recommendation="Sums and counts lack these operations. Record again, with a newer Nsight "
        "Systems where there is one.",
        tables=("capture",),
    ),
    Rule(
        "unknown_table",
        scope="run",
        kind=CAPTURE,
        title="{count_n:table} of the export {count_n:=is|are} in a form that is not known here",
        details="{names}: {kinds}. What they hold is in no number.",
        threshold="a table that is named like one that is read, or payloads of NVTX in columns or "
        "tables of their own",
        source=OURS,
        recommendation="Export the profile with an older Nsight Systems, or update this package.",
        tables=("capture",),
    ),
    Rule(
        "page_migrations",
        scope="run",
        kind=CAPTURE,
        title="{count_n} copies are pages of unified memory that the driver moved",
        details="No call launches them. {names}: {kinds}.",
        threshold="a copy is a migration of unified memory",
        source="CUPTI's copy kinds",
        recommendation="Kernels wait for pages that are not there. Prefetch them "
        "(cudaMemPrefetchAsync), advise where they are used (cudaMemAdvise), or keep the data in "
        "device memory.",
        tables=("capture",),
    ),
)
