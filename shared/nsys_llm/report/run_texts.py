"""The rules that every recipe shares: what is missing from a run."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.findings import CAPTURE
from nsys_llm.report.rules import EXPLAINER, OURS, Rule, rules_by_id

#: Share of GPU time with a known API call below which what depends on launches is doubtful.
LOW_COVERAGE_PCT: Final = 70.0

RULES: Final = rules_by_id(
    Rule(
        "missing_ranks",
        scope="run",
        kind=CAPTURE,
        title="{who} {are} missing from every number",
        threshold="a rank or profile was not read",
        source=OURS,
        recommendation="Fix or supply them before you compare ranks: the slow rank may be "
        "one of those.",
        tables=("files",),
    ),
    Rule(
        "unrelated_profiles",
        scope="run",
        kind=CAPTURE,
        title="These {profiles} do not look like one job: {why}",
        threshold="no profile gives its rank, none communicates, and each is of another program or "
        "they ran one after the other",
        source=OURS,
        recommendation="Analyze them one by one, or compare two of them with trace_diff. Sums and "
        "means over them mean little; no rank is compared with the others.",
        tables=("files", "wall"),
    ),
    Rule(
        "no_gpu_work",
        scope="run",
        kind=CAPTURE,
        title="{some} {hold} no GPU work",
        threshold="a profile holds no GPU work",
        source=OURS,
        recommendation="If these processes use the GPU, CUDA was not traced, tracing began too "
        "late, or the process was forked before it; else leave them out of --input.",
        record="--trace=cuda,nvtx --trace-fork-before-exec=true",
        tables=("files",),
    ),
    Rule(
        "opaque_graphs",
        scope="run",
        kind=CAPTURE,
        title="{launches} CUDA graph launches left no GPU work in the profiles",
        threshold="launches of CUDA graphs left no GPU work",
        source=OURS,
        recommendation="Do not read idle time or shares of the whole from this capture.",
        record="--cuda-graph-trace=node",
        tables=("coverage",),
    ),
    Rule(
        "low_api_coverage",
        scope="rank",
        kind=CAPTURE,
        title="Only {share} of the GPU time of {file} is attributed to an API call",
        threshold=f"below {LOW_COVERAGE_PCT:g} % of a rank's GPU time with a known API call",
        source=f"the coverage of NVTX below which {EXPLAINER} warns",
        recommendation="Do not rely on what depends on launches here: launch times, threads, NVTX "
        "ranges. Kernel times themselves are complete. Start the capture before the first launch.",
        record="--trace=cuda,nvtx",
        tables=("coverage",),
    ),
)
