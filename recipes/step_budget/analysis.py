"""Where a step's wall-clock time goes: the critical path, and what a fix gains at most.

Method. Walk backwards from the operation that ends a step to the step's begin. At each point one
activity is the one that had to finish; its time is charged, and the walk goes on at what activated
it: a launch, the operation before on its stream, an event, the call before on its thread, what a
call waited for, in a collective the rank that came last. Of several prerequisites it is the one
whose end and usual lag are latest. So each nanosecond is charged once, and classes add up to the
step. What a fix gains at most rests on one walk over the whole run.

Limits. Some edges are not recorded and have to be inferred: what lies behind one is not certain,
and each sum says how much of it is. Operations do not slow each other down here. Taking a wait away
may gain more than its own time, or less.
"""

from __future__ import annotations

from typing import Final

from nsys_llm.report.analysis import Analysis

from .findings.answer import answer, caveats
from .findings.on_path import findings
from .tables.tabulation import tabulate

ANALYSIS: Final = Analysis(
    needs=("collectives", "idle_causes", "paths"),
    tabulate=tabulate,
    findings=findings,
    answer=answer,
    caveats=caveats,
)
