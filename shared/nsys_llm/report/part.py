"""What a recipe found: its run, its tables and its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pandas as pd

from nsys_llm.job.collectives.matched import MatchedCollectives
from nsys_llm.report.report import Report
from nsys_llm.report.run import Run
from nsys_llm.trace.identity import Rank

#: Below the folder of an overview: a folder for each of its recipes.
PARTS_FOLDER: Final = "parts"


@dataclass(frozen=True)
class Part:
    """The results of one recipe: of a run of its own, or of a part of an overview.

    Attributes:
        run: What was read, as this recipe sees it.
        matched: The collectives of its ranks; None where it needs none.
        parts: Of an overview: the results of its recipes, by name.
    """

    run: Run
    tables: Mapping[str, pd.DataFrame]
    report: Report
    matched: MatchedCollectives | None = None
    parts: Mapping[str, Part] = field(default_factory=dict)


@dataclass(frozen=True)
class OverviewParts:
    """What the own tables of an overview are made of.

    Attributes:
        ranks: Those with GPU work, in order.
        options: Of the overview.
    """

    parts: Mapping[str, Part]
    ranks: Sequence[Rank]
    options: Mapping[str, Any]
