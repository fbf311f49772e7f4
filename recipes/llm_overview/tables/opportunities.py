"""Findings of all recipes as one list of opportunities, none of them lost.

Two findings are the same opportunity if they name the same culprit, or if both are about the same
cause on the same GPU and more than half of the shorter one's window lies in the other's. The gain
is that of the largest finding: gains of one thing seen by several recipes do not add up. Of a rank
that is late, an estimate that is larger than the bound of its path does not count, unless that
bound is of whole steps only, in a longer span.

That a GPU idles in a phase tells where, and not why: where a finding names a cause of idle time on
the same rank, it is part of the largest such, whose gain stands, as it is the cause that goes away.
Exposed communication of a stage is the pipeline's bubble likewise.

A host that is late on one rank, and on no other, is why the others wait for that rank: it is part
of what is said of the rank, unless the kernels of that rank are slow, which is another thing.

That the host comes late is part of a wait that makes it late: a replay without that wait gains more
than half of what one with a host that takes no time does.

That a GPU waits in collectives tells not for whom: it is part of a finding that names the rank that
this GPU waits for. Where collectives are too few to say, that is a rank that is slow by at least
half as much, and came last most often. Copies on the critical path are those of the kind that takes
most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from nsys_llm.report.findings import PERFORMANCE, Finding, finding_row
from nsys_llm.report.part import Part
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, COMPUTE, IDLE

#: How the culprit of a finding begins that says in which phase a GPU idles.
_PHASE: Final = "phase:"
_PIPELINE: Final = "pipeline:"
_EXPOSED: Final = "exposed_communication"
#: Culprit of findings on a host that launches too late, and how that of a rank begins.
_LATE_HOST: Final = "host:late"
_RANK: Final = "rank:"
#: How the culprit of waits begins that are for no rank in particular.
_NOBODY: Final = "communicator:"
#: Culprit of copies of any kind, and how that of one kind begins.
_LINK: Final = "copies:link"
_COPIES: Final = "copies:"
#: Number of a finding on idle time: what the other ranks lose in the median.
_OTHERS: Final = "other_ranks_median_ns"

#: Number of a finding on a wait that exposes the host's work.
_EXPOSED_HOST: Final = "fast_host_pct"

#: Numbers of a gain of steps in a longer span: the time in whole ones, and in those that are cut.
_STEPS: Final = ("whole_steps_ns", "cut_steps_ns")
#: Number of a finding on waits, where it is not known whether a rank is late: who was last most.
_MOST_OFTEN_LAST: Final = "most_often_last"

#: What the table `all_findings` says of a finding that speaks for its opportunity.
LEAD: Final = "lead"
#: A finding, and the recipe that has it.
Source = tuple[str, Finding]


@dataclass(frozen=True)
class Opportunity:
    """Findings on one thing; the first speaks for all: see `_place_in`."""

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
        group = _group_of(source[1], groups)
        if group is None:
            groups.append([source])
        else:
            group.append(source)
    groups = _with_exposed_host(_with_copies(_with_late_host(groups)))
    groups = [sorted(some, key=lambda source: _place_in(source, some)) for some in groups]
    return [Opportunity(tuple(group)) for group in sorted(groups, key=lambda some: _order(some[0]))]


def _group_of(finding: Finding, groups: Sequence[list[Source]]) -> list[Source] | None:
    """Return the opportunity that a finding is part of, if there is one.

    A place of idle time is part of the largest cause of it on that rank; of others the culprit
    counts before the cause.
    """
    if _is_place(finding):
        causes = [(_cause_ns(group, finding.rank), group) for group in groups]
        largest_ns, largest = max(causes, key=lambda cause: cause[0], default=(0.0, None))
        if largest is not None and largest_ns > 0:
            return largest
    bubble = (group for group in groups if _is_bubble(finding, group[0][1]))
    waits = (group for group in groups if any(_is_wait_for(finding, member) for _, member in group))
    named = (
        group for group in groups if any(_same_culprit(finding, member) for _, member in group)
    )
    alike = (group for group in groups if _is_one(finding, group))
    return next(chain(bubble, waits, named, alike), None)


def _cause_ns(group: Sequence[Source], rank: int | None) -> float:
    """Return the largest loss of a rank to a cause of idle time that is told there; 0 if none."""
    return max(
        (_loss_ns(member, rank) for _, member in group if _is_cause_of_idle(member)), default=0.0
    )


def _loss_ns(finding: Finding, rank: int | None) -> float:
    """Return what a rank loses by a finding; of another than the worst one, what is usual."""
    if finding.gain is None or rank not in (finding.rank, *finding.ranks):
        return 0.0
    worst_ns = float(finding.gain.gain_ns)
    return worst_ns if rank == finding.rank else finding.numbers.get(_OTHERS, worst_ns)


def _with_late_host(groups: list[list[Source]]) -> list[list[Source]]:
    """Return the opportunities, that on a host late on one rank alone joined with the rank's."""
    late = next((some for some in groups if any(_is_own_host(member) for _, member in some)), None)
    if late is None:
        return groups
    rank = next(member.rank for _, member in late if _is_own_host(member))
    named = next((some for some in groups if _is_waited_for(some, rank)), None)
    if named is None or named is late:
        return groups
    return _joined(groups, named, late)


