"""What explains a change of communication (waiting, and for whom, or transfer), or of copies."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.causes import Cause
from nsys_llm.report.findings import cells
from nsys_llm.report.records import Record, records
from nsys_llm.taxonomy.communication import SEND_RECV
from nsys_llm.taxonomy.wall_classes import TRANSFER, WAITING
from nsys_llm.trace.rank_sets import COMPARED
from nsys_llm.view.text import format_bytes, format_ns, quoted

from .change import LEAST_SHARE, SPAN, Change, Clock, a_unit, changed, number_of, times

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


def explain_copies(clock: Clock, change: Change) -> Change:
    """Explain the change of copies."""
    rows = records(clock.tables["memops"])
    if clock.verdict["basis"] == SPAN:
        return _of_spans(clock, rows, change)
    moved = [(row["input_step_ns"] - row["baseline_step_ns"], row) for row in rows]
    least_ns = LEAST_SHARE * abs(change.mean_ns)
    large = [item for item in moved if item[0] * change.mean_ns > 0 and abs(item[0]) >= least_ns]
    kinds = [row for _, row in sorted(large, key=lambda item: -abs(item[0]))[:_MOST_KINDS]]
    if not kinds:
        how = "more" if change.mean_ns < 0 else "less"
        what = f"as many copies as before, {how} of them beside kernels"
        return change.by("copies", what, Cause("copies", detail=_BESIDE), name=_BESIDE,
                         fields={"name": _BESIDE})  # fmt: skip
    numbers = {
        f"kind{place}_{key}": value
        for place, row in enumerate(kinds)
        for key, value in _numbers(row).items()
    }
    evidence = tuple(cell for row in kinds for cell in cells("memops", row, _WHICH, _CELLS))
    what = "; ".join(_clause(row, a_unit(clock.unit)) for row in kinds)
    name = str(kinds[0]["kind"])
    fields = {"name": quoted(name)}
    cause = Cause("copies", detail=name)
    return change.by("copies", what, cause, evidence, name=name, fields=fields, numbers=numbers)


def _clause(row: Record, a_step: str) -> str:
    """Return what changed in a kind: `3 blocking copies of pageable memory a step, new`."""
    n0, n1 = row["baseline_step_moves"], row["input_step_moves"]
    size0, size1 = row["baseline_step_size"], row["input_step_size"]
    kind = _words(row)
    if not n0 or not n1:
        return f"{number_of(n1 or n0)} {kind} {a_step}, {'new' if n1 else 'gone'}"
    if abs(n1 / n0 - 1) * 100 > _ALIKE_PCT:
        return f"{number_of(n0)} -> {number_of(n1)} {kind} {a_step}"
    if size0 and abs(size1 / size0 - 1) * 100 > _ALIKE_PCT:
        return f"{format_bytes(size0)} -> {format_bytes(size1)} in {number_of(n1)} {kind} {a_step}"
    longer = times(row["input_step_ns"] / row["baseline_step_ns"])
    return f"the same {number_of(n1)} {kind} {a_step} take {longer}"


def _words(row: Record) -> str:
    """Return what copies of a kind are called: blocking, direction, pageable memory."""
    n = max(row[f"{side}_step_moves"] for side in COMPARED)
    blocking = max(row[f"{side}_blocking_moves"] for side in COMPARED)
    sync = "blocking " if 2 * blocking > n else ""
    kind = _KINDS.get(row["kind"], f"{quoted(row['kind'])} copies")
    if not _is_pageable(row):
        return f"{sync}{kind}"
    return f"{sync}copies of pageable memory ({kind.replace('copies', '').strip()})"


def _numbers(row: Record) -> dict[str, float]:
    ratio = row["input_step_ns"] / row["baseline_step_ns"] if row["baseline_step_ns"] else 0.0
    return {
        **{f"{side}_n": row[f"{side}_step_moves"] for side in COMPARED},
        **{f"{side}_bytes": row[f"{side}_step_size"] for side in COMPARED},
        "ratio": ratio,
        "ratio_pct": 100 * (ratio - 1),
    }


def _of_spans(clock: Clock, rows: list[Record], change: Change) -> Change:
    """Tell copies that run beside each other from copies that take less by themselves."""
    runs = clock.tables["runs"].set_index("run")
    sums, unions = [], []
    for side in COMPARED:
        whole_ns, ranks_n = sum(row[f"{side}_total_ns"] for row in rows), runs.loc[side, "ranks_n"]
        sums.append(whole_ns / ranks_n)
        unions.append(runs.loc[side, "copy_ns"] / ranks_n)
    beside_ns, alone_ns = (sums[1] - unions[1]) - (sums[0] - unions[0]), sums[1] - sums[0]
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
        for ns, by in sorted(((-beside_ns, how), (alone_ns, memory)), key=lambda x: -abs(x[0]))
        if abs(ns) >= 0.01 * abs(change.cost_ns)
    )
    return change.by(
        "copies",
        what or changed(change.cost_ns),
        Cause("copies", detail=how if before == after else _PAGEABLE),
        name=how,
        fields={"name": how},
        numbers={"beside_ns": -beside_ns, "alone_ns": alone_ns},
    )


def _is_pageable(row: Record) -> bool:
    return _PAGEABLE in (row["source_memory"], row["target_memory"])
