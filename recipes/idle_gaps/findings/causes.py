"""Findings on the causes of idle time: each once, on the GPU that loses most by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import pandas as pd

from nsys_llm.facts.idle.patterns import MICRO_GAP_NS
from nsys_llm.job.collectives.stages import may_be_stages
from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import Evidence, Finding, cells, claim
from nsys_llm.report.host_words import START_UP, Waited, host_case
from nsys_llm.report.price import LEAST_PCT
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.report.walls import (
    Gpu,
    Walls,
    host_cause,
    host_subject,
    of_span,
    share_of,
    span_of,
    usual_loss_ns,
)
from nsys_llm.taxonomy.advice import advice_on
from nsys_llm.taxonomy.idle_causes import HOST_CAUSES
from nsys_llm.taxonomy.wall_classes import IDLE
from nsys_llm.view.text import format_ns, format_percent, quoted, shortened

from .texts import GAP_FIELDS, PART_WORDS, PATTERN_FIELDS, RULES

#: Causes of idle time that are no host's, by the rule that says what to do about them.
_OTHERS: Final[Mapping[str, tuple[str, Cause]]] = {
    "idle_alloc": ("alloc", Cause("allocation")),
    "idle_module_load": ("module_load", Cause("module_load")),
    "queued_gaps": ("queued", Cause("queued")),
}
#: Calls that wait, by the rule that speaks where they are most of the host's time.
_WAITS: Final = {"host_sync": "idle_host_sync", "sync_memop": "idle_sync_memop"}
#: A copy of a kind, as patterns of gaps name it.
_COPY: Final = r"^memcpy (\w+)$"

#: What a finding says beside its time: fields of the templates, and their evidence.
_Said = tuple[Mapping[str, Any], tuple[Evidence, ...]]
_NOTHING: Final[_Said] = (MappingProxyType({"host_range": None, "range_pct": None}), ())

#: Rules on a host that is late.
HOST_RULES: Final = ("launch_bound", "host_work", *_WAITS.values())
#: Parts of the time of a late host that a sentence names.
_MOST_PARTS: Final = 2


def cause_findings(tables: Tables) -> list[Finding]:
    """Return the findings on causes of idle time."""
    walls = Walls(tables)
    if not walls.host_losses_ns:
        return []
    alike = [_other(rule, walls, tables) for rule in _OTHERS]
    return [item for item in (*alike, _host(walls, tables)) if item is not None]


def _lost_ns(walls: Walls, causes: tuple[str, ...]) -> dict[Gpu, int]:
    """Return the idle time of some causes together, by GPU whose causes are known."""
    return {gpu: walls.detail_ns(gpu, IDLE, *causes) for gpu in sorted(walls.host_losses_ns)}


def _rows(tables: Tables, gpu: Gpu, causes: tuple[str, ...]) -> list[Record]:
    """Return the rows of the wall of some causes on a GPU, the largest first."""
    wall = tables["wall"]
    wall = wall[(wall["rank"] == gpu[0]) & (wall["device_id"] == gpu[1])]
    rows = records(wall[(wall["wall_class"] == IDLE) & wall["detail"].isin(causes)])
    return sorted(rows, key=lambda row: (-int(row["time_ns"]), causes.index(row["detail"])))


def _other(rule: str, walls: Walls, tables: Tables) -> Finding | None:
    name, cause = _OTHERS[rule]
    lost_ns = _lost_ns(walls, (name,))
    of = partial(_finding, rule, (name,), lost_ns, walls, tables)
    if cause.kind != "queued":
        made = of(cause, Change("idle", name))
        return _with_call(made, name, tables) if made and name == "alloc" else made
    gpu = worst_gpu(lost_ns)
    if 2 * _short_ns(walls, tables, (name,))[gpu] < lost_ns[gpu]:
        return of(Cause("dependency"), Change("queued", "long"), "long")
    if (kind := _copied_between(tables, (name,))) is None:
        return of(cause, Change("queued"))
    made = of(cause, Change("queued", "copies"), "copies", ({"copies": f"{kind} copies"}, ()))
    return made and replace(made, recommendation=_batched(kind))


def _copied_between(tables: Tables, causes: tuple[str, ...]) -> str | None:
    """Return the kind of the copies before and after most short gaps of some causes, by time."""
    rows = tables["patterns"]
    rows = rows[rows["cause"].isin(causes)]
    kinds = rows["before"].where(rows["before"] == rows["after"]).str.extract(_COPY, expand=False)
    sums = rows["total_ns"].groupby(kinds).sum()
    if sums.empty or 2 * int(sums.max()) < int(rows["total_ns"].sum()):
        return None
    return str(sums.idxmax())


def _batched(kind: str) -> str:
    return advice_on(copy=kind, size="small") or ""


def _with_call(made: Finding, cause: str, tables: Tables) -> Finding:
    """Return a finding whose advice begins with what the host calls in the longest gap."""
    gpu = made.rank or 0, made.device_id or 0
    calls = _of_gpu(tables["gaps"], gpu, (cause,))["api"].dropna()
    if calls.empty:
        return made
    call = quoted(str(calls.iloc[0]))
    advice = f"Keep buffers from step to step instead of {call} in the loop."
    return replace(made, recommendation=f"{advice} {made.recommendation}")


def _host(walls: Walls, tables: Tables) -> Finding | None:
    """Return the finding on a host that is late: what to do depends on what it does most."""
    lost_ns, short_ns = _lost_ns(walls, HOST_CAUSES), _short_ns(walls, tables, HOST_CAUSES)
    transfers_n = tables["devices"].groupby("rank", sort=True)["transfers_n"].sum()
    are_stages = may_be_stages(transfers_n.astype(int).tolist())
    stages_n = len(transfers_n) if are_stages else 0
    if stages_n > 2:
        lost_ns = short_ns  # without its input, a stage has nothing to launch
    gpu = worst_gpu(lost_ns)
    lost_ns, rows = walls.beside(lost_ns, gpu), _rows(tables, gpu, HOST_CAUSES)
    rule, case = "launch_bound", None
    if rows and rows[0]["detail"] in _WAITS:
        rule = _WAITS[rows[0]["detail"]]
    elif 2 * short_ns[gpu] < lost_ns[gpu]:
        rule = "host_work"
        case = "calls" if _mostly_in_calls(tables, gpu) else None
        case = "stages" if stages_n == 2 else case
    cause, change = host_cause(lost_ns, gpu), Change("host")
    said, advice, shown = _NOTHING, None, case
    if case != "stages" and stages_n <= 2:
        waited = Waited.of(tables, gpu).where("cause", *HOST_CAUSES)
        of_states = host_case(waited, lost_ns[gpu], span_of(tables, gpu))
        said = of_states[1:] if of_states else _of_gaps(tables, gpu, lost_ns[gpu], rule)
        shown = of_states[0] if of_states else case
        # Of slow calls the rule says why.
        of_calls = RULES[rule].cases[case].recommendation if case == "calls" else None
        advice = None if shown == START_UP else of_calls or said[0].get("host_advice")
    if rule == "launch_bound" and shown is None and (kind := _copied_between(tables, HOST_CAUSES)):
        said, advice = ({**said[0], "copies": f"{kind} copies"}, said[1]), _batched(kind)
    if start_up_ns := said[0].get("host_ns"):  # which no later step has
        change = Change("host_part", time_ns=max(lost_ns[gpu] - start_up_ns, 0))
    made = _finding(rule, HOST_CAUSES, lost_ns, walls, tables, cause, change, shown, said)
    return replace(made, recommendation=advice) if made and advice else made


def _of_gaps(tables: Tables, gpu: Gpu, lost_ns: int, rule: str) -> _Said:
    """Return in which range the host was for half of some idle time."""
    rows = _of_gpu(tables["rank_causes"], gpu, HOST_CAUSES)
    sums = rows.groupby("nvtx_range")["range_ns"].sum()
    if sums.empty or 2 * int(sums.max()) < lost_ns:
        return _NOTHING
    name = str(sums.idxmax())
    where = {"rank": gpu[0], "device_id": gpu[1], "cause": HOST_CAUSES, "nvtx_range": name}
    of = partial(claim, tables, "range_pct", "rank_causes", "range_ns", "sum")
    advice = advice_on(**{"launched" if rule == "launch_bound" else "range": name})
    return {"host_range": name, "host_advice": advice}, (of(span_of(tables, gpu), **where),)


def _of_gpu(frame: pd.DataFrame, gpu: Gpu, causes: Sequence[str]) -> pd.DataFrame:
    """Return the rows of a GPU with one of some causes."""
    here = (frame["rank"] == gpu[0]) & (frame["device_id"] == gpu[1])
    return frame[here & frame["cause"].isin(causes)]


def worst_gpu(lost_ns: Mapping[Gpu, int]) -> Gpu:
    """Return the GPU that loses most, the first of equals; there is at least one."""
    return max(sorted(lost_ns), key=lambda gpu: lost_ns[gpu])


def _short_ns(walls: Walls, tables: Tables, causes: tuple[str, ...]) -> dict[Gpu, int]:
    """Return the part of some causes that lies in short gaps, by GPU."""
    rows = tables["rank_causes"]
    rows = rows[rows["cause"].isin(causes) & (rows["low_ns"] < MICRO_GAP_NS)]
    sums = rows.groupby(["rank", "device_id"], sort=True)["idle_ns"].sum()
    return {gpu: int(sums.get(gpu, 0)) for gpu in walls.host_losses_ns}


def _mostly_in_calls(tables: Tables, gpu: Gpu) -> bool:
    """Return whether the late host of a GPU was in CUDA calls for most of its long gaps."""
    rows = _of_gpu(tables["rank_causes"], gpu, HOST_CAUSES)
    rows = rows[rows["low_ns"] >= MICRO_GAP_NS]
    outside_ns = int(rows.loc[rows["cause"] == "host_no_cuda", "idle_ns"].sum())
    return 2 * outside_ns < int(rows["idle_ns"].sum())


def _finding(
    rule: str,
    causes: tuple[str, ...],
    lost_ns: Mapping[Gpu, int],
    walls: Walls,
    tables: Tables,
    cause: Cause,
    change: Change,
    case: str | None = None,
    said: _Said = _NOTHING,
) -> Finding | None:
    """Return the finding of a rule on the GPU that loses most; None where nobody loses any."""
    gpu = worst_gpu(lost_ns)
    lost_ns, rows = walls.beside(lost_ns, gpu), _rows(tables, gpu, causes)
    if not rows or not lost_ns[gpu]:
        return None
    is_short = lost_ns[gpu] < sum(row["time_ns"] for row in rows)
    evidence = _lost(tables, gpu, causes, is_short=is_short)
    ranks, usual_ns = _ranks(lost_ns, walls), usual_loss_ns(lost_ns, gpu)
    fields: dict[str, Any] = {
        "affected_n": None if usual_ns is None else len(ranks),
        "copies": None,
        "other_ranks_median_ns": usual_ns,
    }
    if rule in HOST_RULES:
        words, counts = host_subject(tables, lost_ns, gpu)
        parts = (
            f"{format_percent(row['share_pct'])} {PART_WORDS[row['detail']]}"
            for row in rows[:_MOST_PARTS]
        )
        fields, evidence = {**fields, "parts": ", ".join(parts), **words}, evidence + counts
        where = {"rank": gpu[0], "device_id": gpu[1], "wall_class": IDLE}
        evidence += tuple(
            claim(tables, "part_pct", "wall", "share_pct", "cell", **where, detail=row["detail"])
            for row in rows[:_MOST_PARTS]
        )
    describe = _pattern if rule == "launch_bound" else _longest_gap
    window, more, more_cells = describe(causes, tables, gpu)
    return RULES[rule].finding(
        case=case,
        cause=cause,
        change=change,
        fields=fields | more | dict(said[0]),
        evidence=evidence + more_cells + said[1],
        ranks=ranks,
        rank=gpu[0],
        device_id=gpu[1],
        window_ns=window,
        impact_ns=lost_ns[gpu],
    )


def _lost(
    tables: Tables, gpu: Gpu, causes: tuple[str, ...], *, is_short: bool
) -> tuple[Evidence, ...]:
    """Return the idle time of some causes, in short gaps or in all, its share, and the span."""
    if not is_short:
        return share_of(tables, gpu, "lost_ns", IDLE, *causes)
    lows = tables["rank_causes"]["low_ns"]
    short = tuple(lows[lows < MICRO_GAP_NS].unique().tolist())
    where = {"rank": gpu[0], "device_id": gpu[1], "cause": causes, "low_ns": short}
    return of_span(tables, gpu, "lost_ns", "rank_causes", "idle_ns", **where)


def _ranks(lost_ns: Mapping[Gpu, int], walls: Walls) -> tuple[int, ...]:
    """Return the ranks on which it is worth a line."""
    least = LEAST_PCT / 100.0
    worth = {place for place, ns in lost_ns.items() if ns >= least * walls.span_ns(*place)}
    return tuple(sorted({rank for rank, _ in worth}))


#: Where to look, fields of the templates, and the cells that they are from.
_Described = tuple[tuple[int, int] | None, dict[str, Any], tuple[Evidence, ...]]


def _longest_gap(causes: tuple[str, ...], tables: Tables, gpu: Gpu) -> _Described:
    """Return the longest gap of a GPU with one of some causes."""
    gaps = _of_gpu(tables["gaps"], gpu, causes)
    if gaps.empty:
        return None, dict.fromkeys(GAP_FIELDS), ()
    gap = records(gaps.head(1))[0]
    fields = {name: gap[name] for name in GAP_FIELDS}
    fields["after"] = gap["after"] and shortened(gap["after"])
    if gap["on_core_ns"] is not None:
        fields["on_core_ns"] = format_ns(gap["on_core_ns"])  # 0 is worth a word, too
    columns = [name for name in ("duration_ns", "api_ns", "os_call_ns", "on_core_ns") if gap[name]]
    evidence = cells("gaps", gap, ("rank", "device_id", "start_ns"), columns)
    return (int(gap["start_ns"]), int(gap["end_ns"])), fields, evidence


def _pattern(causes: tuple[str, ...], tables: Tables, gpu: Gpu) -> _Described:
    """Return the costliest short gap that repeats, in the window of a GPU."""
    devices = tables["devices"]
    device = devices[(devices["rank"] == gpu[0]) & (devices["device_id"] == gpu[1])].iloc[0]
    window = int(device["window_start_ns"]), int(device["window_end_ns"])
    rows = tables["patterns"]
    rows = rows[rows["cause"].isin(causes) & (rows["gaps_n"] > 1) & rows["before"].notna()]
    if rows.empty:
        return window, dict.fromkeys(PATTERN_FIELDS), ()
    row = records(rows.head(1))[0]
    fields = {name: row[name] for name in ("before", "after", "gaps_n", "p50_ns")}
    fields["where"] = " on all ranks" if row["ranks_n"] > 1 else ""
    return window, fields, cells("patterns", row, ("before", "after"), ("gaps_n", "p50_ns"))
