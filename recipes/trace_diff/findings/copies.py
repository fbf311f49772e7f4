"""What explains a change of copies: their number, bytes, memory, and what runs beside them."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.causes import Cause
from nsys_llm.report.findings import cells
from nsys_llm.report.records import Record, records
from nsys_llm.trace.rank_sets import COMPARED
from nsys_llm.view.text import format_bytes, format_ns, quoted

from .change import LEAST_SHARE, SPAN, Change, Clock, a_unit, changed, number_of, times

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
