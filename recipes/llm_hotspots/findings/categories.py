"""The remark on kernels that match no rule."""

from __future__ import annotations

from nsys_llm.report.findings import Finding, cells
from nsys_llm.report.numbers import Numbers
from nsys_llm.report.records import Tables, first_record
from nsys_llm.taxonomy.categories import UNMATCHED
from nsys_llm.view.text import quoted

from .texts import RULES, UNMATCHED_PCT


def category_findings(tables: Tables) -> list[Finding]:
    """Return what is to be said about categories.

    Args:
        tables: Finished tables by name: kernels, categories.
    """
    categories = tables["categories"]
    rows = categories[categories["category"] == UNMATCHED]
    if rows.empty or not rows["busy_pct"].fillna(0).iloc[0] >= UNMATCHED_PCT:
        return []
    row, kernels, numbers = first_record(rows), tables["kernels"], Numbers()
    unknown = kernels[kernels["category"] == UNMATCHED]
    heaviest = f"; the heaviest is {quoted(unknown['name'].iloc[0])}" if len(unknown) else ""
    return [
        RULES["unmatched_kernels"].finding(
            details=f"{numbers.counted('kernels_n', row['kernels_n'], 'kernel name')}, "
            f"{numbers.ns('exclusive_ns', row['exclusive_ns'])}{heaviest}.",
            evidence=cells("categories", row, ["category"], ["kernels_n", "exclusive_ns"]),
            numbers=numbers.fields,
            fields={"share": numbers.percent("busy_pct", row["busy_pct"])},
            name=UNMATCHED,
            impact_ns=row["exclusive_ns"],
        )
    ]