def _with_exposed_host(groups: list[list[Source]]) -> list[list[Source]]:
    """Return the opportunities, a late host joined with the wait that makes it late.

    A host that is late on another rank alone is late for its own reasons, as is one whose lateness
    costs more than twice what the wait does.
    """
    wait = next((some for some in groups if any(_exposes_host(member) for _, member in some)), None)
    late = next((some for some in groups if some[0][1].culprit == _LATE_HOST), None)
    if wait is None or late is None or wait is late:
        return groups
    lead = next(member for _, member in wait if _exposes_host(member))
    if _gain_ns(late[0][1]) > 2 * _gain_ns(lead):
        return groups
    if any(_is_own_host(member) and member.rank != lead.rank for _, member in late):
        return groups
    return _joined(groups, wait, late)


def _exposes_host(finding: Finding) -> bool:
    return _EXPOSED_HOST in finding.numbers


def _gain_ns(finding: Finding) -> int:
    return finding.gain.gain_ns if finding.gain is not None else 0


def _with_copies(groups: list[list[Source]]) -> list[list[Source]]:
    """Return the opportunities, what the path alone says of copies joined with the largest kind.

    Where another recipe speaks of copies of any kind, too, those of a kind have their own lever.
    """
    link = next((some for some in groups if some[0][1].culprit == _LINK and len(some) == 1), None)
    kinds = [some for some in groups if (some[0][1].culprit or "").startswith(_COPIES)]
    kind = next((some for some in kinds if some is not link), None)
    return groups if link is None or kind is None else _joined(groups, link, kind)


def _joined(
    groups: list[list[Source]], first: list[Source], second: list[Source]
) -> list[list[Source]]:
    """Return opportunities, two of them as one."""
    others = [some for some in groups if some is not first and some is not second]
    return [*others, [*first, *second]]


def _is_own_host(finding: Finding) -> bool:
    """Tell whether a host is late on one rank: the others lose less than half as much."""
    others_ns = finding.numbers.get(_OTHERS)
    if finding.culprit != _LATE_HOST or finding.gain is None or others_ns is None:
        return False
    return 2 * others_ns < finding.gain.gain_ns


def _is_waited_for(group: Sequence[Source], rank: int | None) -> bool:
    """Tell whether an opportunity is a rank whose kernels are not slow."""
    gains = [member.gain for _, member in group if member.gain is not None]
    of_rank = group[0][1].culprit == f"{_RANK}{rank}"
    return of_rank and not any(gain.wall_classes == (COMPUTE,) for gain in gains)


def _place_in(source: Source, group: Sequence[Source]) -> tuple[Any, ...]:
    """Return where a finding stands in its opportunity: what tells why, then what gains most.

    What others wait for a rank is an estimate, and no more than a path of the whole span is late.
    """
    _, finding = source
    where = _is_place(finding) or _is_wait(finding) or _is_bubble(finding, group[0][1])
    beyond = any(_is_beyond(finding, member) for _, member in group)
    return (where, not _exposes_host(finding), beyond, *_order(source))


