"""The remark on kernels that match no rule."""

from __future__ import annotations

from nsys_llm.report.findings import Finding, cells
from nsys_llm.report.records import Tables, first_record
from nsys_llm.taxonomy.categories import UNMATCHED

from .texts import RULES, UNMATCHED_PCT


def category_findings(tables: Tables) -> list[Finding]:
    """Return what is to be said about categories."""
    categories = tables["categories"]
    rows = categories[categories["category"] == UNMATCHED]
    if rows.empty or not rows["busy_pct"].fillna(0).iloc[0] >= UNMATCHED_PCT:
        return []
    row, kernels = first_record(rows), tables["kernels"]
    unknown = kernels.loc[kernels["category"] == UNMATCHED, "name"]
    return [
        RULES["unmatched_kernels"].finding(
            fields={
                "busy_pct": row["busy_pct"],
                "heaviest": unknown.iloc[0] if len(unknown) else None,
            },
            evidence=cells("categories", row, ["category"], ["kernels_n", "exclusive_ns"]),
            name=UNMATCHED,
            impact_ns=row["exclusive_ns"],
        )
    ]
