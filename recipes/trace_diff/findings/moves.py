"""What explains a change of communication (waiting, and for whom, or transfer), or of copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nsys_llm.report.causes import Cause
from nsys_llm.report.findings import cells
from nsys_llm.report.records import Record, records
from nsys_llm.report.templates import filled, signed_ns
from nsys_llm.taxonomy.communication import SEND_RECV
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, TRANSFER, WAITING
from nsys_llm.trace.rank_sets import COMPARED
from nsys_llm.view.text import format_ns, quoted

from ..tables.step_splits import SPAN
from .change import LEAST_SHARE, ClassChange, Clock, a_unit, number_of, numbered, times
from .texts import COPIES

#: Share of a change of waiting from which the profiler's part of it is said, in percent; ours.
_PROFILER_PCT: Final = 5.0


def explain_communication(clock: Clock, change: ClassChange) -> ClassChange:
    """Explain the change of communication."""
    waiting_ns, transfer_ns = (change.details.get(name, 0.0) for name in (WAITING, TRANSFER))
    most_ns = max(waiting_ns, transfer_ns, key=abs)
    alone = len(clock.by_gpu(COMMUNICATION)) == 1
    fields: dict[str, Any] = {"moved_ns": most_ns, "on": None if alone else change.rank}
    if 2 * abs(most_ns) < abs(change.cost_ns) or most_ns * change.cost_ns <= 0:
        return change.by("communication", Cause("transfer"), fields)
    rows = records(clock.tables["collectives"])
    whole = next((row for row in rows if row["communicator"] == "all"), None)
    if whole is not None and most_ns != transfer_ns:
        return _waiting(rows, whole, change, fields)
    fields |= dict.fromkeys(("baseline_call_ns", "input_call_ns"))
    if whole is not None and all(whole[f"{side}_collectives_n"] for side in COMPARED):
        for side in COMPARED:
            per_call_ns = whole[f"{side}_transfer_ns"] / whole[f"{side}_collectives_n"]
            fields[f"{side}_call_ns"] = per_call_ns
    return change.by("transfer", Cause("transfer"), fields)


def _waiting(
    rows: list[Record], whole: Record, change: ClassChange, fields: dict[str, Any]
) -> ClassChange:
    profiler_ns = whole["input_profiler_ns"] - whole["baseline_profiler_ns"]
    profiler_pct = 100 * profiler_ns / (whole["wait_change_ns"] or 1)
    fields |= {"profiler_pct": profiler_pct if profiler_pct >= _PROFILER_PCT else None}
    if profiler_pct >= 50:
        return change.by("profiler_wait", Cause("profiler"), fields)
    # Stages of a pipeline wait for each other by schedule, so who comes last there is not late.
    pairs_ns = sum(
        row["wait_change_ns"]
        for row in rows
        if row["operation"] == SEND_RECV and _devices_n(str(row["communicator"])) == 2
    )
    whole_ns = whole["wait_change_ns"]
    if pairs_ns * whole_ns > 0 and 2 * abs(pairs_ns) >= abs(whole_ns):
        return change.by("pair_waiting", Cause("schedule"), fields)
    late, before = whole["input_late_rank"], whole["baseline_late_rank"]
    columns = ("baseline_late_rank", "input_late_rank", "input_wait_ns")
    evidence = cells("collectives", whole, ("communicator",), columns)
    is_more = fields["moved_ns"] > 0
    fields |= {
        "late": str(late) if is_more and late is not None else None,
        "before": None if is_more or before is None else str(before),
    }
    cause = Cause("waiting", late if is_more else None)
    return change.by("waiting", cause, fields, evidence)


def _devices_n(communicator: str) -> int:
    """Return how many devices take part, by a name like `0-3, 8` or `0/0, 0/1`."""
    ends = [part.split("-") for part in communicator.split(", ")]
    return sum(int(two[-1]) - int(two[0]) + 1 if len(two) == 2 else 1 for two in ends)


_KINDS: Final = {
    "DtoD": "device-to-device copies",
    "HtoD": "host-to-device copies",
    "DtoH": "device-to-host copies",
    "PtoP": "copies between GPUs",
    "memset": "memory fills",
}
_PAGEABLE: Final = "pageable"
#: Copies and bytes that differ by less are as many.
_ALIKE_PCT: Final = 5.0
_MOST_KINDS: Final = 2
_BESIDE: Final = "overlap"
_WHICH: Final = ("kind", "source_memory", "target_memory")
_CELLS: Final = tuple(f"{side}_step_{what}" for what in ("moves", "size") for side in COMPARED)


def explain_copies(clock: Clock, change: ClassChange) -> ClassChange:
    """Explain the change of copies."""
    rows = records(clock.tables["memops"])
    if clock.verdict["basis"] == SPAN:
        return _of_spans(clock, rows, change)
    moved = [(row["input_step_ns"] - row["baseline_step_ns"], row) for row in rows]
    least_ns = LEAST_SHARE * abs(change.mean_ns)
    large = [item for item in moved if item[0] * change.mean_ns > 0 and abs(item[0]) >= least_ns]
    kinds = [row for _, row in sorted(large, key=lambda item: -abs(item[0]))[:_MOST_KINDS]]
    if not kinds:
        how = COPIES["beside"].format(how="more" if change.mean_ns < 0 else "less")
        cause = Cause("copies", detail=_BESIDE)
        return change.by("copies", cause, {"name": _BESIDE, "kind": _BESIDE, "what": how})
    parts = [_kind_fields(row, a_unit(clock.unit)) for row in kinds]
    what = "; ".join(
        filled(COPIES[_case(row)], part) for row, part in zip(kinds, parts, strict=True)
    )
    evidence = tuple(cell for row in kinds for cell in cells("memops", row, _WHICH, _CELLS))
    name = str(kinds[0]["kind"])
    fields = {"name": name, "kind": quoted(name), "what": what, **numbered("kind", parts)}
    return change.by("copies", Cause("copies", detail=name), fields, evidence)


def _case(row: Record) -> str:
    """Return which clause of `COPIES` says what changed in a kind."""
    n0, n1 = row["baseline_step_moves"], row["input_step_moves"]
    size0, size1 = row["baseline_step_size"], row["input_step_size"]
    if not n0 or not n1:
        return "new" if n1 else "gone"
    if abs(n1 / n0 - 1) * 100 > _ALIKE_PCT:
        return "counts"
    return "sizes" if size0 and abs(size1 / size0 - 1) * 100 > _ALIKE_PCT else "longer"


def _kind_fields(row: Record, a_step: str) -> dict[str, Any]:
    """Return the fields of a clause on copies of a kind: blocking, direction, pageable memory."""
    n0, n1 = (row[f"{side}_step_moves"] for side in COMPARED)
    blocking = max(row[f"{side}_blocking_moves"] for side in COMPARED)
    kind = _KINDS.get(row["kind"], f"{quoted(row['kind'])} copies")
    if _is_pageable(row):
        kind = f"copies of pageable memory ({kind.replace('copies', '').strip()})"
    ratio = row["input_step_ns"] / row["baseline_step_ns"] if row["baseline_step_ns"] else 0.0
    return {
        "kind": f"blocking {kind}" if 2 * blocking > max(n0, n1) else kind,
        "a_step": a_step,
        "before": number_of(n0),
        "after": number_of(n1),
        "longer": times(ratio),
        "baseline_n": n0,
        "input_n": n1,
        "baseline_bytes": row["baseline_step_size"],
        "input_bytes": row["input_step_size"],
        "longer_ratio": ratio,
        "longer_pct": 100 * (ratio - 1),
    }


def _of_spans(clock: Clock, rows: Sequence[Record], change: ClassChange) -> ClassChange:
    """Tell copies that run beside each other from copies that take less by themselves."""
    runs = clock.tables["runs"].set_index("run")
    sums, unions = [], []
    for side in COMPARED:
        whole_ns, ranks_n = sum(row[f"{side}_total_ns"] for row in rows), runs.loc[side, "ranks_n"]
        sums.append(whole_ns / ranks_n)
        unions.append(runs.loc[side, "copy_ns"] / ranks_n)
    beside_ns, alone_ns = (sums[0] - unions[0]) - (sums[1] - unions[1]), sums[1] - sums[0]
    both_ways = {"HtoD", "DtoH"} <= {row["kind"] for row in rows}
    how = "copies both ways at once" if both_ways else "copies beside each other"
    before, after = (
        sum(row[f"{side}_size_bytes"] for row in rows if _is_pageable(row)) for side in COMPARED
    )
    memory = "their length"
    if before != after:
        memory = "pinned memory" if before > after else "pageable memory"
    what = ", ".join(
        f"{format_ns(abs(ns))}{'' if ns * change.cost_ns > 0 else ' lost again'} by {by}"
        for ns, by in sorted(((beside_ns, how), (alone_ns, memory)), key=lambda x: -abs(x[0]))
        if abs(ns) >= 0.01 * abs(change.cost_ns)
    )
    cause = Cause("copies", detail=how if before == after else _PAGEABLE)
    fields = {"name": how, "kind": how, "what": what or signed_ns(change.cost_ns),
              "beside_ns": beside_ns, "alone_ns": alone_ns}  # fmt: skip
    return change.by("copies", cause, fields)


def _is_pageable(row: Record) -> bool:
    return _PAGEABLE in (row["source_memory"], row["target_memory"])
