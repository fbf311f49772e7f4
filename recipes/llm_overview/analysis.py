"""What to fix first: all recipes on one read of each profile, and their findings as one list.

Method. Each rank is read once, with the columns that any of the recipes needs, and handed to all of
them; what they need is computed once a rank, so that each recipe's tables are those of a run
of its own, bit for bit. Their findings become opportunities: those of one cause are one, with all
their evidence, and `joins.py` declares which cause is part of which. The cause that stays gives the
price. Every finding is accounted for in `all_findings`.

Limits. Gains overlap and do not add up. What a recipe could not see it says in its own report.
"""

from __future__ import annotations

from typing import Final

from nsys_llm.report.analysis import Analysis

from .findings.answer import answer, caveats, findings
from .findings.screen import screen
from .tables.tabulation import tabulate
from .tables.timeline import timeline

ANALYSIS: Final = Analysis(
    needs=(),
    tabulate=tabulate,
    findings=findings,
    answer=answer,
    caveats=caveats,
    screen=screen,
    timeline=timeline,
)
