"""The fix that gains most by a replay, in one sentence: what it gains, and what limits then."""

from __future__ import annotations

from typing import Final

from nsys_llm.manifest.what_if import COPIES, HOST, LAUNCHES, RANK, WAIT
from nsys_llm.report.gains import LIMITS_PCT, Gain
from nsys_llm.report.records import Tables, records
from nsys_llm.view.text import format_percent, quoted

from .gains import fix_gain
from .replays import waits_expose

#: What is a fix, in words; that a category were faster, or the device, is none.
_FIXES: Final = {
    RANK: "Making {name} as early as the median rank",
    WAIT: "Removing the waits of {name}",
    COPIES: "Removing all copies",
    LAUNCHES: "Launching at the price of a graph's nodes",
    HOST: "An infinitely fast host",
}
#: Gains below this are not worth a sentence, percent; that of findings.
_LEAST_PCT: Final = min(LIMITS_PCT.values())


def first_fix(tables: Tables) -> str:
    """Return what to fix first and what that gains; "" where no replay says so."""
    rows = records(tables["ceilings"])
    verdicts, wall = tables["rank_verdicts"], tables["wall"]
    named = verdicts.loc[verdicts["verdict"].notna(), "rank"]
    late = set(wall.loc[wall["rank"].isin(named), "file"])
    gains = [
        (row, fix_gain(rows, tables, row))
        for row in records(tables["what_if"])
        if row["what"] in _FIXES
        and (row["gain_pct"] or 0.0) >= _LEAST_PCT
        and (row["what"] != RANK or row["name"] in late)
    ]
    fixes = [(row, gain) for row, gain in gains if _about_pct(gain) >= _LEAST_PCT]
    waits_ns = sum(row["gain_ns"] for row, _ in fixes if row["what"] == WAIT)
    # Where waits expose the host's work, they are what to fix, as in the findings.
    fixes = [
        (row, gain)
        for row, gain in fixes
        if row["what"] != HOST or not waits_expose(waits_ns, row["gain_ns"])
    ]
    if not fixes:
        return ""
    row, gain = max(fixes, key=lambda fix: _about_pct(fix[1]))
    most = f", at most {format_percent(gain.gain_pct)}" if gain.is_bound else ""
    then = f"; then {quoted(row['next_limit'])} limits" if row["next_limit"] else ""
    fix = _FIXES[row["what"]].format(name="" if row["name"] is None else quoted(row["name"]))
    return f"{fix} gains about {format_percent(_about_pct(gain))} in a replay{most}{then}."


def _about_pct(gain: Gain) -> float:
    """Return the share that is printed: of the replay, as far as the GPU can win it."""
    return gain.gain_pct if gain.replayed_pct is None else gain.replayed_pct
