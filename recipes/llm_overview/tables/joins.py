"""Which cause is part of which, if both are there: declared data, with conditions on prices.

The cause that stays gives the price; of parts with work of their own it is the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from nsys_llm.analyses.ranks.verdicts import HOST_VERDICTS
from nsys_llm.report.causes import CauseKind
from nsys_llm.report.price import Price
from nsys_llm.taxonomy.wall_classes import IDLE

if TYPE_CHECKING:
    from .opportunities import Opportunity

#: Causes of idle time.
_OF_IDLE: Final[tuple[CauseKind, ...]] = (
    *("host", "wait", "queued", "dependency", "module_load", "allocation"),
)
#: Causes that others wait for.
_WAITED_FOR: Final[tuple[CauseKind, ...]] = ("rank", "stage", "schedule", "experts")
_BLOCKING_COPIES: Final = ("Memcpy", "Memset")

#: Tells of a part, a whole and all opportunities whether the one is in the other.
Condition = Callable[["Opportunity", "Opportunity", Sequence["Opportunity"]], bool]


@dataclass(frozen=True)
class Join:
    """One row: opportunities of the kind `part` are part of the largest of `wholes`.

    Attributes:
        is_sum: Whether the price is that of both together.
    """

    part: CauseKind
    wholes: tuple[CauseKind, ...]
    holds: Condition
    is_sum: bool = False


def _about_ns(item: Opportunity) -> int:
    return item.price.about_ns or 0


def _rank_of(item: Opportunity) -> int | None:
    return item.cause.rank if item.cause.rank is not None else item.lead[1].rank


def _same_rank(part: Opportunity, whole: Opportunity) -> bool:
    return whole.cause.rank in (None, _rank_of(part))


def _waits_expose_host(host: Opportunity, wait: Opportunity, every: Sequence[Opportunity]) -> bool:
    """Replays without the waits gain together more than half of one with a host without delays."""
    waits = [item for item in every if item.cause.kind == "wait" and item.price.severity]
    replayed = [item for item in waits if item.price.about_basis == "replay"]
    counts = host.price.about_basis == "replay" and wait in replayed
    own = host.cause.rank is not None and host.cause.rank != _rank_of(wait)
    return counts and not own and 2 * sum(map(_about_ns, replayed)) > _about_ns(host)


def _is_late_by_host(part: Opportunity, rank: Opportunity, every: Sequence[Opportunity]) -> bool:
    """The rank's host is late or pauses, and the part takes at least half of what that gains.

    The part's time is measured; a replay may price it far lower, as others hold the step up too.
    """
    # A host without a rank is that of all ranks; a wait has the rank on whose path it is.
    of = part.cause.rank if part.cause.kind == "host" else _rank_of(part)
    same = of == rank.cause.rank and rank.cause.note in HOST_VERDICTS
    time_ns = max(finding.impact_ns for _, finding in part.sources)
    return same and rank.is_shown and 2 * time_ns >= rank.price.gain_ns


def _not_replayed(wait: Opportunity, host: Opportunity, every: Sequence[Opportunity]) -> bool:
    return wait.price.about_ns is None


def _blocks(wait: Opportunity, copies: Opportunity, every: Sequence[Opportunity]) -> bool:
    return any(word in (wait.cause.detail or "") for word in _BLOCKING_COPIES)


def _of_any_kind(path: Opportunity, copies: Opportunity, every: Sequence[Opportunity]) -> bool:
    """Copies on the path are of those that take most, where a finding has these by kind."""
    return path.cause.detail is None and copies.cause.detail is not None


def _is_waited_for(waiting: Opportunity, other: Opportunity, every: Sequence[Opportunity]) -> bool:
    """The waiting is for it as far as it may explain half of that, or the stage's schedule."""
    of_schedule = other.cause.kind in ("stage", "schedule")
    return of_schedule or 2 * other.price.gain_ns >= waiting.price.gain_ns


def _is_of_experts(rank: Opportunity, experts: Opportunity, every: Sequence[Opportunity]) -> bool:
    return rank.cause.note == "more_work" and experts.price.gain_ns >= 2 * rank.price.gain_ns


