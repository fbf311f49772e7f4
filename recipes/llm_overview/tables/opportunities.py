"""Findings of all recipes as one list of opportunities, none of them lost.

Findings of one cause are one opportunity, and `joins.py` declares which cause is part of which. The
finding that says most precisely why speaks; the cause that stays gives the price, computed from the
tables of all recipes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pandas as pd

from nsys_llm.report.causes import Cause
from nsys_llm.report.findings import (
    PERFORMANCE,
    UNRECORDED_WORK,
    Finding,
    finding_row,
    order_of,
)
from nsys_llm.report.part import Part
from nsys_llm.report.price import Price
from nsys_llm.report.prices.pricing import priced
from nsys_llm.taxonomy.wall_classes import IDLE

from .joins import joined

#: What the table `all_findings` says of a finding that speaks for its opportunity, of the others of
#: it, of one that a replay or GPU metrics refute, and of one that all tables price so low.
LEAD: Final = "lead"
MERGED: Final = "merged"
REFUTED: Final = "refuted"
SMALL: Final = "small"
#: The recipe whose table `wall` divides most classes.
_MOST_DIVIDED: Final = "step_budget"
#: A finding, and the recipe that has it.
Source = tuple[str, Finding]


@dataclass(frozen=True)
class Opportunity:
    """Findings on one thing.

    Attributes:
        sources: Those that say why most precisely first.
        gpu: Where: rank and CUDA device id.
    """

    sources: tuple[Source, ...]
    cause: Cause
    price: Price
    gpu: tuple[int | None, int | None]

    @property
    def lead(self) -> Source:
        """The finding that speaks for all."""
        return self.sources[0]

    @property
    def is_shown(self) -> bool:
        """Whether it gains enough for a line."""
        return self.price.severity is not None

    @property
    def order(self) -> tuple[Any, ...]:
        """Where it stands among others."""
        _, finding = self.lead
        return order_of(self.price, finding.rule, finding.rank, finding.name)


def all_tables(parts: Mapping[str, Part]) -> dict[str, pd.DataFrame]:
    """Return the tables of all recipes; of those that several have, the most divided."""
    order = sorted(parts, key=lambda name: name == _MOST_DIVIDED)
    return {table: frame for name in order for table, frame in parts[name].tables.items()}


def grouped_findings(parts: Mapping[str, Part]) -> list[Opportunity]:
    """Return the opportunities in order, those that are not shown too."""
    unrecorded = _unrecorded_gpus(parts)
    sources = [
        (recipe, finding)
        for recipe, part in parts.items()
        for finding in part.report.findings
        if finding.kind == PERFORMANCE and not _is_idle(finding, unrecorded)
    ]
    fresh = priced([finding for _, finding in sources], all_tables(parts))
    groups: dict[Cause, list[Source]] = {}
    for (recipe, _), finding in zip(sources, fresh, strict=True):
        if finding.cause is not None and finding.price is not None:
            groups.setdefault(finding.cause, []).append((recipe, finding))
    items = joined([_opportunity(cause, members) for cause, members in groups.items()])
    return sorted(items, key=lambda item: item.order)


def _unrecorded_gpus(parts: Mapping[str, Part]) -> set[tuple[int | None, int | None]]:
    """Return the GPUs that worked while no operation is recorded: their idle time is none."""
    findings = (finding for part in parts.values() for finding in part.report.remarks)
    return {
        (finding.rank, finding.device_id) for finding in findings if finding.rule == UNRECORDED_WORK
    }


def _is_idle(finding: Finding, gpus: Collection[tuple[int | None, int | None]]) -> bool:
    """Return whether a finding is on idle time of one of some GPUs."""
    classes = () if finding.price is None else finding.price.wall_classes
    return IDLE in classes and (finding.rank, finding.device_id) in gpus


def _opportunity(cause: Cause, members: Sequence[Source]) -> Opportunity:
    """Return findings of one cause as one: who says most speaks, the first of them by price."""
    ordered = sorted(members, key=lambda source: (-source[1].specificity, *source[1].order))
    prices = [(made.price, (made.rank, made.device_id)) for _, made in members if made.price]
    return Opportunity(tuple(ordered), cause, *min(prices, key=lambda pair: pair[0].order))


def opportunity_rows(groups: Sequence[Opportunity], step_ns: float | None) -> list[dict[str, Any]]:
    """Return the rows of the table `opportunities`, in order."""
    shown = (group for group in groups if group.is_shown)
    return [_opportunity_row(number, group, step_ns) for number, group in enumerate(shown, 1)]


def _opportunity_row(number: int, group: Opportunity, step_ns: float | None) -> dict[str, Any]:
    recipe, finding = group.lead
    rank, device_id = group.gpu
    ranks = finding.ranks and tuple(sorted({*finding.ranks, *(() if rank is None else (rank,))}))
    there = (made for _, made in group.sources if (made.rank, made.device_id) == group.gpu)
    told = replace(
        finding,
        cause=group.cause,
        price=group.price,
        rank=rank,
        device_id=device_id,
        ranks=ranks,
        window_ns=next((made.window_ns for made in there if made.window_ns), None),
    )
    return {
        **finding_row(told),
        "opportunity": number,
        # A share of the span is as large a share of a mean step.
        "gain_step_ns": None if step_ns is None else group.price.gain_pct / 100.0 * step_ns,
        "recipe": recipe,
        "recipes": ", ".join(dict.fromkeys(name for name, _ in group.sources)),
        "findings_n": len(group.sources),
    }


def all_finding_rows(
    parts: Mapping[str, Part], groups: Sequence[Opportunity]
) -> list[dict[str, Any]]:
    """Return the rows of the table `all_findings`: each finding of each recipe once, in order."""
    refuted = (group.sources for group in groups if group.price.is_refuted)
    account: dict[tuple[Any, ...], tuple[str, int | None]] = {
        _key(*source): (REFUTED, None) for sources in refuted for source in sources
    }
    for number, group in enumerate((group for group in groups if group.is_shown), 1):
        account |= {_key(*source): (MERGED, number) for source in group.sources}
        account[_key(*group.lead)] = LEAD, number
    unrecorded = _unrecorded_gpus(parts)
    rows = []
    for recipe, part in parts.items():
        for position, finding in enumerate(part.report.findings, 1):
            left_out = SMALL if finding.kind == PERFORMANCE else finding.kind
            left_out = REFUTED if _is_idle(finding, unrecorded) else left_out
            role, number_of = account.get(_key(recipe, finding), (left_out, None))
            place = {"recipe": recipe, "position": position}
            rows.append(
                {**finding_row(finding), **place, "account": role, "opportunity": number_of}
            )
    return rows


def _key(recipe: str, finding: Finding) -> tuple[Any, ...]:
    """Return what tells a finding from all others, whatever its price."""
    return recipe, finding.rule, finding.rank, finding.device_id, finding.name, finding.title
