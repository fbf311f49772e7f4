"""Findings on what a capture holds besides the trace, and on work that it does not hold."""

from __future__ import annotations

from typing import Final

from nsys_llm.facts.device.gpus import BY_ORDER
from nsys_llm.report.findings import Finding, cells, claim
from nsys_llm.report.records import Tables, percent, records
from nsys_llm.report.walls import span_of
from nsys_llm.view.text import quoted

from .texts import RULES, UNRECORDED_PCT

_MOST_NAMED: Final = 6
_METRIC: Final = ("rank", "device_id", "scope", "metric", "gpu_id", "gpu_source")
#: Whether any warp was on an SM, as releases up to 2022.4 and later ones call it.
_ACTIVE: Final = r"SMs? Active\b"


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
                "shown": ", ".join(quoted(name) for name in names[:_MOST_NAMED])
                + " and others" * (len(names) > _MOST_NAMED),
                "environments_n": int(with_secrets["environments_n"].max()),
            },
            evidence=(
                claim(tables, "profiles_n", "files", "secret_variables", "count"),
                claim(tables, "all_n", "files", "File", "count"),
            ),
        )
    ]


def unrecorded_findings(tables: Tables) -> list[Finding]:
    """Return the remark on the GPU whose SMs were active longest beyond what is recorded.

    Metrics are of a GPU with all of its processes: all that its ranks recorded, selected or not, is
    added up, so that it is never too little.
    """
    rows = tables["gpu_metrics"]
    rows = rows[(rows["scope"] == "window") & rows["metric"].str.match(_ACTIVE)]
    rows = rows[(rows["gpu_source"] != BY_ORDER) & rows["mean_pct"].notna()]
    recorded_ns = tables["coverage"].groupby("rank")["total_ns"].sum()
    spans_ns = tables["wall"].groupby(["rank", "device_id"])["span_ns"].first()
    findings = []
    for row in records(rows):
        ranks = rows.loc[rows["gpu_id"] == row["gpu_id"], "rank"].unique()
        span_ns = spans_ns.get((row["rank"], row["device_id"]))
        recorded_pct = percent(int(recorded_ns.reindex(ranks).sum()), span_ns)
        if span_ns and row["mean_pct"] - recorded_pct >= UNRECORDED_PCT:
            finding = RULES["unrecorded_work"].finding(
                evidence=(
                    *cells("gpu_metrics", row, _METRIC, ("mean_pct",)),
                    claim(
                        *(tables, "recorded_pct", "coverage", "total_ns", "sum"),
                        span_of(tables, (row["rank"], row["device_id"])),
                        rank=tuple(ranks.tolist()),
                    ),
                ),
                rank=row["rank"],
                device_id=row["device_id"],
                ranks=(row["rank"],),
            )
            findings.append((row["mean_pct"] - recorded_pct, finding))
    return [max(findings, key=lambda item: item[0])[1]] if findings else []
