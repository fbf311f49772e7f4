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
    "earlier_run": Kind(limits=True, follows="it is in no number; compare it with trace_diff"),
    "segment": Kind(limits=False, follows="time between segments is in no number"),
    "rank_twice": Kind(limits=True, follows="ranks are numbered by the order of their files"),
    "shared_gpu": Kind(limits=False, follows="what another process runs there is no idle time"),
    "broken_times": Kind(limits=True, follows="these operations are in no number"),
    "unknown_table": Kind(limits=True, follows="what it holds is in no number"),
    "page_migrations": Kind(limits=False, follows="no call launches them"),
}

#: By kind.
RULES: Final = rules_by_id(
    Rule(
        "earlier_run",
        scope="run",
        kind=CAPTURE,
        title="{files_n:profile} {files_n:=is|are} of an earlier run and left out: all numbers are "
        "of the newest run",
        details="{names}: the same program on the same GPUs, recorded before the others began.",
        threshold="a profile ends before others begin that have its program and its GPU, or its "
        "host and rank",
        source=OURS,
        recommendation="Compare the runs with trace_diff[: {command}].",
        tables=("capture", "files"),
    ),
    Rule(
        "segment",
        scope="run",
        kind=CAPTURE,
        title="{files_n:rank} {files_n:=was|were} recorded in {processes_n:segment}, read as one",
        details="{names}: numbers are of all segments; the time between them is in none.",
        threshold="profiles of one process, or of processes of one, were recorded one after the "
        "other",
        source=OURS,
        recommendation="Give the profile of one segment to see that alone.",
        tables=("capture",),
    ),
    Rule(
        "rank_twice",
        scope="run",
        kind=CAPTURE,
        title="{files_n:profile} {files_n:=says|say} the rank of another one of the same job",
        details="{names}: so ranks are numbered by the order of their files.",
        threshold="two profiles of ranks that belong together say the same rank",
        source=OURS,
        recommendation="Leave out what was recorded twice, or number the ranks with --rank-map.",
        tables=("capture", "files"),
    ),
    Rule(
        "shared_gpu",
        scope="run",
        kind=CAPTURE,
        title="{processes_n:process|processes} {processes_n:=uses|use} a GPU at the same time as "
        "others",
        details="{names}. Time in which another process runs there is `other process`: nobody's "
        "idle time, and in no gain. Kernels that run at once slow each other down.",
        threshold="two processes use the same GPU or slice of one, as far as profiles tell it",
        source=OURS,
        recommendation="Give each a GPU of its own to see what they cost each other.",
        tables=("capture", "wall"),
    ),
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
