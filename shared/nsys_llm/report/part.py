"""What a recipe found: its run, its tables and its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pandas as pd

from nsys_llm.report.report import Report
from nsys_llm.report.run import Run

#: Below the folder of an overview: a folder for each of its recipes.
PARTS_FOLDER: Final = "parts"


@dataclass(frozen=True)
class Part:
    """The results of one recipe: of a run of its own, or of a part of an overview.

    Attributes:
        run: What was read, as this recipe sees it.
    """

    run: Run
    tables: Mapping[str, pd.DataFrame]
    report: Report
