"""Opportunities, and which cause is part of which: declared data, with conditions on prices.

The cause that stays gives the price; of kernels, which have work of their own, it is the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final, get_args

from nsys_llm.job.ranks.verdicts import HOST_VERDICTS
from nsys_llm.report.causes import Cause, CauseKind, IdleCause, WaitedFor
from nsys_llm.report.findings import Finding
from nsys_llm.report.price import Price
from nsys_llm.taxonomy.wall_classes import IDLE

#: Recipe of a finding, and its position in that recipe's findings, from 1.
Place = tuple[str, int]
Source = tuple[Place, Finding]


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
        return replace(self.lead[1], price=self.price).order


@dataclass(frozen=True)
class Join:
    """One row: opportunities of the kind `part` are part of the largest of `wholes`."""

    part: CauseKind
    wholes: tuple[CauseKind, ...]
    #: Of a part, a whole and all opportunities whether the one is in the other.
    holds: Callable[[Opportunity, Opportunity, Sequence[Opportunity]], bool]


def _explains_half(part: Opportunity, whole: Opportunity, *_: object) -> bool:
    return 2 * whole.price.gain_ns >= part.price.gain_ns


def _same_rank(part: Opportunity, whole: Opportunity) -> bool:
    # A host without a rank is that of all ranks; other parts are where they were found.
    rank = part.cause.rank if part.cause.kind == "host" else part.gpu[0]
    return whole.cause.rank in (None, rank)


def _are_conversions(part: Opportunity, whole: Opportunity, *_: object) -> bool:
    return (part.cause.detail, whole.cause.detail) == ("conversions", "pointwise")


def _is_of_experts(rank: Opportunity, experts: Opportunity, *_: object) -> bool:
    return rank.cause.note == "more_work" and experts.price.gain_ns >= 2 * rank.price.gain_ns


def _is_waited_for(waiting: Opportunity, other: Opportunity, *_: object) -> bool:
    """The waiting is for it as far as it may explain half of that, or by a pipeline's schedule."""
    return other.cause.kind in ("stage", "schedule") or _explains_half(waiting, other)


def _waits_for_stage(transfer: Opportunity, stage: Opportunity, *_: object) -> bool:
    """Who sends to whom is not known, and half of that time is known to be waiting."""
    finding = stage.lead[1]
    waits_ns = finding.impact_ns if finding.rule == "unplaced_pipeline" else 0
    return 2 * waits_ns >= max(transfer.price.bound_ns or 0, 1)


def _of_any_kind(path: Opportunity, copies: Opportunity, *_: object) -> bool:
    """Copies on the path are of those that take most, where a finding has these by kind."""
    return path.cause.detail is None and copies.cause.detail is not None


def _blocks(wait: Opportunity, *_: object) -> bool:
    return any(word in (wait.cause.detail or "") for word in ("Memcpy", "Memset"))


def _is_late_by_host(part: Opportunity, rank: Opportunity, *_: object) -> bool:
    """The rank's host is late or pauses, and the part takes at least half of what that gains.

    The part's time is measured; a replay may price it far lower, as others hold the step up too.
    """
    time_ns = max(finding.impact_ns for _, finding in part.sources)
    is_late = rank.is_shown and rank.cause.note in HOST_VERDICTS
    return is_late and _same_rank(part, rank) and 2 * time_ns >= rank.price.gain_ns


def _waits_expose_host(host: Opportunity, wait: Opportunity, every: Sequence[Opportunity]) -> bool:
    """Replays without the waits gain together more than half of one with a host without delays."""
    replayed = [item for item in every if item.is_shown and item.price.about_basis == "replay"]
    waits_ns = sum(item.price.gain_ns for item in replayed if item.cause.kind == "wait")
    counts = host.price.about_basis == "replay" and wait in replayed
    return counts and _same_rank(wait, host) and 2 * waits_ns > host.price.gain_ns


def _is_idle(place: Opportunity, cause: Opportunity, *_: object) -> bool:
    return place.price.wall_classes == (IDLE,) and _same_rank(place, cause)


