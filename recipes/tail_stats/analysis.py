"""What makes the tail: slow launches within a launch configuration, ranks and times that have them.

Method. Launches are grouped by kernel and launch configuration (grid, block, dynamic shared
memory), because two shapes of one kernel differ in duration without any of them being slow.
Durations are counted exactly, so percentiles over all ranks are those of all launches together, and
what a launch takes beyond the median of its configuration over all ranks is a number that adds up
over launches and ranks.

Limits. Within one configuration a kernel may still have different work to do (lengths of sequences,
routing of experts): what is there is told, not why. Kernels in a CUDA graph that was traced as a
whole are not there.
"""

from __future__ import annotations

from typing import Final

from nsys_llm.report.analysis import Analysis

from .findings.answer import answer, caveats, findings
from .tables.tabulation import tabulate

ANALYSIS: Final = Analysis(
    needs=("collectives", "tails", "held"),
    tabulate=tabulate,
    findings=findings,
    answer=answer,
    caveats=caveats,
)
