"""Which ranks exchange how much and how fast, and what pipelines and uneven experts cost.

Method. Which kernels of which ranks are one collective, who waits in it and for how long is decided
in `nsys_llm.job.collectives`, as for all recipes. Here the time of each step of a pipeline's
stage is divided, each nanosecond once, and its bubble into what the schedule, uneven stages and all
else cost. Groups of ranks get the axis of parallelism that --layout or their pattern tells.

Limits. What a schedule costs is exact for equal stages. An axis is inferred only where exactly one
rule fits.
"""

from __future__ import annotations

from typing import Final

from nsys_llm.report.analysis import Analysis

from .findings.answer import answer, caveats, findings
from .tables.tabulation import tabulate

ANALYSIS: Final = Analysis(
    needs=("collectives", "nccl"),
    tabulate=tabulate,
    findings=findings,
    answer=answer,
    caveats=caveats,
)
