"""What the gains of all findings of this recipe have in common. Reads finished tables only."""

from __future__ import annotations

from dataclasses import replace

from nsys_llm.report.gains import Gain
from nsys_llm.report.records import Tables


def with_steps(tables: Tables, rank: int, gain: Gain) -> Gain:
    """Return a gain with the number of steps of its rank, where that is known."""
    ranks = tables["tail_ranks"]
    steps_n = ranks.loc[ranks["rank"] == rank, "steps_n"].dropna()
    return replace(gain, steps_n=int(steps_n.iloc[0])) if len(steps_n) else gain
