"""What an answer says of the first finding, alike in all recipes, and of none."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.capture_findings import capture_findings
from nsys_llm.report.price import price_of, price_words
from nsys_llm.report.records import Tables, first_record

#: Remarks on work that was launched and is not there, the gravest first.
LACKING: Final = ("silent_processes", "unawaited_work")


def nothing_ran(tables: Tables, what: str = "Nothing ran on a GPU") -> str:
    """Return the answer of a run without GPU work, and which table says more.

    Where work was launched and not recorded, that is the answer.
    """
    lacking = [finding for finding in capture_findings(tables) if finding.rule in LACKING]
    if lacking:
        said = lacking[0]
        return f"{said.title}. {said.details} {said.recommendation}"
    if tables["coverage"].empty:
        return f"{what}. `files` says what was read."
    return (
        f"{what} in the selection. `coverage` says what the profiles hold, and what a filter left "
        "of it."
    )


def first_words(tables: Tables, unit: str = "step") -> str:
    """Return what to fix first as a sentence; nothing where no finding gains enough."""
    rows = tables["findings"]
    rows = rows[rows["severity"].notna()]
    if rows.empty:
        return ""
    row = first_record(rows)
    return f"Fix first: {row['title']} ({price_words(price_of(row, unit))})."
