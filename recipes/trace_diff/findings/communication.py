"""What explains a change of communication: waiting, and for whom, or transfer."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from nsys_llm.report.causes import Cause
from nsys_llm.report.findings import cells
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.taxonomy.communication import SEND_RECV
from nsys_llm.taxonomy.wall_classes import TRANSFER, WAITING
from nsys_llm.view.text import format_ns

from .change import ClassCost, Explained, changed

#: Share of a change of waiting from which the profiler's part of it is said, in percent; ours.
_PROFILER_PCT: Final = 5.0


def explain_communication(tables: Tables, cost: ClassCost) -> Explained:
    """Return what explains the change of communication."""
    waiting_ns, transfer_ns = (cost.details.get(name, 0.0) for name in (WAITING, TRANSFER))
    numbers = {"wait_ns": waiting_ns, "transfer_ns": transfer_ns}
    most_ns = max(waiting_ns, transfer_ns, key=abs)
    if 2 * abs(most_ns) < abs(cost.cost_ns) or most_ns * cost.cost_ns <= 0:
        what = "which of it is waiting is not known: its collectives are not matched"
        return Explained("communication", what, Cause("transfer"), numbers=numbers)
    rows = records(tables["collectives"])
    whole = next((row for row in rows if row["communicator"] == "all"), None)
    if most_ns == transfer_ns or whole is None:
        return _transfer(whole, transfer_ns, numbers)
    return _waiting(rows, whole, waiting_ns, numbers)


def _transfer(whole: Any, transfer_ns: float, numbers: dict[str, float]) -> Explained:
    what = f"transfer {changed(transfer_ns)}"
    if whole is not None and whole["baseline_collectives_n"] and whole["input_collectives_n"]:
        per_call = [
            whole[f"{side}_transfer_ns"] / whole[f"{side}_collectives_n"]
            for side in ("baseline", "input")
        ]
        what += f", {format_ns(per_call[0])} -> {format_ns(per_call[1])} a collective, all ranks"
        numbers |= {"baseline_call_ns": per_call[0], "input_call_ns": per_call[1]}
    return Explained("transfer", what, Cause("transfer"), numbers=numbers)


def _waiting(
    rows: list[Record], whole: Any, waiting_ns: float, numbers: dict[str, float]
) -> Explained:
    profiler_pct = 100 * _change(whole, "profiler") / (whole["wait_change_ns"] or 1)
    what = f"waiting {changed(waiting_ns)}"
    if profiler_pct >= _PROFILER_PCT:
        what += f", {profiler_pct:.0f} % of it for the profiler's own work"
        numbers["profiler_pct"] = profiler_pct
    if profiler_pct >= 50:
        return Explained("profiler_wait", what, Cause("profiler"), numbers=numbers)
    if _is_of_pairs(rows, whole):
        what += ", in sends and receives of two ranks"
        return Explained("pair_waiting", what, Cause("schedule"), numbers=numbers)
    late, before = whole["input_late_rank"], whole["baseline_late_rank"]
    evidence = cells("collectives", whole, ("communicator",), ("input_late_rank", "input_wait_ns"))
    if waiting_ns > 0 and not pd.isna(late):
        what += f", most for rank {int(late)}"
        if not pd.isna(before) and before != late:
            what += f" (for rank {int(before)} before)"
            numbers["baseline_late_rank"] = float(before)
        numbers["input_late_rank"] = float(late)
        cause = Cause("waiting", int(late))
        return Explained("waiting", what, cause, numbers=numbers, evidence=evidence)
    return Explained("waiting", what, Cause("waiting"), numbers=numbers, evidence=evidence)


def _change(row: Any, part: str) -> float:
    return float(row[f"input_{part}_ns"] - row[f"baseline_{part}_ns"])


def _is_of_pairs(rows: list[Record], whole: Any) -> bool:
    """Tell whether half of the change of waiting or more is in sends and receives of two devices.

    Stages of a pipeline wait for each other by schedule, so who comes last there is not late.
    """
    pairs_ns = sum(
        row["wait_change_ns"]
        for row in rows
        if row["operation"] == SEND_RECV and _devices_n(str(row["communicator"])) == 2
    )
    whole_ns = whole["wait_change_ns"]
    return bool(pairs_ns * whole_ns > 0 and 2 * abs(pairs_ns) >= abs(whole_ns))


def _devices_n(communicator: str) -> int:
    """Return how many devices take part, by a name like `0-3, 8` or `0/0, 0/1`."""
    ends = [part.split("-") for part in communicator.split(", ")]
    return sum(int(two[-1]) - int(two[0]) + 1 if len(two) == 2 else 1 for two in ends)
