"""The facts and caveats of captures that are compared: told once where they are alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from nsys_llm.capture_story import capture_caveats, capture_facts
from nsys_llm.identity import Rank
from nsys_llm.sides import BASELINE, INPUT
from nsys_llm.worker import MapResult

__all__ = ["sided_caveats", "sided_facts"]

_ORDER: Final = {BASELINE: 0, INPUT: 1}
#: Tables of all recipes that say which side a row is of.
_SIDED: Final = ("files", "coverage")

_Tables = Mapping[str, pd.DataFrame]


def sided_facts(
    result: MapResult, ranks: Sequence[Rank], tables: _Tables, options: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """Return what the reports say of themselves: one text a label, or one for each side.

    See `nsys_llm.capture_story.capture_facts`.
    """
    told: dict[str, dict[str, str]] = {}
    for side in _sides(tables):
        own = replace(
            result, reports=tuple(report for report in result.reports if report.side == side)
        )
        mine = [rank for rank in ranks if rank.key.side == side]
        for label, text in capture_facts(own, mine, _of(tables, side), options):
            told.setdefault(label, {})[side] = text
    sides_n = len(_sides(tables))
    return [(label, _joined(texts, sides_n)) for label, texts in told.items()]


def sided_caveats(tables: _Tables) -> list[str]:
    """Return what makes the numbers incomplete; see `nsys_llm.capture_story.capture_caveats`."""
    told: dict[str, list[str]] = {}
    sides = _sides(tables)
    for side in sides:
        for text in capture_caveats(_of(tables, side)):
            told.setdefault(text, []).append(side)
    return [
        f"Each run: {text}" if len(own) == len(sides) else f"{', '.join(own)}: {text}"
        for text, own in told.items()
    ]


def _sides(tables: _Tables) -> list[str]:
    found = dict.fromkeys(tables["files"]["side"].tolist())
    return sorted(found, key=lambda side: (_ORDER.get(side, 2), side))


def _of(tables: _Tables, side: str) -> dict[str, pd.DataFrame]:
    return {
        name: table[table["side"] == side] if name in _SIDED else table
        for name, table in tables.items()
    }


def _joined(texts: Mapping[str, str], sides_n: int) -> str:
    distinct = list(dict.fromkeys(texts.values()))
    if len(distinct) == 1 and len(texts) == sides_n:
        return distinct[0]
    return "; ".join(f"{side}: {text}" for side, text in texts.items())
