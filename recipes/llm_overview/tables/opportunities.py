"""Findings of all recipes as one list of opportunities, none of them lost.

Two findings are the same opportunity if they name the same culprit, or if both are about the same
cause on the same GPU and more than half of the shorter one's window lies in the other's. The gain
is that of the largest finding: gains of one thing seen by several recipes do not add up.

That a GPU idles in a phase tells where, and not why: where a finding names a cause of idle time on
the same rank, it is part of the largest such, whose gain stands, as it is the cause that goes away.
Exposed communication of a stage is the pipeline's bubble likewise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from nsys_llm.report.findings import PERFORMANCE, Finding, finding_row
from nsys_llm.report.part import Part
from nsys_llm.taxonomy.wall_classes import IDLE

#: How the culprit of a finding begins that says in which phase a GPU idles.
_PHASE: Final = "phase:"
_PIPELINE: Final = "pipeline:"
_EXPOSED: Final = "exposed_communication"

#: What the table `all_findings` says of a finding that speaks for its opportunity.
LEAD: Final = "lead"
#: A finding, and the recipe that has it.
Source = tuple[str, Finding]


@dataclass(frozen=True)
class Opportunity:
    """Findings on one thing; the first has the largest gain."""

    sources: tuple[Source, ...]

    @property
    def lead(self) -> Source:
        """The finding that speaks for all."""
        return self.sources[0]


def grouped_findings(parts: Mapping[str, Part]) -> list[Opportunity]:
    """Return the opportunities, the largest gain first; severity `tail` after all others."""
    sources = [
        (recipe, finding)
        for recipe, part in parts.items()
        for finding in part.report.findings
        if finding.kind == PERFORMANCE and finding.gain is not None
    ]
    order = sorted(
        range(len(sources)),
        key=lambda place: (_tells_where(sources[place][1]), *_order(sources[place])),
    )
    groups: list[list[Source]] = []
    for place in order:
        source = sources[place]
        group = next((some for some in groups if _is_one(source[1], some)), None)
        if group is None:
            groups.append([source])
        else:
            group.append(source)
    groups = [sorted(some, key=lambda source: _place_in(source, some[0][1])) for some in groups]
    return [Opportunity(tuple(group)) for group in sorted(groups, key=lambda some: _order(some[0]))]


def _place_in(source: Source, first: Finding) -> tuple[Any, ...]:
    """Return where a finding stands in its opportunity: what tells why, then what gains most."""
    return (_is_place(source[1]) or _is_bubble(source[1], first), *_order(source))


def _order(source: Source) -> tuple[Any, ...]:
    recipe, finding = source
    gain = finding.gain
    return (
        finding.severity == "tail",
        -(gain.gain_pct if gain else 0.0),
        finding.rule,
        recipe,
        -1 if finding.rank is None else finding.rank,
        finding.name or "",
    )


def _tells_where(finding: Finding) -> bool:
    """Tell whether a finding may be part of one that says why, which has to stand before it."""
    return _is_place(finding) or finding.rule == _EXPOSED


def _is_place(finding: Finding) -> bool:
    """Tell whether a finding says where a GPU idles, and not why."""
    return finding.cause is None and (finding.culprit or "").startswith(_PHASE)


def _is_one(finding: Finding, group: Sequence[Source]) -> bool:
    lead = group[0][1]
    if _is_place(finding) and _is_cause_of_idle(lead) and finding.rank in (lead.rank, *lead.ranks):
        return True
    if _is_bubble(finding, lead):
        return True
    return any(_same_thing(finding, other) for _, other in group)


def _is_bubble(finding: Finding, lead: Finding) -> bool:
    """Tell whether a finding is on exposed communication of a stage of a pipeline."""
    pipeline = (lead.culprit or "").startswith(_PIPELINE)
    return pipeline and finding.rule == _EXPOSED and finding.rank in lead.ranks


def _is_cause_of_idle(finding: Finding) -> bool:
    gain = finding.gain
    return finding.cause is not None and gain is not None and gain.wall_classes == (IDLE,)


def _same_thing(one: Finding, other: Finding) -> bool:
    if one.culprit is not None and one.culprit == other.culprit:
        return True
    if one.cause is None or one.cause != other.cause:
        return False
    if (one.rank, one.device_id) != (other.rank, other.device_id):
        return False
    return (
        one.window_ns is None or other.window_ns is None or _overlap(one.window_ns, other.window_ns)
    )


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Tell whether two windows share more than half of the shorter one."""
    shared_ns = min(one[1], other[1]) - max(one[0], other[0])
    shorter_ns = min(one[1] - one[0], other[1] - other[0])
    return 2 * shared_ns > shorter_ns


def opportunity_rows(groups: Sequence[Opportunity], step_ns: float | None) -> list[dict[str, Any]]:
    """Return the rows of the table `opportunities`, in order.

    Args:
        groups: The opportunities.
        step_ns: Mean step of the job; None without steps.
    """
    return [_opportunity_row(number, group, step_ns) for number, group in enumerate(groups, 1)]


def _opportunity_row(number: int, group: Opportunity, step_ns: float | None) -> dict[str, Any]:
    recipe, finding = group.lead
    row = finding_row(finding)
    kept = (
        *("severity", "title", "gain_ns", "gain_pct", "gain_is_bound"),
        *("gain_basis", "gain_tail_pct", "span_ns", "rank", "device_id", "ranks", "culprit"),
        *("cause", "cause_ns"),
        *("details", "recommendation", "record", "window_start_ns", "window_end_ns"),
    )
    return {
        "opportunity": number,
        **{name: row[name] for name in kept},
        "replayed_pct": _replayed_pct(group),
        # A share of the span is as large a share of a mean step.
        "gain_step_ns": None if step_ns is None else row["gain_pct"] / 100.0 * step_ns,
        "recipe": recipe,
        "rule": finding.rule,
        "recipes": ", ".join(dict.fromkeys(name for name, _ in group.sources)),
        "findings_n": len(group.sources),
    }


def _replayed_pct(group: Opportunity) -> float | None:
    """Return what a replay with the fix gains, where the gain is a bound; the first finding's."""
    gains = [finding.gain for _, finding in group.sources if finding.gain is not None]
    if not gains or not gains[0].is_bound:
        return None
    return next((gain.replayed_pct for gain in gains if gain.replayed_pct is not None), None)


def all_finding_rows(
    parts: Mapping[str, Part], groups: Sequence[Opportunity]
) -> list[dict[str, Any]]:
    """Return the rows of the table `all_findings`: each finding of each recipe once, in order."""
    account: dict[tuple[str, int], tuple[str, int]] = {}
    for number, group in enumerate(groups, 1):
        for place, (recipe, finding) in enumerate(group.sources):
            account[recipe, id(finding)] = ("merged" if place else LEAD, number)
    return [
        _account_row(recipe, position, finding, account.get((recipe, id(finding))))
        for recipe, part in parts.items()
        for position, finding in enumerate(part.report.findings, 1)
    ]


def _account_row(
    recipe: str, position: int, finding: Finding, account: tuple[str, int] | None
) -> dict[str, Any]:
    row = finding_row(finding)
    kept = (
        *("kind", "severity", "rule", "rank", "device_id", "ranks", "name", "gain_ns"),
        *("gain_pct", "gain_step_ns"),
        *("title", "details", "recommendation", "record", "evidence", "numbers", "wall_classes"),
    )
    where, opportunity = account or (finding.kind, None)
    return {
        "recipe": recipe,
        "position": position,
        "account": where,
        "opportunity": opportunity,
        **{name: row[name] for name in kept},
    }
