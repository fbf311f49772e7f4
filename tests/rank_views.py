"""Views of ranks that are made in memory."""

from __future__ import annotations

from typing import Any

from nsys_llm.facts.rank_view import RankView
from nsys_llm.trace.identity import RankKey
from nsys_llm.trace.rank_trace import RankTrace


def view_of(trace: RankTrace, **options: Any) -> RankView:
    return RankView(trace, RankKey("", 0), {"base": False, "mangled": False, **options})
