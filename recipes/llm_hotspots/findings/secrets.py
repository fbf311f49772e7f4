"""The finding on what a report stores besides the trace, before somebody shares it."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Tables
from nsys_llm.view.text import counted, quoted

from .texts import RULES

_MOST_NAMED: Final = 6


def secret_findings(tables: Tables) -> list[Finding]:
    """Return a finding if reports store variables that look like secrets; by name only."""
    files = tables["files"]
    with_secrets = files[files["secret_variables"].notna()]
    if with_secrets.empty:
        return []
    listed = with_secrets["secret_variables"].str.split(", ").explode()
    names = sorted(set(listed))
    shown = ", ".join(quoted(name) for name in names[:_MOST_NAMED])
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return [
        RULES["stored_secrets"].finding(
            severity="medium",
            details=f"In {counted(len(with_secrets), 'rank or report', 'ranks or reports')} of "
            f"{len(files)}: {shown}{more}. A report keeps the whole environment of the profiled "
            "command, in two places; these results hold the names alone.",
            fields={"variables": counted(len(names), "variable")},
        )
    ]
