"""The fix that gains most by a replay, in one sentence: what it gains, and what limits then."""

from __future__ import annotations

from typing import Final

from nsys_llm.manifest.what_if import COPIES, HOST, LAUNCHES, RANK, WAIT
from nsys_llm.report.gains import LIMITS_PCT
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.view.text import format_percent, quoted

from .replays import step_unit, waits_expose
from .texts import LARGEST_CHANCE

#: What is a fix, in words; that a category were faster, or the device, is none.
_FIXES: Final = {
    RANK: "Making {name} as early as the median rank",
    WAIT: "Removing the waits of {name}",
    COPIES: "Removing all copies",
    LAUNCHES: "Launching at the price of a graph's nodes",
    HOST: "An infinitely fast host",
}
#: What bounds it in `ceilings`: change and name.
_BOUNDS: Final = {RANK: "straggler", COPIES: "class"}
#: Gains below this are not worth a sentence, percent; that of findings.
_LEAST_PCT: Final = min(LIMITS_PCT.values())


def first_fix(tables: Tables) -> str:
    """Return what to fix first and what that gains; "" where no replay says so."""
    chances = {row["name"]: row["chance"] for row in _ceilings(tables, "straggler")}
    fixes = [
        row
        for row in records(tables["what_if"])
        if row["what"] in _FIXES
        and (row["gain_pct"] or 0.0) >= _LEAST_PCT
        and (row["what"] != RANK or chances.get(row["name"], 1.0) < LARGEST_CHANCE)
    ]
    waits_ns = sum(row["gain_ns"] for row in fixes if row["what"] == WAIT)
    # Where waits expose the host's work, they are what to fix, as in the findings.
    fixes = [
        row for row in fixes if row["what"] != HOST or not waits_expose(waits_ns, row["gain_ns"])
    ]
    if not fixes:
        return ""
    row = max(fixes, key=lambda fix: fix["gain_pct"])
    name = "" if row["name"] is None else quoted(row["name"])
    most_pct = _most_pct(tables, row)
    most = "" if most_pct is None else f", at most {format_percent(most_pct)}"
    then = f"; then {quoted(row['next_limit'])} limits" if row["next_limit"] else ""
    fix = _FIXES[row["what"]].format(name=name)
    unit = step_unit(tables)
    return f"{fix} shortens a {unit} by {format_percent(row['gain_pct'])} in a replay{most}{then}."


def _ceilings(tables: Tables, change: str) -> list[Record]:
    return [row for row in records(tables["ceilings"]) if row["change"] == change]


def _most_pct(tables: Tables, row: Record) -> float | None:
    """Return the bound of a gain, percent of the step; None where it has none that holds."""
    name = "copy" if row["what"] == COPIES else row["name"]
    for bound in _ceilings(tables, _BOUNDS.get(row["what"], "")):
        if bound["name"] == name and bound["is_bound"] and bound["path_ns"] >= row["gain_ns"]:
            return float(100.0 * bound["path_ns"] / bound["wall_ns"])
    return None
