"""What is found of sends and receives whose partners nobody knows. From tables alone."""

from __future__ import annotations

from typing import Any

import pandas as pd

from nsys_llm.job.collectives.stages import may_be_stages
from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import Evidence, Finding, claim
from nsys_llm.report.records import Tables, first_record
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, COMPUTE
from nsys_llm.view.text import gpus_words

from .texts import ALIKE, HEAVIER, LEAST_HEAVIER_PCT, RULES


def unplaced_pipeline(tables: Tables) -> list[Finding]:
    """Return the finding on stages whose sends and receives cannot be matched, if there are any.

    How long each computes and waits is known without a partner.
    """
    rows = tables["exchanges"]
    if rows.empty or not rows["unplaced"].all():
        return []
    places = rows.groupby("place")["compute_ns"].mean()
    others_ns = float(places.drop(places.idxmax()).median()) if len(places) > 1 else 0.0
    if others_ns and 100 * places.max() >= (100 + LEAST_HEAVIER_PCT) * others_ns:
        return [_heavier(tables, int(places.index.to_numpy()[places.argmax()]))]
    worst = first_record(rows.sort_values("wait_ns", ascending=False, kind="stable"))
    is_chain = may_be_stages(rows["kernels_n"].tolist())
    wait_ns = worst["wait_ns"]
    return [
        RULES["unplaced_pipeline"].finding(
            cause=Cause("schedule"),
            change=Change("microbatches", time_ns=wait_ns, sure_ns=wait_ns)
            if is_chain
            else Change("unknown", time_ns=wait_ns, wall_classes=(COMMUNICATION,)),
            case=None if is_chain else ALIKE,
            evidence=(_share(tables, "wait_pct", "wait_ns"),),
            ranks=tuple(sorted(set(rows["rank"]))),
            rank=worst["rank"],
            device_id=worst["device_id"],
            impact_ns=wait_ns,
        )
    ]


def _heavier(tables: Tables, place: int) -> Finding:
    """Return the finding on the stage that computes most.

    Were it as the mean one, each further microbatch would take less. How many there are follows
    from what the first one takes: the bubble is the others' time for one.
    """
    rows = tables["exchanges"]
    places, here = rows.groupby("place")["compute_ns"].mean(), rows["place"] == place
    most_ns, whole_ns = float(places.max()), float(rows["window_ns"].mean())
    bound_ns = most_ns - float(places.mean())
    first = min((whole_ns - most_ns) / max(float(places.sum()) - most_ns, 1.0), 1.0)
    heavy, others = (
        sorted(zip(rows.loc[some, "rank"], rows.loc[some, "device_id"], strict=True))
        for some in (here, ~here)
    )
    worst = first_record(rows[here].sort_values("compute_ns", ascending=False, kind="stable"))
    several = bool(rows["rank"].duplicated().any())
    noun = "GPU" if several else "rank"
    noun = "stage" if may_be_stages(rows["kernels_n"].tolist()) else noun
    which = f"The last {noun}" if min(heavy) > max(others) else f"One {noun}"
    if max(heavy) < min(others):
        which = f"The first {noun}"
    return RULES["unplaced_pipeline"].finding(
        cause=Cause("stage", worst["rank"], worst["device_id"]),
        change=Change(
            "known", time_ns=bound_ns, sure_ns=(1 - first) * bound_ns, wall_classes=(COMPUTE,)
        ),
        case=HEAVIER,
        fields={
            "which": which,
            "heaviest": gpus_words(heavy, with_devices=several),
            "compute": "computes" if len(heavy) == 1 else "compute",
        },
        evidence=(
            _share(tables, "heavy_pct", "compute_ns", **_whose(rows[here])),
            _share(tables, "others_pct", "compute_ns", **_whose(rows[~here])),
            _share(tables, "wait_pct", "wait_ns"),
        ),
        ranks=tuple(sorted(set(rows.loc[here, "rank"]))),
        rank=worst["rank"],
        device_id=worst["device_id"],
        impact_ns=int(rows["wait_ns"].max()),
    )


def _whose(rows: pd.DataFrame) -> dict[str, tuple[int, ...]]:
    return {name: tuple(sorted(set(rows[name]))) for name in ("rank", "place")}


def _share(tables: Tables, name: str, column: str, **where: Any) -> Evidence:
    """Return a share of the steps of all GPUs, or of some ranks."""
    whole = claim(tables, "window_ns", "exchanges", "window_ns", **where)
    return claim(tables, name, "exchanges", column, "sum", whole, **where)
