"""The remark that a GPU worked while no operation is recorded. Reads finished tables only."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.findings import UNRECORDED_WORK, Finding, cells
from nsys_llm.report.records import Tables, records
from nsys_llm.taxonomy.wall_classes import IDLE, NO_WORK, PROFILER

from ..extras.gpu_metrics import BY_ORDER
from .texts import RULES, UNRECORDED_PCT

#: Whether any warp was on an SM, as releases up to 2022.4 and later ones call it.
_ACTIVE: Final = r"SMs? Active\b"
_NOTHING_RUNS: Final = (IDLE, NO_WORK, PROFILER)


def unrecorded_findings(tables: Tables) -> list[Finding]:
    """Return the remark on the GPU whose SMs were active longest beyond what is recorded.

    Metrics are of a GPU with all of its processes: what its ranks recorded is added up.
    """
    rows = tables["gpu_metrics"]
    rows = rows[(rows["scope"] == "window") & rows["metric"].str.match(_ACTIVE)]
    rows = rows[rows["gpu_source"] != BY_ORDER]
    wall = tables["wall"]
    works = wall[~wall["wall_class"].isin(_NOTHING_RUNS)]
    busy_pct = works.groupby(["rank", "device_id"])["share_pct"].sum()
    findings = []
    for row in records(rows):
        sharing = rows.loc[rows["gpu_id"] == row["gpu_id"], ["rank", "device_id"]]
        recorded_pct = sum(busy_pct.get(gpu, 0.0) for gpu in sharing.itertuples(index=False))
        if row["mean_pct"] - recorded_pct >= UNRECORDED_PCT:
            finding = RULES[UNRECORDED_WORK].finding(
                evidence=cells("gpu_metrics", row, ("rank", "device_id", "metric"), ("mean_pct",)),
                fields={"recorded_pct": recorded_pct},
                rank=row["rank"],
                device_id=row["device_id"],
                ranks=(row["rank"],),
            )
            findings.append((row["mean_pct"] - recorded_pct, finding))
    return [max(findings, key=lambda item: item[0])[1]] if findings else []
