"""What explains a change of communication: waiting, and for whom, or transfer."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.causes import Cause
from nsys_llm.report.findings import cells
from nsys_llm.report.records import Record, records
from nsys_llm.taxonomy.communication import SEND_RECV
from nsys_llm.taxonomy.wall_classes import TRANSFER, WAITING
from nsys_llm.trace.rank_sets import COMPARED
from nsys_llm.view.text import format_ns

from .change import Change, Clock, changed

#: Share of a change of waiting from which the profiler's part of it is said, in percent; ours.
_PROFILER_PCT: Final = 5.0


def explain_communication(clock: Clock, change: Change) -> Change:
    """Explain the change of communication."""
    waiting_ns, transfer_ns = (change.details.get(name, 0.0) for name in (WAITING, TRANSFER))
    numbers = {"wait_ns": waiting_ns, "transfer_ns": transfer_ns}
    most_ns = max(waiting_ns, transfer_ns, key=abs)
    if 2 * abs(most_ns) < abs(change.cost_ns) or most_ns * change.cost_ns <= 0:
        what = "which of it is waiting is not known: its collectives are not matched"
        return change.by("communication", what, Cause("transfer"), numbers=numbers)
    rows = records(clock.tables["collectives"])
    whole = next((row for row in rows if row["communicator"] == "all"), None)
    if whole is not None and most_ns != transfer_ns:
        return _waiting(rows, whole, change, numbers)
    what = f"transfer {changed(transfer_ns)}"
    if whole is not None and all(whole[f"{side}_collectives_n"] for side in COMPARED):
        per_call = {
            f"{side}_call_ns": whole[f"{side}_transfer_ns"] / whole[f"{side}_collectives_n"]
            for side in COMPARED
        }
        what += f", {' -> '.join(map(format_ns, per_call.values()))} a collective, all ranks"
        numbers |= per_call
    return change.by("transfer", what, Cause("transfer"), numbers=numbers)


def _waiting(
    rows: list[Record], whole: Record, change: Change, numbers: dict[str, float]
) -> Change:
    profiler_ns = whole["input_profiler_ns"] - whole["baseline_profiler_ns"]
    profiler_pct = 100 * profiler_ns / (whole["wait_change_ns"] or 1)
    what = f"waiting {changed(numbers['wait_ns'])}"
    if profiler_pct >= _PROFILER_PCT:
        what += f", {profiler_pct:.0f} % of it for the profiler's own work"
        numbers["profiler_pct"] = profiler_pct
    if profiler_pct >= 50:
        return change.by("profiler_wait", what, Cause("profiler"), numbers=numbers)
    if _is_of_pairs(rows, whole):
        what += ", in sends and receives of two ranks"
        return change.by("pair_waiting", what, Cause("schedule"), numbers=numbers)
    late, before = whole["input_late_rank"], whole["baseline_late_rank"]
    evidence = cells("collectives", whole, ("communicator",), ("input_late_rank", "input_wait_ns"))
    if numbers["wait_ns"] <= 0 or late is None:
        return change.by("waiting", what, Cause("waiting"), evidence, numbers=numbers)
    what += f", most for rank {late}"
    if before is not None and before != late:
        what += f" (for rank {before} before)"
        numbers["baseline_late_rank"] = float(before)
    numbers["input_late_rank"] = float(late)
    return change.by("waiting", what, Cause("waiting", int(late)), evidence, numbers=numbers)


def _is_of_pairs(rows: list[Record], whole: Record) -> bool:
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
