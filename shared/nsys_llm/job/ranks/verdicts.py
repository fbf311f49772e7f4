"""What is told of each GPU beside its peers: a row of the table `rank_verdicts`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Verdict = Literal[
    "profiler", "more_work", "less_work", "slow_gpu", "slow_host", "late_host", "slow_stage",
    "late", "pauses",
]  # fmt: skip
#: Verdicts on ranks whose host makes others wait.
HOST_VERDICTS: Final = frozenset(("late_host", "slow_host", "pauses"))
_OF_COMPUTE: Final = ("wall", "device_steps", "rank_kernels")
_OF_LATENESS: Final = ("wall", "device_steps", "stragglers")
#: Tables that hold the evidence of a verdict, of whichever recipe.
EVIDENCE: Final[Mapping[Verdict, tuple[str, ...]]] = {
    **dict.fromkeys(("more_work", "less_work", "slow_gpu", "slow_host"), _OF_COMPUTE),
    **dict.fromkeys(("late_host", "pauses"), (*_OF_LATENESS, "rank_causes")),
    "late": _OF_LATENESS,
    "profiler": (*_OF_LATENESS, "overheads"),
    "slow_stage": ("wall", "stages", "bubbles"),
}
#: Why a rank has no verdict, beside those of `chance`.
ONE_RANK: Final = "one_rank"
NO_PEERS: Final = "no_peers"


@dataclass(frozen=True)
class RankVerdict:
    """One GPU of one rank; see the table `rank_verdicts` in manifests/common.json."""

    rank: int
    device_id: int
    peer_group: int
    stage: int | None
    peers_n: int
    verdict: Verdict | None = None
    kernel: str | None = None
    kernel_pct: float | None = None
    more_pct: float | None = None
    late_ns: float | None = None
    chance: float | None = None
    blocks_n: int = 0
    steps_n: int = 0
    late_steps_n: int | None = None
    less_steps_n: int | None = None
    requests_n: int | None = None
    peer_requests_n: int | None = None
    waiting_pct: float | None = None
    about_ns: int | None = None
    bound_ns: int | None = None
    evidence: str | None = None
    reason: str | None = None
