"""What a replay says of the fix that a finding proposes."""

from __future__ import annotations

from nsys_llm.report.findings import Evidence, cells
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.view.text import format_ns, format_percent


def replayed(tables: Tables, change: str) -> Record | None:
    """Return the row of what_if of a change; None where it is not replayed."""
    rows = [row for row in records(tables["what_if"]) if row["gain_ns"] is not None]
    return next((row for row in rows if row["change"] == change), None)


def replay_words(row: Record | None) -> tuple[str, tuple[Evidence, ...]]:
    """Return what a replay says of a fix, as a sentence, and the cells with its numbers."""
    if row is None or row["gain_pct"] is None or row["certain_pct"] is None:
        return "", ()
    reported = (
        f" Replayed with the fix, a step takes {format_ns(row['then_ns'])}, "
        f"{format_percent(row['gain_pct'])} less; {format_percent(row['certain_pct'])} of the path "
        "then is certain."
    )
    return reported, cells("what_if", row, ("change",), ("then_ns", "gain_pct", "certain_pct"))
