"""What each phase costs on the GPU: every operation attributed to the NVTX range of its launch.

Method. An operation belongs to the range that began last of those open when and where it was
launched (see `nsys_llm.facts.nvtx.attributed_ops`, which also says what stands for the launch
where that finds nothing). A phase is that of the nearest range around the launch that the phase
map knows; what has none is unmapped, in no range, or without an API call, so that the rows add up
to the GPU time, to the nanosecond. Steps hold what any thread launches in them.

Limits. A range says where work was launched, not where it ran: on the GPU it comes later, and
beside other work. Operations of a graph come from one launch, however long ago they were captured.
Host times are the profiled run's, with the cost of its ranges in them.
"""

from __future__ import annotations

from typing import Final

from nsys_llm.report.analysis import Analysis
from nsys_llm.report.screen import Screen

from .findings.answer import answer, caveats, findings, headline
from .tables.tabulation import tabulate

ANALYSIS: Final = Analysis(
    needs=("phases",),
    tabulate=tabulate,
    findings=findings,
    answer=answer,
    caveats=caveats,
    screen=lambda tables: Screen(lines=tuple(headline(tables))),
)
