"""What explains a change of copies: their number, bytes, memory, and what runs beside them."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.causes import Cause
from nsys_llm.report.findings import cells
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.view.text import format_bytes, format_ns, quoted

from .change import LEAST_SHARE, ClassCost, Clock, Explained, a_unit, changed, number_of, times

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


def explain_copies(tables: Tables, clock: Clock, cost: ClassCost) -> Explained:
    """Return what explains the change of copies."""
    rows = records(tables["memops"])
    if clock.verdict["basis"] == "window":
        return _of_spans(tables, rows, cost)
    step_ns = {
        place: row["input_step_ns"] - row["baseline_step_ns"] for place, row in enumerate(rows)
    }
    large = [
        place
        for place in sorted(step_ns, key=lambda place: -abs(step_ns[place]))
        if step_ns[place] * cost.mean_ns > 0
        and abs(step_ns[place]) >= LEAST_SHARE * abs(cost.mean_ns)
    ][:_MOST_KINDS]
    if not large:
        what = "as many copies as before, less of them beside kernels"
        if cost.mean_ns < 0:
            what = "as many copies as before, more of them beside kernels"
        return Explained(
            "copies", what, Cause("copies", detail="overlap"), "overlap", {"name": "overlap"}
        )
    kinds = [rows[place] for place in large]
    name = str(kinds[0]["kind"])
    numbers: dict[str, float] = {}
    for place, row in enumerate(kinds):
        numbers |= {f"kind{place}_{key}": value for key, value in _numbers(row).items()}
    evidence = tuple(
        cell
        for row in kinds
        for cell in cells(
            "memops", row, ("kind", "source_memory", "target_memory"),
            ("baseline_step_moves", "input_step_moves", "baseline_step_size", "input_step_size"),
        )
    )  # fmt: skip
    what = "; ".join(_clause(row, a_unit(clock.unit)) for row in kinds)
    return Explained(
        "copies",
        what,
        Cause("copies", detail=name),
        name,
        {"name": quoted(name)},
        numbers,
        evidence,
    )


def _clause(row: Record, a_step: str) -> str:
    """Return what changed in a kind: `3 blocking copies of pageable memory a step, new`."""
    n0, n1 = row["baseline_step_moves"], row["input_step_moves"]
    kind = _words(row)
    if not n0 or not n1:
        return f"{number_of(n1 or n0)} {kind} {a_step}, {'new' if n1 else 'gone'}"
    sizes = row["baseline_step_size"], row["input_step_size"]
    if abs(n1 / n0 - 1) * 100 > _ALIKE_PCT:
        return f"{number_of(n0)} -> {number_of(n1)} {kind} {a_step}"
    if sizes[0] and abs(sizes[1] / sizes[0] - 1) * 100 > _ALIKE_PCT:
        pair = " -> ".join(map(format_bytes, sizes))
        return f"{pair} in {number_of(n1)} {kind} {a_step}"
    ratio = row["input_step_ns"] / row["baseline_step_ns"]
    return f"the same {number_of(n1)} {kind} {a_step} take {times(ratio)}"


def _words(row: Record) -> str:
    """Return what copies of a kind are called: blocking, direction, pageable memory."""
    n = max(row["baseline_step_moves"], row["input_step_moves"])
    blocking = max(row["baseline_blocking_moves"], row["input_blocking_moves"])
    sync = "blocking " if 2 * blocking > n else ""
    kind = _KINDS.get(row["kind"], f"{quoted(row['kind'])} copies")
    if _PAGEABLE in (row["source_memory"], row["target_memory"]):
        direction = kind.replace("copies", "").strip()
        return f"{sync}copies of pageable memory ({direction})"
    return f"{sync}{kind}"


def _numbers(row: Record) -> dict[str, float]:
    ratio = row["input_step_ns"] / row["baseline_step_ns"] if row["baseline_step_ns"] else 0.0
    return {
        "baseline_n": row["baseline_step_moves"],
        "input_n": row["input_step_moves"],
        "baseline_bytes": row["baseline_step_size"],
        "input_bytes": row["input_step_size"],
        "ratio": ratio,
        "ratio_pct": 100 * (ratio - 1),
    }


def _of_spans(tables: Tables, rows: list[Record], cost: ClassCost) -> Explained:
    """Tell copies that run beside each other from copies that take less by themselves."""
    runs = tables["runs"].set_index("run")
    sums = [
        sum(row[f"{side}_total_ns"] for row in rows) / runs.loc[side, "ranks_n"]
        for side in ("baseline", "input")
    ]
    unions = [
        runs.loc[side, "copy_ns"] / runs.loc[side, "ranks_n"] for side in ("baseline", "input")
    ]
    beside_ns = (sums[1] - unions[1]) - (sums[0] - unions[0])
    alone_ns = sums[1] - sums[0]
    both_ways = {"HtoD", "DtoH"} <= {row["kind"] for row in rows}
    how = "copies both ways at once" if both_ways else "copies beside each other"
    pinned = _pageable_bytes(rows, "baseline") - _pageable_bytes(rows, "input")
    memory = "pinned memory" if pinned > 0 else "pageable memory" if pinned < 0 else "their length"
    parts = sorted(((-beside_ns, how), (alone_ns, memory)), key=lambda part: -abs(part[0]))
    what = ", ".join(
        f"{format_ns(abs(ns))}{'' if ns * cost.cost_ns > 0 else ' lost again'} by {by}"
        for ns, by in parts
        if abs(ns) >= 0.01 * abs(cost.cost_ns)
    )
    numbers = {"beside_ns": -beside_ns, "alone_ns": alone_ns}
    cause = Cause("copies", detail=_PAGEABLE if pinned else how)
    return Explained("copies", what or changed(cost.cost_ns), cause, how, {"name": how}, numbers)


def _pageable_bytes(rows: list[Record], side: str) -> int:
    return sum(
        row[f"{side}_size_bytes"]
        for row in rows
        if _PAGEABLE in (row["source_memory"], row["target_memory"])
    )
