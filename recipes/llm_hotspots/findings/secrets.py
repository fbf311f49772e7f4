"""The finding on what a report stores besides the trace, before somebody shares it."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.findings import Finding
from nsys_llm.report.numbers import Numbers
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
    numbers = Numbers()
    processes_n = int(with_secrets["environments_n"].max())
    others = ""
    if processes_n:
        of_all = numbers.counted("environments_n", processes_n, "process", "processes")
        others = f", and in its strings that of {of_all} of the machine"
    shown = ", ".join(quoted(name) for name in names[:_MOST_NAMED])
    rest_n = max(len(names) - _MOST_NAMED, 0)
    more = f" and {numbers.count('more_n', rest_n)} more" if rest_n else ""
    return [
        RULES["stored_secrets"].finding(
            details=f"In {numbers.counted('profiles_n', len(with_secrets), 'profile')} of "
            f"{numbers.count('all_n', len(files))}: {shown}{more}. A profile keeps the whole "
            f"environment of the profiled command, in two places{others}; these results hold the "
            "names alone.",
            numbers=numbers.fields,
            fields={"variables": numbers.counted("variables_n", len(names), "variable")},
        )
    ]
