"""Why the GPU was idle: every gap of every device, its cause, and what it costs.

Method. A gap is a stretch of a device's window in which nothing runs: no kernel, copy, fill or
whole graph; an operation of no length ends one gap and begins the next. Busy time is the rest of
the window; of the gaps, what the profiler took for itself is overhead, and all else is idle time:
window = busy + overhead + idle, to the nanosecond. `nsys_llm.taxonomy.idle_causes` tells how a
gap's time is split.

The window is that of the filters if they give one, as far as the capture goes, or all of the
capture where that is asked for; else it reaches from the device's first operation to its last, of
those that the filters leave. What else ran on the device then, ran.

Limits. Where CUDA graphs were traced as a whole and the export has no row for them, the GPU's work
is not in the report: idle time is not known then, and not guessed. The trace shows what the
launching thread did, and not always why: `certain` is the time for which it does.
"""

from __future__ import annotations

from typing import Final

from nsys_llm.report.analysis import Analysis

from .findings.answer import answer, caveats, findings
from .tables.tabulation import tabulate

ANALYSIS: Final = Analysis(
    needs=("idle", "idle_causes"),
    tabulate=tabulate,
    findings=findings,
    answer=answer,
    caveats=caveats,
)
