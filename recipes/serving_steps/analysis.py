"""What a step of a server costs by what is in its batch, and what users wait between tokens.

Method. Engines write what is in the batch of a step into the name of its range; one parser reads
it for all recipes (`nsys_llm.taxonomy.step_names`). A step begins to cost where its range begins,
or where the step before ends, if that is later, and ends with all that it launched. Steps of one
phase are fitted by their tokens and contexts, so that few outliers bend nothing. Users wait from
the end of one step that generates to that of the next.

Limits. What a name does not tell is null. Nothing is said of the time to a first token, of queues,
or of single requests: names tell numbers, not who is in a batch. With drafts the time between
tokens is per step. CUDA graphs that are traced node by node take longer than they do without the
profiler, and so do all coefficients.
"""

from __future__ import annotations

from typing import Final

from nsys_llm.report.analysis import Analysis
from nsys_llm.report.screen import Screen

from .findings.answer import answer, caveats, findings, headline
from .tables.tabulation import tabulate

ANALYSIS: Final = Analysis(
    needs=("serving",),
    tabulate=tabulate,
    findings=findings,
    answer=answer,
    caveats=caveats,
    screen=lambda tables: Screen(lines=tuple(headline(tables))),
)
