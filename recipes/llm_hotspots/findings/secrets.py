"""The finding on what a report stores besides the trace, before somebody shares it."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Tables
from nsys_llm.view.text import quoted

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
    return [
        RULES["stored_secrets"].finding(
            fields={
                "profiles_n": len(with_secrets),
                "all_n": len(files),
                "shown": ", ".join(quoted(name) for name in names[:_MOST_NAMED]),
                "more_n": max(len(names) - _MOST_NAMED, 0),
                "environments_n": int(with_secrets["environments_n"].max()),
                "variables_n": len(names),
            },
        )
    ]
