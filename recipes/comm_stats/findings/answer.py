"""What comm_stats reports: who exchanges how much, and what pipelines and experts cost."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Record, Tables, first_record
from nsys_llm.view.text import counted, format_ns, format_percent, ranks_words

from ..tables.sizes import IMPLAUSIBLE_SIZE
from .experts import expert_findings, late_experts, longer_experts, uneven_experts
from .links import implausible_sizes, link_findings
from .pipelines import (
    bubble_words,
    find_pipelines,
    pace_words,
    pipeline_findings,
    unplaced_pipeline,
)

#: The stage that computes longest is named from so much beyond the others, in percent.
_LEAST_LONGER_PCT: Final = 1.0
#: Why sizes or speeds are not known, by reasons of the table; all others are faults of payloads.
_WHY: Final = {
    "no_call": "no NCCL range around the launch",
    "no_blob": "no payloads in the export",
    "no_payload": "calls without payloads",
    "graph": "CUDA graphs whose capture is not recorded",
    "shared": "several kernels of a group of calls",
    "not_matched": "collectives that are not matched",
    "not_traced": "ranks that are not traced",
    "no_transfer": "no time in which all ranks are in it",
    "clock": "clocks that are too uncertain",
    "no_factor": "operations that are not known",
    IMPLAUSIBLE_SIZE: "sizes that no link carries in that time",
}


def answer(tables: Tables) -> str:
    """Return the job in one line, its pipelines, and the group that transfers longest."""
    job = counted(tables["wall"][["rank", "device_id"]].drop_duplicates().shape[0], "GPU")
    rows = tables["stages"][tables["stages"]["steps_n"] > 0]
    if len(rows):
        step_ns = float(rows["steps_ns"].sum() / rows["steps_n"].sum())
        job += f", {counted(int(rows['steps_n'].max()), 'step')}, {format_ns(step_ns)} a step"
    pipelines = find_pipelines(tables)
    if pipelines:
        worst = max(pipelines, key=lambda pipeline: pipeline.share_pct("bubble_ns"))
        pace = f"; {pace_words(worst)}" if worst.longer_pct >= _LEAST_LONGER_PCT else ""
        stages = f"of {len(worst.computes_ns)} stages{worst.called}"
        n = len(pipelines)
        name = f"pipeline {stages}" if n == 1 else f"{n} pipelines {stages}"
        lines = [f"{job}: {name}", f"Bubble {bubble_words(worst)}{pace}."]
    elif len(tables["groups"]):
        groups_n = counted(len(tables["groups"]), "group")
        lines = [f"{job}: {groups_n} of ranks that communicate."]
    else:
        lines = [f"{job}: no communication that is matched between ranks."]
    return "\n".join((*lines, *_experts(tables), *_messages(tables)))


def _experts(tables: Tables) -> list[str]:
    """Return how uneven experts are, how the slowest rank moves, and what waits for it."""
    rows = uneven_experts(tables)
    pattern = rows["pattern"].dropna().mode()
    if rows.empty:
        return []
    moves = f", {pattern.iloc[0]}" if len(pattern) else ""
    _, waiting = late_experts(rows, tables)
    return [
        f"Experts: the slowest rank computes {format_percent(longer_experts(rows))} longer{moves}; "
        f"{format_percent(waiting.value)} of all waiting is for it."
    ]


def _messages(tables: Tables) -> list[str]:
    """Return the messages that transfer longest, of those whose speed is known if any is."""
    rows = tables["message_sizes"]
    known = rows[rows["algbw_gb_s"].notna()]
    rows = (known if len(known) else rows).sort_values(
        "transfer_ns", ascending=False, kind="stable"
    )
    if rows.empty:
        return []
    row = first_record(rows)
    group = first_record(tables["groups"][tables["groups"]["group"] == row["group"]])
    candidates = (group["candidates"] or "").replace(", ", " or ")
    name = f"Ranks {group['ranks']}{f' ({candidates}?)' if candidates else ''}"
    if group["axis"] is not None:
        name = f"{group['axis']} {group['ranks']}"
    return [f"{name} {row['operation']}{_speed(row)}."]


def _speed(row: Record) -> str:
    if row["algbw_gb_s"] is None:
        what = "sizes" if row["bytes"] is None else "speed"
        transfer = f"{format_ns(row['transfer_ns'])} of transfer"
        why = _WHY.get(row["reason"], "payloads that cannot be read")
        return f": {transfer}, {what} not known ({why})"
    if row["busbw_gb_s"] is None:
        return f" {row['bucket']}: {row['algbw_gb_s']:.1f} GB/s"
    peak = "no peak known"
    if row["peak_pct"] is not None:
        peak = f"{row['peak_pct']:.0f} % of {row['peak_gb_s']:g}"
    elif row["peak_gb_s"] is not None:
        peak = f"peak {row['peak_gb_s']:g}"
    return f" {row['bucket']}: {row['busbw_gb_s']:.1f} GB/s bus ({peak})"


def findings(tables: Tables) -> list[Finding]:
    """Return all findings of the recipe, in no order."""
    return [
        *pipeline_findings(tables, find_pipelines(tables)),
        *unplaced_pipeline(tables),
        *expert_findings(tables),
        *link_findings(tables),
        *implausible_sizes(tables),
    ]


def caveats(tables: Tables) -> list[str]:
    """Return what to know before reading the numbers, as prose."""
    unknown_n = int(tables["groups"]["axis"].isna().sum())
    payloads = tables["payloads"]
    without_n = int(payloads.loc[payloads["reason"] == "no_blob", "calls_n"].sum())
    parts = tables["stages"].dropna(subset="reason")
    notes = []
    if len(parts):
        ranks = ranks_words(parts["rank"].unique()).capitalize()
        notes.append(
            f"{ranks} are stages, but transfers with other stages are not matched, or those "
            "are not traced: no pipeline is reported from a part of it. Trace all of its ranks."
        )
    if unknown_n:
        notes.append(
            f"The axis of parallelism of {counted(unknown_n, 'group')} is not known from what they "
            "do. `--layout tp=8,pp=4` names the axes."
        )
    if without_n:
        notes.append(
            f"The export has no payloads of {counted(without_n, 'NCCL call')}, and so no sizes. "
            "`nsys export --include-blobs=true` exports them, where the capture has them."
        )
    return notes
