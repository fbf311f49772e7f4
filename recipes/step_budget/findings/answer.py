"""What step_budget says first: what a step is made of, and what to fix."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.answers import first_words, nothing_ran
from nsys_llm.report.records import Tables, records
from nsys_llm.view.text import counted, format_ns, format_percent, quoted

from .on_path import step_unit

_TOP: Final = 4
#: Share of a step by which the path of the run and those of the steps may differ in a class; ours.
_SAME_PCT: Final = 1.0


def answer(tables: Tables) -> str:
    """Return where a step's time goes, and what a fix gains."""
    steps, classes = tables["job_steps"], tables["step_classes"]
    if tables["device_steps"].empty:
        return nothing_ran(tables)
    if steps.empty:
        reason = tables["rank_edges"]["reason"].dropna()
        why = f": {reason.iloc[0]}" if len(reason) else ""
        return f"The ranks have no steps in common{why}. `device_steps` shows each rank's steps."
    ours = steps[steps["mark"] == ""]
    if ours.empty:
        return f"None of {counted(len(steps), step_unit(tables))} counts; `job_steps` says why."
    mean_ns = float(ours["wall_ns"].mean())
    unit = step_unit(tables) if tables["rank_edges"]["step_unit"].notna().any() else None
    top = classes[(classes["scope"] == "job") & classes["detail"].isna()]
    top = top.sort_values("mean_ns", ascending=False, kind="stable").head(_TOP)
    parts = [f"{quoted(row['class'])} {format_percent(row['share_pct'])}" for row in records(top)]
    certain = 100.0 * int(ours["certain_ns"].sum()) / max(int(ours["wall_ns"].sum()), 1)
    takes = f"No steps were found: the run takes {format_ns(round(mean_ns))}"
    if unit is not None:
        steps_n = counted(len(ours), unit)
        takes = f"A {unit} takes {format_ns(round(mean_ns))} on average ({steps_n})"
    reported = (
        f"{takes}{_on_one(tables, mean_ns)}; on its critical path: "
        f"{', '.join(parts)}; {format_percent(certain)} of it is certain."
    )
    return f"{reported} {first_words(tables, unit or 'run')}".rstrip()


def _on_one(tables: Tables, mean_ns: float) -> str:
    """Return how long a step takes on a single GPU, if that is not what all of them take.

    Other recipes give the mean over GPUs; a step of the job ends where its last GPU does.
    """
    steps = tables["device_steps"]
    windows = steps.loc[steps["mark"] == "", "window_ns"]
    alone = format_ns(round(float(windows.mean()))) if len(windows) else ""
    gpus_n = len(steps[["rank", "device_id"]].drop_duplicates())
    if gpus_n < 2 or alone in ("", format_ns(round(mean_ns))):
        return ""
    return f" until its last GPU is done, {alone} on a single GPU"


def caveats(tables: Tables) -> list[str]:
    """Return what to know before reading the numbers, as prose."""
    ranks = tables["rank_edges"]
    texts = _overlapping(tables)
    if len(ranks) and (reasons := ranks["reason"].dropna()).size:
        texts.append(f"The job has no common steps: {reasons.iloc[0]}.")
    if len(ranks) and not ranks["event_rows"].any():
        texts.append(
            "CUDA events were not recorded, so waits between streams are inferred and labeled "
            "so. Record them with `--cuda-event-trace=true`."
        )
    error_ns = int(ranks["clock_error_ns"].max()) if len(ranks) else 0
    if error_ns:
        texts.append(
            f"The host and GPU clocks disagree by at least {format_ns(error_ns)}. Shorter "
            "latencies are unknown."
        )
    return texts


def _overlapping(tables: Tables) -> list[str]:
    """Say where the path of the whole run is made of other classes than those of the steps."""
    classes, changes = tables["step_classes"], tables["ceilings"]
    whole = classes[(classes["scope"] == "job") & classes["detail"].isna()]
    means = {row["class"]: row["mean_ns"] for row in records(whole)}
    rows = records(changes[changes["change"] == "class"])
    by_ns = [abs(row["path_ns"] - means.get(row["name"], 0.0)) for row in rows]
    pairs = zip(by_ns, rows, strict=True)
    apart = [(ns, row) for ns, row in pairs if 100 * ns > _SAME_PCT * row["wall_ns"]]
    if not apart:
        return []
    row = max(apart, key=lambda pair: pair[0])[1]
    unit = step_unit(tables)
    return [
        f"{unit.capitalize()}s overlap: {quoted(row['name'])} takes {format_ns(row['path_ns'])} a "
        f"{unit} on the path through the whole run and {format_ns(means.get(row['name'], 0.0))} on "
        f"the paths of single {unit}s. Ceilings use the first number."
    ]
