"""What one recipe of an overview found: its run, its tables and its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from nsys_llm.report.report import Report
from nsys_llm.report.run import Run


@dataclass(frozen=True)
class Part:
    """The results of one recipe, as a run of its own would have them.

    Attributes:
        run: What was read, as this recipe sees it.
        tables: All tables that its manifest declares.
        report: What it tells.
    """

    run: Run
    tables: Mapping[str, pd.DataFrame]
    report: Report
