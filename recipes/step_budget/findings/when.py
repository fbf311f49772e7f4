"""Findings on what makes some steps longer than others: since when, once, every few steps."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Final

from nsys_llm.report.causes import Cause
from nsys_llm.report.findings import Finding, cells, claim
from nsys_llm.report.price import Price
from nsys_llm.report.prices.replays import SpanSteps
from nsys_llm.report.records import Record, Tables, grouped, records
from nsys_llm.report.walls import Gpu, span_of
from nsys_llm.taxonomy.advice import advice_on
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, COMPUTE, COPIES, IDLE
from nsys_llm.view.text import quoted, ranks_words, shortened

from .texts import RULES, WHEN_CASES

#: By what takes longer: the rule, and the classes of the wall that it gains.
_ABOUT: Final = {
    "compute": ("when_compute", (COMPUTE,)),
    "all_compute": ("when_compute", (COMPUTE,)),
    "idle": ("when_idle", (IDLE, COMMUNICATION)),
    "copies": ("when_copies", (COPIES,)),
    "communication": ("when_communication", (COMMUNICATION,)),
}
_EVENTS: Final = ("once", "times", "every")
_COLUMNS: Final = (
    *("ranks_n", "of_steps_n", "steps_n", "events_n", "period_steps", "usual_ns"),
    *("excess_ns", "each_ns", "excess_pct", "first_step", "last_step"),
)


def when_findings(tables: Tables) -> list[Finding]:
    """Return a finding for each pattern of the table `when`."""
    rows = grouped(records(tables["when"]), "pattern")
    return [_finding(tables, row, parts) for row, *parts in rows.values()]


def _finding(tables: Tables, row: Record, parts: list[Record]) -> Finding:
    # On the GPU that has most of it.
    most = max(parts, key=lambda part: (part["excess_ns"], -part["rank"])) if parts else row
    gpu = most["rank"], most["device_id"]
    steps, of = _steps(row), partial(claim, tables)
    span, rule = span_of(tables, gpu), RULES[_ABOUT[row["about"]][0]]
    of_gpu = "pattern", "rank", "device_id"
    key: tuple[str, ...] = of_gpu if row["rank"] is not None else ("pattern", "ranks", "of_job")
    # What a title names chooses the row of its numbers.
    key = (*key, "place") if row["place"] else key
    where = {name: row[name] for name in key}
    share = of("share_pct", "when", "excess_ns", "cell", span, **where)
    evidence = [*cells("when", row, key, _COLUMNS), share]
    case = row["sharing"] if row["sharing"] == "turns" else WHEN_CASES[row["kind"]]
    if case == "turns" and row["cause"]:
        case = "apart"
    if row["about"] == "all_compute":
        case = "common"
    elif row["sharing"] == "after":
        case = "after"
        for part in (parts[0], parts[-1]):
            evidence += cells("when", part, of_gpu, ("first_step", "last_step"))
    if case == "turns":
        ranks = tuple(part["rank"] for part in parts)
        of_parts = {"pattern": row["pattern"], "rank": ranks}
        evidence += [
            of("turn_n", "when", "steps_n", "median", **of_parts),
            of("turn_pct", "when", "excess_ns", "mean", span, **of_parts),
        ]
    said = rule.finding(
        case=case,
        cause=_cause(tables, row),
        price=_price(tables, row, gpu, span.value),
        fields=_words(tables, row, parts),
        evidence=tuple(evidence),
        ranks=() if row["all_ranks"] else tuple(int(rank) for rank in row["ranks"].split(", ")),
        rank=gpu[0],
        device_id=gpu[1],
        window_ns=window_of_steps(tables, gpu, *steps),
        steps=steps,
        impact_ns=row["excess_ns"],
    )
    cause, place = row["cause"], row["place"] or row["cause"]
    advice = cause and advice_on(pause=cause, sharing=row["sharing"], range=place)
    return replace(said, recommendation=advice) if advice else said


def _steps(row: Record) -> tuple[int, int]:
    """Return its first and last step; of events those of the largest."""
    if row["kind"] in _EVENTS and row["sharing"] != "turns":
        return row["worst_step"], row["worst_step"]
    return row["first_step"], row["last_step"]


def window_of_steps(tables: Tables, gpu: Gpu, first: int, last: int) -> tuple[int, int] | None:
    """Return steps of the job on a GPU, in the clock of its profile."""
    steps = tables["device_steps"]
    steps = steps[(steps["rank"] == gpu[0]) & (steps["device_id"] == gpu[1])]
    steps = steps[steps["job_step"].between(first, last)]
    return (int(steps["start_ns"].min()), int(steps["end_ns"].max())) if len(steps) else None


def _cause(tables: Tables, row: Record) -> Cause:
    if row["about"] == "all_compute":
        return Cause("kernels")
    if row["about"] in ("copies", "communication"):
        return Cause("copies" if row["about"] == "copies" else "transfer")
    if row["about"] == "idle" and (row["rank"] is None or _is_alone(tables)):
        return Cause("host")
    if row["rank"] is None:
        return Cause("rank", detail=f"ranks {row['ranks']}", note="slow_gpu")
    note = _verdict(tables, row) or ("slow_gpu" if row["about"] == "compute" else "late_host")
    note = "pauses" if row["about"] == "idle" and row["kind"] in _EVENTS else note
    return Cause("rank", row["rank"], row["device_id"], note=note)


def _is_alone(tables: Tables) -> bool:
    return len(tables["rank_edges"]) == 1


def _verdict(tables: Tables, row: Record) -> str | None:
    rows = tables["rank_verdicts"]
    rows = rows[(rows["rank"] == row["rank"]) & (rows["device_id"] == row["device_id"])]
    return next(iter(rows["verdict"].dropna()), None)


def _price(tables: Tables, row: Record, gpu: Gpu, span_ns: int) -> Price:
    """Return what it costs: events are of the run, and no mean of steps."""
    steps = SpanSteps(tables)
    gain_ns = min(row["excess_ns"], span_ns)
    return Price(
        span_ns=span_ns,
        wall_classes=_ABOUT[row["about"]][1],
        bound_ns=gain_ns,
        about_ns=gain_ns,
        about_basis="measured",
        steps_n=None if row["kind"] in _EVENTS else steps.in_span(gpu, span_ns),
        step_unit=steps.unit or "step",
    )


def _words(tables: Tables, row: Record, parts: list[Record]) -> dict[str, Any]:
    """Return the fields of the templates that are words."""
    who, first, last = _who(tables, row), row["first_step"], row["last_step"]
    named = row["place"] and quoted(shortened(row["place"]))
    is_one, grows = row["rank"] is not None and bool(who), row["kind"] == "grows"
    after = [f"rank {it['rank']} in steps {it['first_step']}-{it['last_step']}" for it in parts]
    return {
        "who": who,
        "in_step": f"{who} in step {first}" if who else f"in step {first}",
        "gpus": f"R{who[1:]}'s GPU is"
        if is_one
        else f"The GPU{'s of ' * bool(who)}{who} are"
        if who
        else "The GPU is",
        "hosts": f"R{who[1:]}'s host is"
        if is_one
        else f"The hosts of {who} are"
        if who
        else "The host is",
        "when": {
            "from": f"from step {first}",
            "until": f"until step {last}",
            "between": f"in steps {first}-{last}",
        }.get(row["kind"]),
        "on": " on" if row["kind"] == "from" else "",
        "named": named,
        "place": _place_words(row, named),
        "cause": row["cause"] and f"{row['cause'][0].upper()}{row['cause'][1:]}",
        "why": "" if _verdict(tables, row) == "more_work" else " (clock, temperature, power limit)",
        "compute": f"On {_every(len(parts))} GPUs compute" if parts else "Compute",
        "after": ", then ".join(after),
        "gets": "slower" if grows else "faster",
        "later": "later and later" if grows else "less and less late",
        "longer": "longer and longer" if grows else "less and less time",
        "turn_ranks": ranks_words(part["rank"] for part in parts).capitalize() if parts else "",
        "host_advice": advice_on(range=row["place"]) if row["place"] else None,
    }


def _place_words(row: Record, named: str | None) -> str | None:
    """Return what the host did there, as it follows a colon."""
    if row["about"] != "idle" or not (named or row["cause"]):
        return named
    if row["cause"] is None:
        return f"the host in {named}"
    return f"{row['cause']} ({named})" if named else row["cause"]


def _every(n: int) -> str:
    return "both" if n == 2 else f"all {n}"


def _who(tables: Tables, row: Record) -> str:
    """Return whose it is, as a title has it; empty where there is one rank."""
    if _is_alone(tables):
        return ""
    if row["rank"] is not None:
        return f"rank {row['rank']}"
    if row["all_ranks"]:
        return f"{_every(row['ranks_n'])} ranks"
    return ranks_words(map(int, row["ranks"].split(", ")))