def _is_of_rank(experts: Opportunity, rank: Opportunity, every: Sequence[Opportunity]) -> bool:
    return rank.cause.note == "more_work" and not _is_of_experts(rank, experts, every)


def _is_of_stage(
    transfer: Opportunity, schedule: Opportunity, every: Sequence[Opportunity]
) -> bool:
    return transfer.lead[1].rank in schedule.lead[1].ranks


def _is_slow(transfer: Opportunity, link: Opportunity, every: Sequence[Opportunity]) -> bool:
    """The link explains half of what the transfer gains."""
    return 2 * link.price.gain_ns >= transfer.price.gain_ns


def _are_conversions(part: Opportunity, whole: Opportunity, every: Sequence[Opportunity]) -> bool:
    return (part.cause.detail, whole.cause.detail) == ("conversions", "pointwise")


def _is_idle_there(place: Opportunity, cause: Opportunity, every: Sequence[Opportunity]) -> bool:
    return place.price.wall_classes == (IDLE,) and _same_rank(place, cause)


def _grows(place: Opportunity, rank: Opportunity, every: Sequence[Opportunity]) -> bool:
    """Its work grows in them; where a rank pauses, also the others' who wait for it."""
    waits = rank.cause.note == "pauses" or _same_rank(place, rank)
    return place.price.wall_classes != (IDLE,) and waits


JOINS: Final = (
    Join("kernels", ("kernels",), _are_conversions, is_sum=True),
    Join("transfer", ("link",), _is_slow),
    Join("transfer", ("schedule",), _is_of_stage),
    Join("rank", ("experts",), _is_of_experts),
    Join("experts", ("rank",), _is_of_rank),
    Join("waiting", _WAITED_FOR, _is_waited_for),
    Join("copies", ("copies",), _of_any_kind),
    Join("wait", ("copies",), _blocks),
    Join("wait", ("rank",), _is_late_by_host),
    Join("host", ("rank",), _is_late_by_host),
    Join("wait", ("host",), _not_replayed),
    Join("host", ("wait",), _waits_expose_host),
    Join("place", _OF_IDLE, _is_idle_there),
    Join("place", ("rank",), _grows),
)


def joined(items: Sequence[Opportunity]) -> list[Opportunity]:
    """Return opportunities, each part of another one joined with that."""
    left = sorted(items, key=lambda item: item.order)
    for join in JOINS:
        every = list(left)
        for part in every:
            if part.cause.kind != join.part or part not in left:
                continue
            wholes = [
                whole
                for whole in left
                if whole is not part
                and whole.cause.kind in join.wholes
                and join.holds(part, whole, every)
            ]
            if wholes:
                whole = min(wholes, key=lambda item: item.order)
                left[left.index(whole)] = _together(whole, part, is_sum=join.is_sum)
                left.remove(part)
    return left


def _together(whole: Opportunity, part: Opportunity, *, is_sum: bool) -> Opportunity:
    """Return a whole with a part: who says most precisely why speaks, the whole before the part.

    A part that gains less than half of the whole, or nobody knows what, does not: its advice is
    too little, as that of a wait without a replay.
    """
    sources = (*whole.sources, *part.sources)
    more_precise = part.lead[1].specificity > whole.lead[1].specificity
    if more_precise and 2 * part.price.gain_ns >= whole.price.gain_ns:
        sources = (*part.sources, *whole.sources)
    price = _sum(whole.price, part.price) if is_sum else whole.price
    return replace(whole, sources=sources, price=price)


def _sum(price: Price, other: Price) -> Price:
    """Return both prices together, as far as the span of the GPU allows."""
    pairs = (price.bound_ns, other.bound_ns), (price.about_ns, other.about_ns)
    sums = [
        None if None in pair else min(sum(ns for ns in pair if ns is not None), price.span_ns)
        for pair in pairs
    ]
    return replace(price, bound_ns=sums[0], about_ns=sums[1])
