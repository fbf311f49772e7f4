"""What to know before reading the numbers of comm_stats. Reads finished tables only."""

from __future__ import annotations

from nsys_llm.report.records import Tables
from nsys_llm.view.text import counted, ranks_words


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
