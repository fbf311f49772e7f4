"""What an answer says of the first finding, alike in all recipes. Reads the table `findings`."""

from __future__ import annotations

from nsys_llm.report.findings import PERFORMANCE
from nsys_llm.report.price import row_words
from nsys_llm.report.records import Tables, first_record


def first_words(tables: Tables, unit: str = "step") -> str:
    """Return what to fix first as a sentence; nothing where no finding gains enough."""
    rows = tables["findings"]
    rows = rows[rows["kind"] == PERFORMANCE]
    if rows.empty:
        return ""
    row = first_record(rows)
    return f"Fix first: {row['title']} ({row_words(row, unit)})."
