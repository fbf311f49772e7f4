"""What an overview lists, as causes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd


@dataclass(frozen=True)
class Item:
    """A row of `opportunities`.

    Attributes:
        rank: Whose cause it is; None where it is not one rank's.
        about_pct: What it says that a fix gains; None where it only says at most what.
        bound_pct: The most that it says.
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


def items_of(tables: Mapping[str, Any]) -> list[Item]:
    """Return what an overview lists, in its order."""
    return [_item(row) for row in tables["opportunities"].to_dict("records")]


def _item(row: Mapping[str, Any]) -> Item:
    known = isinstance(row["about_basis"], str)
    return Item(
        row["cause"],
        _number(row["cause_rank"]),
        row["cause_detail"] if isinstance(row["cause_detail"], str) else "",
        row["gain_pct"] if known else None,
        _percent(row["bound_pct"]),
        row["title"],
        bool(row["severity"] == "tail"),
    )


def _number(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)


def _percent(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)
