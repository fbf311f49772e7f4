"""What is said of any run: what follows from each kind of statement on a capture, and the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from nsys_llm.report.findings import CAPTURE
from nsys_llm.report.rules import EXPLAINER, OURS, Case, Rule, rules_by_id
from nsys_llm.trace.rank_trace import BROKEN_ROWS

#: Share of GPU time with a known API call below which what depends on launches is doubtful.
LOW_COVERAGE_PCT: Final = 70.0


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
    "earlier_run": Kind(limits=True, follows="all numbers describe the newest run"),
    "segment": Kind(limits=False, follows="the time between segments is left out"),
    "rank_twice": Kind(limits=True, follows="ranks are numbered by the order of their files"),
    "shared_gpu": Kind(
        limits=False, follows="time in which another process runs there is not idle"
    ),
    "silent_processes": Kind(limits=True, follows="no rank can be compared with them"),
    "silent_work": Kind(limits=True, follows="this process is left out of all numbers"),
    "lost_work": Kind(limits=True, follows="what looks idle there may be none"),
    "unawaited_work": Kind(limits=False, follows="this process is left out of all numbers"),
    "broken_times": Kind(limits=True, follows="sums and counts lack them"),
    "whole_graphs": Kind(limits=True, follows="the kernels in them are not seen"),
    "unknown_table": Kind(limits=True, follows="its contents are left out"),
    "page_migrations": Kind(limits=False, follows="no call launches them"),
    "cut_work": Kind(limits=False, follows="their work is left out"),
    "nsys_message": Kind(limits=False, follows="it may be why work is missing"),
    "unknown_messages": Kind(limits=False, follows="nothing"),
}

_rule: Final = partial(Rule, scope="run", kind=CAPTURE, source=OURS, tables=("capture",))

#: Of a kind without one another one's sentence tells.
RULES: Final = rules_by_id(
    _rule(
        id="earlier_run",
        title="{files_n:earlier profile} {files_n:=is|are} left out",
        details="{names}: the same program on the same GPUs, recorded before the others began. All "
        "numbers describe the newest run.",
        threshold="a profile ends before others with the same program and GPU, or the same host "
        "and rank, begin",
        recommendation="Compare the runs with trace_diff[: {command}].",
        tables=("capture", "files"),
    ),
    _rule(
        id="segment",
        title="{files_n:rank} {files_n:=was|were} recorded in {rows_n:segment}, read as one",
        details="{names}: numbers cover all segments, without the time between them.",
        threshold="profiles of one process, or of its children, were recorded one after the other",
        recommendation="Pass the profile of one segment to see it alone.",
    ),
    _rule(
        id="rank_twice",
        title="{files_n:profile} {files_n:=claims|claim} the rank of another profile of the same "
        "job",
        details="{names}: ranks are therefore numbered by the order of their files.",
        threshold="two profiles of one job claim the same rank",
        recommendation="Leave out the duplicate, or number the ranks with --rank-map.",
        tables=("capture", "files"),
    ),
    _rule(
        id="shared_gpu",
        title="{processes_n:process|processes} {processes_n:=uses|use} a GPU at the same time as "
        "others",
        details="{names}. Time in which another process runs there is `other process`. It is "
        "not idle time and enters no gain. Kernels that run at once slow each other down.",
        threshold="two processes use the same GPU or slice of one, as far as profiles show",
        recommendation="Give each process its own GPU to see how much they cost each other.",
        tables=("capture", "wall"),
    ),
    _rule(
        id="silent_processes",
        title="{silent_n} of {all_n:process|processes} launched {launches_n:{unit}} that "
        "{launches_n:=was|were} not recorded",
        details="The calls were recorded, but none of their work.[ Nsight Systems itself says: "
        "{reasons}.]{then} Processes: {names}.",
        threshold="a process launched work that must have ended inside the capture, but has no row",
        recommendation="{advice}",
        record="--trace=cuda,nvtx --trace-fork-before-exec=true",
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
    _rule(
        id="lost_work",
        title="{lost_n:{unit}}{whose} {lost_n:=was|were} launched and not recorded"
        "[, on {lost_ranks_n:rank}][, between {first_ns} and {last_ns}]",
        details="Each must have ended before the capture did.[ Nsight Systems itself says: "
        "{reasons}.] Idle time meanwhile counts as not recorded, without a cause or a gain. "
        "Steps with such launches enter no statistic. Processes: {names}.",
        threshold="a launch left no row, although later work of its stream did, or was waited for",
        recommendation="{advice}",
        record="--cuda-flush-interval=100",
    ),
    _rule(
        id="unawaited_work",
        title="{count_n:launch|launches} of {processes_n:process|processes} without any row may "
        "have run only after the end of the capture",
        details="{names}: nothing in the capture waits for that work.",
        threshold="a process launched work, has no row, and never waits for it",
        recommendation="If these processes work during the capture, record longer.",
    ),
    _rule(
        id="cut_work",
        title="{count_n:launch|launches} may have run only after the end of the capture",
        details="{names}: nothing shows that this work ended earlier. It is left out of all "
        "numbers.",
        threshold="a launch left no row, and nothing shows that its work ended in the capture",
        recommendation="This is normal: a capture ends while work is queued.",
    ),
    _rule(
        id="broken_times",
        title="{count_n} of {of_n} GPU operations have no usable times and are left out",
        details=f"{{names}}: {BROKEN_ROWS}.",
        threshold="a row of GPU work is left out for its times",
        recommendation="Record again, with a newer Nsight Systems if possible.",
    ),
    _rule(
        id="whole_graphs",
        title="{count_n:CUDA graph} {count_n:=was|were} traced as a whole: the kernels in "
        "{count_n:=it|them} are not recorded",
        details="{names}: no recipe sees these kernels.",
        threshold="`nsys-llm check` finds 1 CUDA graph or more that was traced as a whole",
        recommendation="Record a few steps with the nodes of graphs. This makes them 30 to 60 % "
        "longer.",
        record="--cuda-graph-trace=node",
    ),
    _rule(
        id="unknown_table",
        title="{count_n:table} of the export {count_n:=has|have} an unknown form",
        details="{names}: {kinds}. Their contents are left out.",
        threshold="a table named like a known one, or NVTX payloads in separate columns or tables",
        recommendation="Export the profile with an older Nsight Systems, or update this package.",
    ),
    _rule(
        id="page_migrations",
        title="{count_n} copies are page migrations of unified memory by the driver",
        details="No call launches them. {names}: {kinds}.",
        threshold="a copy is a migration of unified memory",
        source="CUPTI's copy kinds",
        recommendation="Kernels wait for missing pages. Prefetch them "
        "(cudaMemPrefetchAsync), advise the driver where they are used (cudaMemAdvise), or keep "
        "the data in device memory.",
    ),
    _rule(
        id="unprofiled_step",
        title="Under the profiler steps take {slow_ratio:.2f} times as long, {launch_ns} more for "
        "each GPU operation",
        details="Gains are those without it: what it adds is taken off its own work and idle time "
        "first, then off all else alike.",
        threshold="--unprofiled-step says how long a step takes without the profiler",
        recommendation="Shares of idle time read too high by that. Record less (no CPU samples, no "
        "--cuda-graph-trace=node) to be closer to the program as it runs.",
        tables=("wall", "coverage"),
        cases={
            "same": Case(
                title="Steps take no longer under the profiler than --unprofiled-step says"
            )
        },
    ),
    _rule(
        id="missing_ranks",
        title="{files_n} of {all_n:rank or profile|ranks or profiles} {files_n:=is|are} missing "
        "from every number",
        details="{reasons}",
        threshold="a rank or profile was not read",
        recommendation="Fix or supply them before comparing ranks: the slow rank may be among "
        "them.",
        tables=("files",),
    ),
    _rule(
        id="groups",
        title="The {ranks_n:rank} {ranks_n:=is|are} {groups_n:group} that have no collective in "
        "common",
        details="{names}. Ranks are compared within their group. Mean steps are those of "
        "{largest}, which has the most GPU time.",
        threshold="ranks share no matched collective, directly or through others, and run "
        "different programs, different kinds of steps or at different times",
        recommendation="Analyze the files of one group alone to see all of its findings.",
        tables=("files",),
    ),
    _rule(
        id="no_gpu_work",
        title="{files_n} of {all_n:rank or profile|ranks or profiles} {files_n:=holds|hold} no GPU "
        "work[: {few}]",
        details="Valid profiles without a kernel, copy or fill: {names}.",
        threshold="a profile holds no GPU work",
        recommendation="If these processes use the GPU, CUDA was not traced, or tracing began too "
        "late or after the process was forked. Otherwise leave them out of --input.",
        record="--trace=cuda,nvtx --trace-fork-before-exec=true",
        tables=("files",),
    ),
    Rule(
        "low_api_coverage",
        scope="rank",
        kind=CAPTURE,
        title="Only {known_pct} of the GPU time of {file:quoted} is attributed to an API call",
        details="{known_ns} of {of_ns}[ (without {cut_ns} launched before the capture began)]. "
        "{low_n} of {all_n} ranks are below {limit_pct:g} %.",
        threshold=f"below {LOW_COVERAGE_PCT:g} % of a rank's GPU time with a known API call",
        source=f"the coverage of NVTX below which {EXPLAINER} warns",
        recommendation="Do not rely on launch-based results here: launch times, threads, NVTX "
        "ranges. Kernel times are complete. Start the capture before the first launch.",
        record="--trace=cuda",
        tables=("coverage",),
    ),
)