def _is_beyond(finding: Finding, other: Finding) -> bool:
    """Tell whether a finding estimates more than another shows to be the most, of the same rank."""
    if finding.gain is None or other.gain is None or finding.gain.is_bound:
        return False
    path = other.gain.is_bound and other.gain.basis == "path" and _covers_span(other)
    of_rank = _same_culprit(finding, other) and (finding.culprit or "").startswith(_RANK)
    return of_rank and path and finding.gain.gain_pct > other.gain.gain_pct


def _covers_span(finding: Finding) -> bool:
    """Tell whether a gain on the path is of all that its GPU did, and not of whole steps alone."""
    times_ns = [finding.numbers[name] for name in _STEPS if name in finding.numbers]
    return not times_ns or (finding.gain is not None and sum(times_ns) >= finding.gain.span_ns)


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
    return _is_place(finding) or finding.rule == _EXPOSED or _is_wait(finding)


def _is_place(finding: Finding) -> bool:
    """Tell whether a finding says where a GPU idles, and not why."""
    idle = finding.gain is not None and finding.gain.wall_classes == (IDLE,)
    return idle and finding.cause is None and (finding.culprit or "").startswith(_PHASE)


def _is_one(finding: Finding, group: Sequence[Source]) -> bool:
    return any(_same_thing(finding, other) for _, other in group)


def _is_bubble(finding: Finding, lead: Finding) -> bool:
    """Tell whether a finding is on exposed communication of a stage of a pipeline."""
    pipeline = (lead.culprit or "").startswith(_PIPELINE)
    return pipeline and finding.rule == _EXPOSED and finding.rank in lead.ranks


def _is_wait(finding: Finding) -> bool:
    """Tell whether a finding says in which collectives a GPU waits, and not for whom."""
    return (finding.culprit or "").startswith(_NOBODY)


def _is_wait_for(finding: Finding, other: Finding) -> bool:
    """Tell whether a finding is on waits of a GPU, and another names the rank waited for."""
    if not _is_wait(finding) or not (other.culprit or "").startswith(_RANK):
        return False
    last = finding.numbers.get(_MOST_OFTEN_LAST)
    if last is not None and other.culprit == f"{_RANK}{last}":
        return 2 * _gain_ns(other) >= _gain_ns(finding)
    waits = other.gain is not None and other.gain.wall_classes == (COMMUNICATION,)
    return waits and (finding.rank, finding.device_id) == (other.rank, other.device_id)


def _is_cause_of_idle(finding: Finding) -> bool:
    gain = finding.gain
    return finding.cause is not None and gain is not None and gain.wall_classes == (IDLE,)


def _same_culprit(finding: Finding, other: Finding) -> bool:
    return finding.culprit is not None and finding.culprit == other.culprit


def _same_thing(finding: Finding, other: Finding) -> bool:
    if _same_culprit(finding, other):
        return True
    if finding.cause is None or finding.cause != other.cause:
        return False
    if (finding.rank, finding.device_id) != (other.rank, other.device_id):
        return False
    return (
        finding.window_ns is None
        or other.window_ns is None
        or _overlap(finding.window_ns, other.window_ns)
    )


def _overlap(window: tuple[int, int], other: tuple[int, int]) -> bool:
    """Tell whether two windows share more than half of the shorter one."""
    shared_ns = min(window[1], other[1]) - max(window[0], other[0])
    shorter_ns = min(window[1] - window[0], other[1] - other[0])
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
        *("details", "recommendation", "record"),
    )
    start_ns, end_ns = _window(group) or (None, None)
    return {
        "opportunity": number,
        **{name: row[name] for name in kept},
        "window_start_ns": start_ns,
        "window_end_ns": end_ns,
        "replayed_pct": _replayed_pct(group),
        # A share of the span is as large a share of a mean step.
        "gain_step_ns": None if step_ns is None else row["gain_pct"] / 100.0 * step_ns,
        "recipe": recipe,
        "rule": finding.rule,
        "recipes": ", ".join(dict.fromkeys(name for name, _ in group.sources)),
        "findings_n": len(group.sources),
    }


def _window(group: Opportunity) -> tuple[int, int] | None:
    """Return where to look: the first window that a finding has on the GPU that gains."""
    _, lead = group.lead
    windows = (
        finding.window_ns
        for _, finding in group.sources
        if (finding.rank, finding.device_id) == (lead.rank, lead.device_id)
    )
    return next((window for window in windows if window is not None), None)


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
