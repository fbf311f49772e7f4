"""Findings of all recipes as one list of opportunities, none of them lost.

Findings of one cause are one opportunity, and `joins.py` declares which cause is part of which. The
finding that says most precisely why speaks; the cause that stays gives the price, computed from the
tables of all recipes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nsys_llm.report.causes import Cause
from nsys_llm.report.findings import PERFORMANCE, UNRECORDED_WORK, finding_row
from nsys_llm.report.part import Part
from nsys_llm.report.prices.pricing import priced
from nsys_llm.taxonomy.wall_classes import IDLE

from .joins import Opportunity, Place, Source, joined

#: What the table `all_findings` says of a finding that speaks for its opportunity, of the others of
#: it, of one that a replay or GPU metrics refute, and of one that all tables price so low.
LEAD, MERGED, REFUTED, SMALL = "lead", "merged", "refuted", "small"


def grouped_findings(parts: Mapping[str, Part]) -> list[Opportunity]:
    """Return the opportunities in order, those that are not shown last."""
    findings = {
        (recipe, position): finding
        for recipe, part in parts.items()
        for position, finding in enumerate(part.report.findings, 1)
    }
    # Of tables that several recipes have, those that divide most classes of the wall split.
    order = sorted(parts, key=lambda name: name == "step_budget")
    tables = {table: frame for name in order for table, frame in parts[name].tables.items()}
    # GPUs that worked while no operation is recorded: their idle time is none.
    busy = [made for made in findings.values() if made.rule == UNRECORDED_WORK]
    not_idle = {(made.rank, made.device_id) for made in busy}
    groups: dict[Cause, list[Source]] = {}
    for place, made in zip(findings, priced(findings.values(), tables), strict=True):
        is_idle = made.price and IDLE in made.price.wall_classes
        if made.price and made.cause and not (is_idle and (made.rank, made.device_id) in not_idle):
            groups.setdefault(made.cause, []).append((place, made))
    items = joined([_opportunity(cause, members) for cause, members in groups.items()])
    return sorted(items, key=lambda item: (not item.is_shown, *item.order))


def _opportunity(cause: Cause, members: Sequence[Source]) -> Opportunity:
    """Return findings of one cause as one: who says most speaks, the first of them by price."""
    ordered = sorted(members, key=lambda source: (-source[1].specificity, *source[1].order))
    prices = [(made.price, (made.rank, made.device_id)) for _, made in members if made.price]
    return Opportunity(tuple(ordered), cause, *min(prices, key=lambda pair: pair[0].order))


def opportunity_rows(groups: Sequence[Opportunity], step_ns: float | None) -> list[dict[str, Any]]:
    """Return the rows of the table `opportunities`, in order."""
    rows = []
    for number, group in enumerate((group for group in groups if group.is_shown), 1):
        ((recipe, _), lead), (rank, device_id) = group.lead, group.gpu
        ranks = lead.ranks and {*lead.ranks, *(() if rank is None else (rank,))}
        there = (made for _, made in group.sources if (made.rank, made.device_id) == group.gpu)
        finding = replace(
            lead,
            cause=group.cause,
            price=group.price,
            rank=rank,
            device_id=device_id,
            ranks=tuple(sorted(ranks)),
            window_ns=next((made.window_ns for made in there if made.window_ns), None),
        )
        row = {
            "opportunity": number,
            # A share of the span is as large a share of a mean step.
            "gain_step_ns": None if step_ns is None else group.price.gain_pct / 100.0 * step_ns,
            "recipe": recipe,
            "recipes": ", ".join(dict.fromkeys(recipe for (recipe, _), _ in group.sources)),
            "findings_n": len(group.sources),
        }
        rows.append({**finding_row(finding), **row})
    return rows


def all_finding_rows(
    parts: Mapping[str, Part], groups: Sequence[Opportunity]
) -> list[dict[str, Any]]:
    """Return the rows of the table `all_findings`: each finding of each recipe once, in order."""
    account: dict[Place, dict[str, Any]] = {}
    for number, group in enumerate(groups, 1):
        role: dict[str, Any] = {"account": REFUTED if group.price.is_refuted else SMALL}
        if group.is_shown:
            role = {"account": MERGED, "opportunity": number}
        account |= {place: role for place, _ in group.sources}
        if group.is_shown:
            account[group.lead[0]] = {"account": LEAD, "opportunity": number}
    rows = []
    for recipe, part in parts.items():
        for position, finding in enumerate(part.report.findings, 1):
            # In no opportunity are remarks, and idle time of a GPU that worked.
            left_out = REFUTED if finding.kind == PERFORMANCE else finding.kind
            row = {"recipe": recipe, "position": position, "account": left_out}
            rows.append({**finding_row(finding), **row, **account.get((recipe, position), {})})
    return rows