def _is_of_rank(place: Opportunity, rank: Opportunity, *_: object) -> bool:
    """Its work grows in them, or it idles there by its late host; whoever waits for its pauses."""
    if place.price.wall_classes == (IDLE,):
        is_late = rank.is_shown and rank.cause.note in HOST_VERDICTS
        return is_late and _same_rank(place, rank) and _explains_half(place, rank)
    return rank.cause.note == "pauses" or _same_rank(place, rank)


#: Causes that are part of one that says when, by its rule.
_OF_TIME: Final[Mapping[str, tuple[CauseKind, ...]]] = {
    "when_idle": ("host", "wait", "rank", "module_load", "allocation", "place"),
    "when_compute": ("rank", "place", "waiting"),
    "when_copies": ("copies", "wait", "host", "place"),
    "when_communication": ("transfer", "link", "waiting", "place"),
}


def _is_then(part: Opportunity, whole: Opportunity) -> bool:
    """Most of what the part gains is in the steps that the whole is about."""
    rule, kind = whole.lead[1].rule, part.cause.kind
    by_host = part.price.wall_classes == (IDLE,) or part.cause.note in HOST_VERDICTS
    is_alike = kind not in ("rank", "place") or by_host == (rule == "when_idle")
    is_part = part.lead[1].rule not in _OF_TIME and kind in _OF_TIME[rule]
    return is_part and is_alike and _explains_half(part, whole)


#: Rows join in their turn.
JOINS: Final = (
    Join("kernels", ("kernels",), _are_conversions),
    Join("transfer", ("link",), _explains_half),
    Join(
        "transfer", ("schedule",), lambda part, whole, _: part.lead[1].rank in whole.lead[1].ranks
    ),
    Join("transfer", ("stage",), _waits_for_stage),
    Join("rank", ("experts",), _is_of_experts),
    # Whom the row before leaves: no experts are worth twice as much.
    Join("experts", ("rank",), lambda _, rank, __: rank.cause.note == "more_work"),
    Join("waiting", get_args(WaitedFor), _is_waited_for),
    Join("copies", ("copies",), _of_any_kind),
    Join("wait", ("copies",), _blocks),
    Join("wait", ("rank",), _is_late_by_host),
    Join("host", ("rank",), _is_late_by_host),
    Join("wait", ("host",), lambda wait, *_: wait.price.about_ns is None),
    Join("host", ("wait",), _waits_expose_host),
    Join("place", get_args(IdleCause), _is_idle),
    Join("place", ("rank",), _is_of_rank),
)


def joined(items: Sequence[Opportunity]) -> list[Opportunity]:
    """Return opportunities, each part of another one joined with that."""
    left = sorted(items, key=lambda item: item.order)
    for timed in [item for item in left if item.lead[1].rule in _OF_TIME]:
        parts = [item for item in left if _is_then(item, timed)]
        left = [item for item in left if item not in parts]
        left[left.index(timed)] = reduce(_together, parts, timed)
    for join in JOINS:
        for part in [item for item in left if item.cause.kind == join.part]:
            wholes = [item for item in left if item.cause.kind in join.wholes]
            whole = next((item for item in wholes if join.holds(part, item, left)), None)
            if whole is not None:
                left[left.index(whole)] = _together(whole, part)
                left.remove(part)
    return left


def _together(whole: Opportunity, part: Opportunity) -> Opportunity:
    """Return a whole with a part: who says most precisely why speaks, the whole before the part.

    A part that gains less than half of the whole, or nobody knows what, does not: its advice is
    too little, as that of a wait without a replay. Nor does a host that waits for copies: what they
    gain is not its own.
    """
    sources = (*whole.sources, *part.sources)
    is_precise = part.lead[1].specificity > whole.lead[1].specificity
    if is_precise and whole.cause.kind != "copies" and _explains_half(whole, part):
        sources = (*part.sources, *whole.sources)
    price = whole.price
    if part.cause.kind == "kernels":
        bound_ns, about_ns = (
            None if time_ns is None else min(time_ns + (more_ns or 0), price.span_ns)
            for time_ns, more_ns in (
                (price.bound_ns, part.price.bound_ns),
                # What nobody estimates adds nothing.
                (price.about_ns, part.price.about_ns),
            )
        )
        price = replace(price, bound_ns=bound_ns, about_ns=about_ns)
    return replace(whole, sources=sources, price=price)
