"""What an overview lists, as causes: one function for each scheme of its columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd


@dataclass(frozen=True)
class Item:
    """A row of `opportunities`.

    Attributes:
        kind: Of its cause.
        rank: Whose cause it is; None where it is not one rank's.
        detail: Of its cause.
        about_pct: What it says that a fix gains; None where it only says at most what.
        bound_pct: The most that it says.
        title: As it reads.
        tail: Whether only a tail gains; such items stand after all others.
    """

    kind: str
    rank: int | None
    detail: str
    about_pct: float | None
    bound_pct: float | None
    title: str
    tail: bool = False

    @property
    def key(self) -> tuple[str, int | None, str]:
        """What makes two causes the same."""
        return self.kind, self.rank, self.detail if self.kind in _DETAILED else ""


#: Kinds whose detail says which thing is at fault.
_DETAILED: Final = ("kernels", "copies", "wait", "phase")
#: Kinds by how the culprit begins; the longest that fits counts.
_CULPRITS: Final = {
    "rank:": "rank",
    "host:": "rank",
    "host:late": "host",
    "idle:": "wait",
    "idle:queued": "queued",
    "idle:alloc": "allocation",
    "idle:module_load": "module_load",
    "idle:dependency": "dependency",
    "api:": "wait",
    "copies:": "copies",
    "communication:": "transfer",
    "communicator:": "waiting",
    "pipeline:": "schedule",
    "kernel:": "kernels",
    "phase:": "phase",
    "profiler": "profiler",
}


def items_of(tables: Mapping[str, Any]) -> list[Item]:
    """Return what an overview lists, in its order."""
    rows = tables["opportunities"]
    item = _typed if "cause_rank" in rows else _by_culprit
    return [item(row) for row in rows.to_dict("records")]


def _by_culprit(row: Mapping[str, Any]) -> Item:
    culprit = row["culprit"] if isinstance(row["culprit"], str) else ""
    fits = [start for start in _CULPRITS if culprit.startswith(start)]
    kind = _CULPRITS[max(fits, key=len)] if fits else culprit
    rank = int(culprit[5:]) if culprit.startswith("rank:") else None
    if row["rule"] == "slow_stage":
        kind = "stage"
    if culprit == "host:late":
        rank = _number(row["rank"])
    percents = {True: _percent(row["replayed_pct"]), False: row["gain_pct"]}
    bound_pct = row["gain_pct"] if row["gain_is_bound"] else None
    about_pct = percents[bool(row["gain_is_bound"])]
    return Item(
        kind, rank, culprit.partition(":")[2], about_pct, bound_pct, row["title"], _tail(row)
    )


def _typed(row: Mapping[str, Any]) -> Item:
    known = isinstance(row["about_basis"], str)
    return Item(
        row["cause"],
        _number(row["cause_rank"]),
        row["cause_detail"] if isinstance(row["cause_detail"], str) else "",
        row["gain_pct"] if known else None,
        _percent(row["bound_pct"]),
        row["title"],
        _tail(row),
    )


def _tail(row: Mapping[str, Any]) -> bool:
    return bool(row["severity"] == "tail")


def _number(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)


def _percent(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)
