"""The rules that every recipe shares: what is missing from a run."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.capture_texts import RULES as CAPTURE_RULES
from nsys_llm.report.findings import CAPTURE
from nsys_llm.report.rules import EXPLAINER, OURS, Case, Rule, rules_by_id

#: Share of GPU time with a known API call below which what depends on launches is doubtful.
LOW_COVERAGE_PCT: Final = 70.0

RULES: Final = rules_by_id(
    *CAPTURE_RULES.values(),
    Rule(
        "unprofiled_step",
        scope="run",
        kind=CAPTURE,
        title="Under the profiler steps take {slow_ratio:.2f} times as long, {launch_ns} more for "
        "each GPU operation",
        details="Gains are those without it: what it adds is taken off its own work and idle time "
        "first, then off all else alike.",
        threshold="--unprofiled-step says how long a step takes without the profiler",
        source=OURS,
        recommendation="Shares of idle time read too high by that. Record less (no CPU samples, no "
        "--cuda-graph-trace=node) to be closer to the program as it runs.",
        tables=("wall", "coverage"),
        cases={
            "same": Case(
                title="Steps take no longer under the profiler than --unprofiled-step says"
            ),
        },
    ),
    Rule(
        "missing_ranks",
        scope="run",
        kind=CAPTURE,
        title="{files_n} of {all_n:rank or profile|ranks or profiles} {files_n:=is|are} missing "
        "from every number",
        details="{reasons}",
        threshold="a rank or profile was not read",
        source=OURS,
        recommendation="Fix or supply them before comparing ranks: the slow rank may be among "
        "them.",
        tables=("files",),
    ),
    Rule(
        "groups",
        scope="run",
        kind=CAPTURE,
        title="The {ranks_n:rank} {ranks_n:=is|are} {groups_n:group} that have no collective in "
        "common",
        details="{names}. Ranks are compared within their group. Mean steps are those of "
        "{largest}, which has the most GPU time.",
        threshold="ranks share no matched collective, directly or through others, and run "
        "different programs, different kinds of steps or at different times",
        source=OURS,
        recommendation="Analyze the files of one group alone to see all of its findings.",
        tables=("files",),
    ),
    Rule(
        "no_gpu_work",
        scope="run",
        kind=CAPTURE,
        title="{files_n} of {all_n:rank or profile|ranks or profiles} {files_n:=holds|hold} no GPU "
        "work[: {few}]",
        details="Valid profiles without a kernel, copy or fill: {names}.",
        threshold="a profile holds no GPU work",
        source=OURS,
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
