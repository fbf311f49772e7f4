"""What is told of each GPU beside its peers: a row of the table `rank_verdicts`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Verdict = Literal[
    "profiler",
    "more_work",
    "slow_gpu",
    "slow_host",
    "late_host",
    "slow_stage",
    "late",
    "pauses",
]
#: Verdicts on ranks whose host makes others wait.
HOST_VERDICTS: Final = frozenset(("late_host", "slow_host", "pauses"))
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
    more_pct: float | None = None
    late_ns: float | None = None
    chance: float | None = None
    blocks_n: int = 0
    steps_n: int = 0
    late_steps_n: int | None = None
    about_ns: int | None = None
    reason: str | None = None
