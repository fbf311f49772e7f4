"""Whether the replay of a change counts, and what it gains in a step. Reads tables only."""

from __future__ import annotations

from typing import Any, Final

from nsys_llm.report.changes import Change
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.report.walls import Walls

#: Share of the steps by which a replay with usual lags may be off, percent; no change counts above.
MOST_RESIDUAL_PCT: Final = 3.0
#: Share of the replayed path in waits, or in the host's work, from which on these decide, percent.
_MOST_OF_PATH_PCT: Final = 50.0
#: Share of the recorded path in communication that is not matched, percent.
_MOST_UNMATCHED_PCT: Final = 10.0
#: A GPU whose host paces it idles for this part of the host's path.
_PACED_SHARE: Final = 0.05
#: Changes of which a wait's own length, or a host that was not recorded, tells too little.
_OF_DEVICES: Final = ("kernels", "transfer", "copies", "rank")
_OVER_RANKS: Final = ("transfer", "rank")
#: Rows of `what_if`: of changes whose name is part of their text, and of others.
_NAMED: Final = {"kernels": "kernels:{}", "wait": "wait:{}"}
_REPLAYS: Final = {"transfer": "transfer=0.5", "host": "host=0"}


#: What a mean step of the job gains, ns, and why that does not count; None where it does.
Replayed = tuple[float, str | None]


class Replays:
    """The tables `what_if`, `replay` and `step_classes`; none of them has to be there."""

    def __init__(self, tables: Tables, walls: Walls) -> None:
        there = "what_if" in tables
        self._rows = {row["change"]: row for row in records(tables["what_if"])} if there else {}
        self._is_off = there and _residual_pct(tables) > MOST_RESIDUAL_PCT
        self._unmatched_pct = _unmatched_pct(tables) if there else 0.0
        self._walls = walls
        self._hosts: Any = tables["files"]["host"] if "files" in tables else {}

    def of(self, change: Change, rank: int | None) -> Replayed | None:
        """Return what a replay says of a change; None where no replay is of such a change."""
        text = None if change.name is None else _NAMED.get(change.kind, "").format(change.name)
        text = _REPLAYS.get(change.kind, text)
        if change.kind == "rank":
            # Of a machine that is slow all ranks are replayed.
            machine = f"machine:{self._hosts.get(rank)}"
            text = machine if machine in self._rows else f"rank:{self._walls.file(rank or 0)}"
        return self.row(text, change) if text else None

    def row(self, text: str, change: Change) -> Replayed:
        """Return what one row of `what_if` says of a change."""
        if self._is_off:
            return 0.0, "residual"
        row = self._rows.get(text)
        if row is None or row["gain_ns"] is None:
            return 0.0, "not_replayed"
        return max(float(row["gain_ns"]), 0.0), self._doubt(change, row)

    def _doubt(self, change: Change, row: Record) -> str | None:
        """Return why a replay does not count, although it fits what was recorded."""
        host_pct = row["host_pct"] or 0.0
        # A wait goes, and the host is what paces the step: it is waited for anyway.
        if change.kind == "wait" and host_pct > _MOST_OF_PATH_PCT:
            return "host_ahead"
        if change.kind not in _OF_DEVICES:
            return None
        if change.kind in _OVER_RANKS and self._unmatched_pct > _MOST_UNMATCHED_PCT:
            return "not_matched"
        if (row["wait_pct"] or 0.0) > _MOST_OF_PATH_PCT:
            return "fixed_latency"
        path_pct = host_pct * row["then_ns"] / max(row["now_ns"], 1.0)
        if host_pct > _MOST_OF_PATH_PCT and self._idle_pct() < _PACED_SHARE * path_pct:
            return "host_ahead"
        return None

    def _idle_pct(self) -> float:
        """Return the largest share of a GPU's span that it idles by host causes, percent."""
        walls = self._walls
        shares = (
            100.0 * walls.host_idle_ns(gpu) / max(walls.span_ns(*gpu), 1) for gpu in walls.gpus
        )
        return max(shares, default=0.0)


def _residual_pct(tables: Tables) -> float:
    steps = tables["replay"]
    counted = steps[steps["mark"] == ""]
    off_ns = (counted["replayed_ns"] - counted["wall_ns"]).abs().sum()
    return 100.0 * float(off_ns) / max(float(counted["wall_ns"].sum()), 1.0)


def _unmatched_pct(tables: Tables) -> float:
    rows = tables["step_classes"]
    rows = rows[(rows["scope"] == "job") & (rows["class"] == "communication")]
    return float(rows.loc[rows["detail"].isna(), "share_pct"].fillna(0.0).sum())
