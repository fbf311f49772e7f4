"""What to know before reading paths: what was inferred, what is not recorded."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.records import Tables, records
from nsys_llm.view.text import format_ns, quoted

from .on_path import step_unit

#: Share of a step by which the path of the run and those of the steps may differ in a class; ours.
_SAME_PCT: Final = 1.0


def caveats(tables: Tables) -> list[str]:
    """Return what to know before reading the numbers, as prose."""
    ranks = tables["rank_edges"]
    texts = _overlapping(tables)
    if len(ranks) and (reasons := ranks["reason"].dropna()).size:
        texts.append(f"There are no steps of the job: {reasons.iloc[0]}.")
    if len(ranks) and not ranks["event_rows"].any():
        texts.append(
            "CUDA events were not recorded, so waits between streams are inferred and marked as "
            "inferred. Record them with `--cuda-event-trace=true`."
        )
    error_ns = int(ranks["clock_error_ns"].max()) if len(ranks) else 0
    if error_ns:
        texts.append(
            f"Clocks of host and GPU disagree by at least {format_ns(error_ns)}: latencies shorter "
            "than that are not known."
        )
    return texts


def _overlapping(tables: Tables) -> list[str]:
    """Say where the path of the whole run is made of other classes than those of the steps."""
    classes, changes = tables["step_classes"], tables["ceilings"]
    whole = classes[(classes["scope"] == "job") & classes["detail"].isna()]
    means = {row["class"]: row["mean_ns"] for row in records(whole)}
    rows = records(changes[changes["change"] == "class"])
    apart = [
        row
        for row in rows
        if 100 * abs(row["path_ns"] - means.get(row["name"], 0.0)) > _SAME_PCT * row["wall_ns"]
    ]
    if not apart:
        return []
    row = max(apart, key=lambda row: abs(row["path_ns"] - means.get(row["name"], 0.0)))
    unit = step_unit(tables)
    return [
        f"{unit.capitalize()}s overlap: {quoted(row['name'])} takes {format_ns(row['path_ns'])} a "
        f"{unit} on the path through the whole run and {format_ns(means.get(row['name'], 0.0))} on "
        f"the paths of single {unit}s. Ceilings use the first number."
    ]
