"""What changed between two runs: the time of a step, whether that is chance, and what explains it.

Method. The wall clock decides: full steps of equal work are compared (see `tables.comparability`),
by two tests for chance (see `tables.step_verdict`). Classes of the wall add up to the change, and
kernels, calls and copies explain each class (see `findings.changes`). A kernel's change is split
exactly, by its name over all ranks: what more or fewer launches make, at the mean of the baseline,
and the rest, which longer or shorter ones make (see `nsys_llm.numeric.effects`). Whether durations
differ is told by Mann-Whitney's test over all launches, adjusted for the number of kernels, and by
the size of the change of the median (see `tables.kernels`). Ranks are reduced to integers first.

Limits. Steps and launches of one run are not independent: what differs significantly may differ
between any two runs. Only further runs of the baseline tell that. Sums compare runs of the same
work. Kernels in a CUDA graph that was traced as a whole are not there.
"""

from __future__ import annotations

from typing import Final

from nsys_llm.report.analysis import Analysis

from .findings.answer import answer, caveats
from .findings.changes import findings
from .tables.tabulation import tabulate

ANALYSIS: Final = Analysis(
    needs=("collectives", "held", "compared"),
    tabulate=tabulate,
    findings=findings,
    answer=answer,
    caveats=caveats,
)
