"""What the overview tells its reader: what to fix first, and what it would gain."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final

from nsys_llm.report.answers import nothing_ran
from nsys_llm.report.causes import Cause
from nsys_llm.report.findings import CAPTURE, UNRECORDED_WORK, Evidence, Finding, evidence_of
from nsys_llm.report.price import price_of, price_words
from nsys_llm.report.records import Record, Tables, grouped, records, window_of
from nsys_llm.report.run_texts import RULES as OF_EVERY_RUN
from nsys_llm.report.wall_line import wall_lines
from nsys_llm.taxonomy.wall_classes import APART, BEFORE_STEPS, LOAD
from nsys_llm.view.text import first_quoted, listed, sentences

from ..tables.opportunities import LEAD
from ..tables.timeline import BY_WORKER, LOST
from ..tables.views import step_unit
from .screen import unmatched_line
from .texts import RULES

#: Words of an opportunity's evidence; the rest is in the tables.
_MOST_WORDS: Final = 40
#: Ranks that a sentence names.
_MOST_NAMES: Final = 4


def findings(tables: Tables) -> list[Finding]:
    """Return a finding for each opportunity, and the recipes' remarks on the capture."""
    rows = records(tables["all_findings"])
    members = grouped((row for row in rows if row["opportunity"] is not None), "opportunity")
    reported = [
        _opportunity(row, members[(row["opportunity"],)], step_unit(tables))
        for row in records(tables["opportunities"])
    ]
    return [*reported, *_remarks(rows)]


def answer(tables: Tables) -> str:
    """Return what to fix first, in two sentences."""
    rows = records(tables["opportunities"])
    if not tables["ranks"]["span_ns"].any():
        return nothing_ran(tables)
    if not rows and (unknown := unmatched_line(tables)):
        return f"Profile first what matches no rule. {unknown[0].partition(': ncu')[0]}."
    if not rows:
        nothing = "No recipe found anything whose fix would gain 1 % of a GPU's time or more"
        return f"{nothing}{_where_time_goes(tables)}."
    first = rows[0]
    others = [row["title"] for row in rows[1:3]]
    more = f" Next: {listed(others)}." if others else ""
    return f"Fix first: {first['title']} ({price_words(price_of(first, step_unit(tables)))}).{more}"


def _where_time_goes(tables: Tables) -> str:
    """Return what takes most of the time, and what of it is nobody's to gain, as a clause."""
    if UNRECORDED_WORK in tables["all_findings"]["rule"].tolist():
        return "; most of the GPU's work is not recorded"
    parts = [part for line in wall_lines(tables) for part in line.parts]
    if not parts:
        return ""
    first = f". The largest part of the time is {parts[0].label}, {parts[0].share_pct:.1f} %"
    shares = {part.label: part.share_pct for part in parts}
    if APART[BEFORE_STEPS] in shares:
        before = [shares.pop(APART[name]) for name in (BEFORE_STEPS, LOAD) if APART[name] in shares]
        what = "loading" if len(before) > 1 else "start-up"
        first += f"; {sum(before):.1f} % is {what} before the first step"
    apart = [part for part in parts[1:] if part.label in APART.values() and part.label in shares]
    return f"{first}{''.join(f', {part.text}' for part in apart)}"


def caveats(tables: Tables) -> list[str]:
    """Return what the timeline lacks; what recipes remark on the capture stands under Capture."""
    lost = [row for row in records(tables["timeline"]) if row["part"] == LOST]
    if not lost:
        return []
    names = first_quoted(dict.fromkeys(row["lane"] for row in lost), _MOST_NAMES)
    numbers = ",".join(
        str(rank) for rank in dict.fromkeys(row["rank"] for row in lost[:_MOST_NAMES])
    )
    mode, why = "", "there is room for so many operations only"
    if lost[0]["name"] == BY_WORKER:
        mode, why = "--mode concurrent ", "workers of a Dask cluster read them"
    return [
        f"The timeline does not show what ran on {names}: {why}. `{mode}--ranks {numbers}` draws "
        "them alone. All other tables and figures have these ranks."
    ]


def _opportunity(row: Record, members: Sequence[Record], step_unit: str) -> Finding:
    lead, *others = sorted(members, key=lambda member: member["account"] != LEAD)
    made = RULES["opportunity"].finding(
        price=price_of(row, step_unit),
        details=fitted(row["details"], row["title"], others),
        evidence=tuple(_evidence([lead, *others])),
        numbers={name: value for member in members for name, value in _numbers(member).items()},
        cause=Cause(row["cause"], row["cause_rank"], detail=row["cause_detail"]),
        name=lead["name"],
        window_ns=window_of(row, "window_start_ns", "window_end_ns"),
        steps=_steps(row["steps"]),
        tables=tuple(dict.fromkeys(item["recipe"] for item in [lead, *others])),
        **_common(row),
    )
    return replace(made, rule=row["rule"])


def fitted(details: str, title: str, others: Sequence[Record]) -> str:
    """Return the evidence in few words: a sentence, what others saw, each once, more sentences.

    What gains something beside the lead is part of the price, and never left out for its details.
    """
    titles = dict.fromkeys(other["title"] for other in others if other["title"] != title)
    first, *more = sentences(details)
    parts = [first, *(f"Also: {seen}." for seen in titles), *more]
    lengths = accumulate(len(part.split()) for part in parts)
    kept = [part for part, words_n in zip(parts, lengths, strict=True) if words_n <= _MOST_WORDS]
    return " ".join(kept or parts[:1])


def _steps(words: str | None) -> tuple[int, int] | None:
    """Return the steps that the table has as `15-29`."""
    first, _, last = (words or "").partition("-")
    return (int(first), int(last)) if last else None


def _evidence(rows: Iterable[Record]) -> Iterable[Evidence]:
    for row in rows:
        for cell in json.loads(row["evidence"]):
            yield evidence_of(cell, f"{row['recipe']}/")


def _numbers(row: Record) -> dict[str, float]:
    gains = {name: row[name] for name in ("gain_ns", "gain_pct", "gain_step_ns")}
    numbers = json.loads(row["numbers"]) | gains
    of_rule = f"{row['recipe']}.{row['rule']}"
    return {f"{of_rule}.{name}": value for name, value in numbers.items() if value is not None}


def _common(row: Record) -> dict[str, Any]:
    return {
        "fields": {"title": row["title"], "recommendation": row["recommendation"]},
        "ranks": tuple(int(rank) for rank in (row["ranks"] or "").split(",") if rank),
        "rank": row["rank"],
        "device_id": row["device_id"],
        "record": row["record"],
        "ncu": row["ncu"],
    }


def _remarks(rows: Sequence[Record]) -> list[Finding]:
    """Return the remarks on the capture, each once however many recipes make it.

    Those that every run makes, the overview makes too.
    """
    every = [row for row in rows if row["kind"] == CAPTURE and row["rule"] not in OF_EVERY_RUN]
    reported = []
    for row, *_ in grouped(every, "rule", "title").values():
        made = RULES["remark"].finding(
            details=row["details"],
            evidence=tuple(_evidence([row])),
            numbers=json.loads(row["numbers"]),
            **_common(row),
        )
        reported.append(replace(made, rule=row["rule"]))
    return reported
