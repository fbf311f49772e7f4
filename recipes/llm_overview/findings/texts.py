"""What the overview says of its own: nothing but what the recipes found."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.findings import CAPTURE
from nsys_llm.report.price import limits_words
from nsys_llm.report.rules import Rule, rules_by_id

_SOURCE: Final = "the recipe that has the finding"

RULES: Final = rules_by_id(
    Rule(
        "opportunity",
        scope="run",
        title="{title}",
        threshold=f"{limits_words()}; has the id of the recipe's rule",
        source=_SOURCE,
        recommendation="{recommendation}",
        tables=("opportunities", "all_findings"),
    ),
    Rule(
        "remark",
        scope="run",
        kind=CAPTURE,
        title="{title}",
        threshold="once for each remark of any recipe (1 or more); has the id of its rule",
        source=_SOURCE,
        recommendation="{recommendation}",
        tables=("all_findings",),
    ),
)
