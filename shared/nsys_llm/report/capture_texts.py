"""The kinds of statements on a capture: what follows from each, its sentence, advice and flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from nsys_llm.report.findings import CAPTURE
from nsys_llm.report.rules import OURS, Case, Rule, rules_by_id
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
    "earlier_run": Kind(
        limits=True, follows="it is left out of all numbers; compare it with trace_diff"
    ),
    "segment": Kind(limits=False, follows="the time between segments is left out"),
    "rank_twice": Kind(limits=True, follows="ranks are numbered by the order of their files"),
    "shared_gpu": Kind(
        limits=False, follows="time in which another process runs there is not idle"
    ),
    "silent_processes": Kind(limits=True, follows="no rank can be compared with them"),
    "silent_work": Kind(limits=True, follows="this process is left out of all numbers"),
    "lost_work": Kind(limits=True, follows="what looks idle there may be none"),
    "unawaited_work": Kind(limits=False, follows="this process is left out of all numbers"),
    "broken_times": Kind(limits=True, follows="these operations are left out"),
    "whole_graphs": Kind(limits=True, follows="the kernels in them are not seen"),
    "unknown_table": Kind(limits=True, follows="its contents are left out"),
    "page_migrations": Kind(limits=False, follows="no call launches them"),
    "cut_work": Kind(limits=False, follows="their work is left out"),
    "nsys_message": Kind(limits=False, follows="it may be why work is missing"),
    "unknown_messages": Kind(limits=False, follows="nothing"),
}

#: By kind; of the others another one's sentence tells.
RULES: Final = rules_by_id(
    Rule(
        "earlier_run",
        scope="run",
        kind=CAPTURE,
        title="{files_n:profile} of an earlier run {files_n:=is|are} left out: all numbers "
        "describe the newest run",
        details="{names}: the same program on the same GPUs, recorded before the others began.",
        threshold="a profile ends before others with the same program and GPU, or the same host "
        "and rank, begin",
        source=OURS,
        recommendation="Compare the runs with trace_diff[: {command}].",
        tables=("capture", "files"),
    ),
    Rule(
        "segment",
        scope="run",
        kind=CAPTURE,
        title="{files_n:rank} {files_n:=was|were} recorded in {rows_n:segment}, read as one",
        details="{names}: numbers cover all segments, without the time between them.",
        threshold="profiles of one process, or of its children, were recorded one after the other",
        source=OURS,
        recommendation="Pass the profile of one segment to see it alone.",
        tables=("capture",),
    ),
    Rule(
        "rank_twice",
        scope="run",
        kind=CAPTURE,
        title="{files_n:profile} {files_n:=claims|claim} the rank of another profile of the same "
        "job",
        details="{names}: ranks are therefore numbered by the order of their files.",
        threshold="two profiles of one job claim the same rank",
        source=OURS,
        recommendation="Leave out the duplicate, or number the ranks with --rank-map.",
        tables=("capture", "files"),
    ),
    Rule(
        "shared_gpu",
        scope="run",
        kind=CAPTURE,
        title="{processes_n:process|processes} {processes_n:=uses|use} a GPU at the same time as "
        "others",
        details="{names}. Time in which another process runs there is `other process`. It is "
        "not idle time and enters no gain. Kernels that run at once slow each other down.",
        threshold="two processes use the same GPU or slice of one, as far as profiles show",
        source=OURS,
        recommendation="Give each process its own GPU to see how much they cost each other.",
        tables=("capture", "wall"),
    ),
    Rule(
        "silent_processes",
        scope="run",
        kind=CAPTURE,
        title="{silent_n} of {all_n:process|processes} launched {launches_n:{unit}} that "
        "{launches_n:=was|were} not recorded",
        details="The calls were recorded, but none of their work.[ Nsight Systems itself says: "
        "{reasons}.]{then} Processes: {names}.",
        threshold="a process launched work that must have ended inside the capture, but has no row",
        source=OURS,
        recommendation="{advice}",
        record="--trace=cuda,nvtx --trace-fork-before-exec=true",
        tables=("capture",),
        cases={
            "only": Case(
                title="{launches_n:{unit}} {launches_n:=was|were} launched, and none was recorded"
            ),
            "some": Case(
                title="{silent_n:process|processes} launched {launches_n:{unit}} that "
                "{launches_n:=was|were} not recorded"
            ),
        },
    ),
    Rule(
        "lost_work",
        scope="run",
        kind=CAPTURE,
        title="{lost_n:{unit}}{whose} {lost_n:=was|were} launched and not recorded"
        "[, on {lost_ranks_n:rank}][, between {first_ns} and {last_ns}]",
        details="Each must have ended before the capture did.[ Nsight Systems itself says: "
        "{reasons}.] Idle time meanwhile counts as not recorded, without a cause or a gain. "
        "Steps with such launches enter no statistic. Processes: {names}.",
        threshold="a launch left no row, although later work of its stream did, or was waited for",
        source=OURS,
        recommendation="{advice}",
        record="--cuda-flush-interval=100",
        tables=("capture",),
    ),
    Rule(
        "unawaited_work",
        scope="run",
        kind=CAPTURE,
        title="{count_n:launch|launches} of {processes_n:process|processes} without any row may "
        "have run only after the end of the capture",
        details="{names}: nothing in the capture waits for that work.",
        threshold="a process launched work, has no row, and never waits for it",
        source=OURS,
        recommendation="If these processes work during the capture, record longer.",
        tables=("capture",),
    ),
    Rule(
        "cut_work",
        scope="run",
        kind=CAPTURE,
        title="{count_n:launch|launches} may have run only after the end of the capture",
        details="{names}: nothing shows that this work ended earlier. It is left out of all "
        "numbers.",
        threshold="a launch left no row, and nothing shows that its work ended in the capture",
        source=OURS,
        recommendation="This is normal: a capture ends while work is queued.",
        tables=("capture",),
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
        "Systems if possible.",
        tables=("capture",),
    ),
    Rule(
        "whole_graphs",
        scope="run",
        kind=CAPTURE,
        title="{count_n:CUDA graph} {count_n:=was|were} traced as a whole: the kernels in "
        "{count_n:=it|them} are not recorded",
        details="{names}: no recipe sees these kernels.",
        threshold="`nsys-llm check` finds 1 CUDA graph or more that was traced as a whole",
        source=OURS,
        recommendation="Record a few steps with the nodes of graphs. This makes them 30 to 60 % "
        "longer.",
        record="--cuda-graph-trace=node",
        tables=("capture",),
    ),
    Rule(
        "unknown_table",
        scope="run",
        kind=CAPTURE,
        title="{count_n:table} of the export {count_n:=has|have} an unknown form",
        details="{names}: {kinds}. Their contents are left out.",
        threshold="a table named like a known one, or NVTX payloads in separate columns or tables",
        source=OURS,
        recommendation="Export the profile with an older Nsight Systems, or update this package.",
        tables=("capture",),
    ),
    Rule(
        "page_migrations",
        scope="run",
        kind=CAPTURE,
        title="{count_n} copies are page migrations of unified memory by the driver",
        details="No call launches them. {names}: {kinds}.",
        threshold="a copy is a migration of unified memory",
        source="CUPTI's copy kinds",
        recommendation="Kernels wait for missing pages. Prefetch them "
        "(cudaMemPrefetchAsync), advise the driver where they are used (cudaMemAdvise), or keep "
        "the data in device memory.",
        tables=("capture",),
    ),
)
