"""What to fix first: all recipes on one read of each profile, and their findings as one list.

Method. Each rank is read once, with the columns that any of the recipes needs, and handed to all of
them; their partials travel and merge side by side, so that each recipe's tables are those of a run
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
from .findings.texts import RULES
from .partials import OverviewPartial, merged
from .per_rank.rank import map_rank
from .tables.tabulation import tabulate
from .tables.timeline import timeline
from .tables.wall import rank_verdicts, wall_details

ANALYSIS: Final = Analysis(
    partial=OverviewPartial,
    map_rank=map_rank,
    merge=merged,
    is_composite=True,
    tabulate=tabulate,
    findings=findings,
    rules=RULES,
    answer=answer,
    caveats=caveats,
    wall_details=wall_details,
    rank_verdicts=rank_verdicts,
    matches_collectives=True,
    screen=screen,
    kernels_bound=lambda tables: next(iter(tables["recipes"]["kernels_bound"].dropna()), None),
    timeline=timeline,
)
