"""Findings of all recipes as one list of opportunities, none of them lost.

Those of one cause are one, as are those that `joins.py` joins, priced by the tables of all recipes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nsys_llm.report.causes import Cause
from nsys_llm.report.findings import PERFORMANCE, UNRECORDED_WORK, finding_row
from nsys_llm.report.part import Part
from nsys_llm.report.rules import OF_TIME
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
        if finding.kind == PERFORMANCE
    }
    # GPUs that worked while no operation is recorded: their idle time is none.
    remarks = (made for part in parts.values() for made in part.report.remarks)
    not_idle = {(made.rank, made.device_id) for made in remarks if made.rule == UNRECORDED_WORK}
    groups: dict[Cause, list[Source]] = {}
    for place, made in findings.items():
        is_idle = made.price and IDLE in made.price.wall_classes
        if made.price and made.cause and not (is_idle and (made.rank, made.device_id) in not_idle):
            groups.setdefault(made.cause, []).append((place, made))
    items = joined([_opportunity(cause, members) for cause, members in groups.items()])
    return sorted(items, key=lambda item: (not item.is_shown, *item.order))


def _opportunity(cause: Cause, members: Sequence[Source]) -> Opportunity:
    """Return findings of one cause as one: who says most speaks, the first of them by price.

    What says when, or in which batches, speaks where that is most of it; what says when, with what
    that gains.
    """
    ordered = sorted(members, key=lambda source: (-source[1].specificity, *source[1].order))
    prices = [(made.price, (made.rank, made.device_id)) for _, made in members if made.price]
    price, gpu = min(prices, key=lambda pair: pair[0].order)
    lead = ordered[0][1]
    if lead.specificity >= OF_TIME and lead.price:
        if 2 * lead.price.gain_ns < price.gain_ns:
            ordered.sort(key=lambda source: source[1].specificity >= OF_TIME)
        elif lead.specificity == OF_TIME:
            price, gpu = lead.price, (lead.rank, lead.device_id)
    return Opportunity(tuple(ordered), cause, price, gpu)


def opportunity_rows(
    groups: Sequence[Opportunity], steps_ns: Mapping[int, float | None]
) -> list[dict[str, Any]]:
    """Return the rows of the table `opportunities`, in order.

    Args:
        steps_ns: By rank the mean step of its group, where that is known.
    """
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
        step_ns = None if rank is None else steps_ns.get(rank)
        row = {
            "opportunity": number,
            # A share of the span is as large a share of a mean step.
            "gain_step_ns": group.price.gain_pct / 100.0 * step_ns
            if step_ns is not None and group.price.is_known and not group.price.is_rare
            else None,
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
        left_out = REFUTED if group.price.is_refuted else SMALL
        for place, _ in group.sources:
            role = LEAD if place == group.lead[0] else MERGED
            shown = {"account": role, "opportunity": number}
            account[place] = shown if group.is_shown else {"account": left_out}
    rows = []
    for recipe, part in parts.items():
        for position, finding in enumerate(part.report.findings, 1):
            # In no opportunity: remarks, what has no price, and idle time of a GPU that worked.
            of_time = REFUTED if finding.price and finding.cause else SMALL
            role = of_time if finding.kind == PERFORMANCE else finding.kind
            row = {"recipe": recipe, "position": position, "account": role}
            rows.append({**finding_row(finding), **row, **account.get((recipe, position), {})})
    return rows
