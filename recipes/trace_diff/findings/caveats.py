"""What to know before reading a comparison: what differs, and what its significance is worth."""

from __future__ import annotations

from nsys_llm.report.records import Tables, records
from nsys_llm.trace.rank_sets import COMPARED
from nsys_llm.view.text import counted, format_ns

from ..tables.checks import DIFFERS, SAME, UNKNOWN
from .changes import sides_of


def caveats(tables: Tables) -> list[str]:
    """Return what to know before reading the numbers, as prose."""
    return [
        *_differences(tables),
        *_unsure(tables),
        *_significance(tables),
        *_windows(tables),
    ]


def _differences(tables: Tables) -> list[str]:
    rows = tables["comparability"]
    lines = []
    for row in records(rows[~rows["status"].isin([SAME, UNKNOWN])]):
        before, after = sides_of(row)
        weight = "differ" if row["status"] == DIFFERS else "are not comparable"
        lines.append(f"The runs {weight} in {row['check']} ({before}; {after}): {row['meaning']}.")
    return lines


def _unsure(tables: Tables) -> list[str]:
    """Say how much time in collectives is in no sum of waiting and transfer."""
    rows = tables["collectives"]
    whole = rows[rows["communicator"] == "all"]
    unsure = {side: int(whole[f"{side}_unsure_ns"].sum()) for side in COMPARED}
    parts = [f"{format_ns(ns)} of the {side}" for side, ns in unsure.items() if ns]
    if not parts:
        return []
    return [
        f"Which collectives belong together has low confidence for {' and '.join(parts)}: waiting "
        "and transfer leave that time out."
    ]


def _significance(tables: Tables) -> list[str]:
    repeats_n = int(tables["runs"]["tells_noise"].sum())
    if repeats_n:
        return [
            f"Noise is the spread of the baseline and {counted(repeats_n, 'further run')} of it: "
            "largest minus smallest value. Few runs show little of it."
        ]
    return [
        "Significance is within-run only: launches of one run are not independent, and two runs of "
        "the same code may differ by more than chance among launches allows. Give `--baselines` "
        "further runs of the baseline to know their noise."
    ]


def _windows(tables: Tables) -> list[str]:
    runs = tables["runs"].set_index("run")
    if not runs.loc[list(COMPARED), "steps_n"].isna().any():
        return []
    return [
        "Steps are not counted in both runs, so sums are over the windows: where a capture lasts a "
        "given time, a slower run does less in it and its sums may shrink."
    ]
