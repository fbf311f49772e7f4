"""The rank that changed unlike the others, with the kernels that make it so: one fact, one clue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pandas as pd

from nsys_llm.report.records import Tables
from nsys_llm.view.text import counted, quoted

from .change import Clue, changed
from .normalization import Basis
from .texts import RANK_POINTS

#: A change of a kernel is that of one rank if it has so much of it; ours.
_ONE_RANK_SHARE: Final = 0.75
#: Changes that may be those of one rank alone.
_OF_KERNELS: Final = frozenset(
    {"slower_calls", "faster_calls", "few_calls", "uneven_calls", "calls_at_other_work"}
)
#: Kernels that are named at most.
_MOST_NAMES: Final = 2


def with_rank(clues: Sequence[Clue], tables: Tables, basis: Basis) -> list[Clue]:
    """Return the clues with that of the rank that changed unlike the others, if there is one.

    Changes of kernels that are this rank's and no other's are a part of it, and told with it.
    """
    rank = _one_rank(tables, basis)
    if rank is None:
        return list(clues)
    names = _kernels_of(rank, tables)
    joined = [clue for clue in clues if clue.rule in _OF_KERNELS and clue.name in names]
    others = [clue for clue in clues if clue not in joined]
    if not joined:
        return [*others, rank]
    joined.sort(key=lambda clue: (-abs(clue.impact_ns), clue.name or ""))
    reported = [f"{quoted(clue.name)} {changed(clue.impact_ns)}" for clue in joined[:_MOST_NAMES]]
    if len(joined) > _MOST_NAMES:
        reported.append(f"{counted(len(joined) - _MOST_NAMES, 'other kernel')}")
    text = f"{rank.text}, by longer or shorter calls of {', '.join(reported)} on this rank alone"
    numbers = {f"kernel{place}_ns": clue.impact_ns for place, clue in enumerate(joined)}
    numbers = {**rank.numbers, **numbers, "others_n": len(joined) - _MOST_NAMES}
    return [*others, replace(rank, text=text, name=joined[0].name, numbers=numbers)]


def _kernels_of(rank: Clue, tables: Tables) -> set[str]:
    """Return the kernels whose change of length is nearly all on one rank."""
    rows = tables["rank_kernels"]
    effects = rows.assign(
        size=rows["per_call_effect_ns"].abs(),
        own=rows["per_call_effect_ns"].abs().where(rows["rank"] == rank.rank, 0),
    )
    sums = effects.groupby("name")[["size", "own"]].sum()
    return set(sums.index[(sums["size"] > 0) & (sums["own"] >= _ONE_RANK_SHARE * sums["size"])])


def _one_rank(tables: Tables, basis: Basis) -> Clue | None:
    """Return the rank whose computation changed unlike that of the others; None if none did."""
    ranks, steps = tables["ranks"], basis.shares
    before = ranks["baseline_total_ns"].astype("float64") / steps[0]
    if len(ranks) < 2 or not (before > 0).all():
        return None
    rows, talks = tables["rank_kernels"], basis.kernels.loc[basis.kernels["communication"], "name"]
    computing = rows[~rows["name"].isin(talks)].groupby("rank")[
        ["baseline_total_ns", "input_total_ns"]
    ]
    compute = computing.sum().reindex(ranks["rank"], fill_value=0).to_numpy("float64") / steps
    share = 100 * pd.Series(compute[:, 1] - compute[:, 0], index=before.index) / before
    # Of two ranks, the one that changed less is what to compare with.
    usual = float(
        share.median() if len(share) > 2 else share.iloc[int(share.abs().to_numpy().argmin())]
    )
    at = int((share - usual).abs().to_numpy().argmax())
    rank_pct, number = float(share.iloc[at]), int(ranks["rank"].iloc[at])
    if abs(rank_pct - usual) < RANK_POINTS:
        return None
    others = "median" if len(share) > 2 else "other one"
    beyond_ns = (rank_pct - usual) * float(before.iloc[at]) / 100
    whole_ns = float((compute[:, 1] - compute[:, 0]).sum())
    return Clue(
        "one_rank",
        beyond_ns,
        f"computation on rank {number} takes {_percent(rank_pct)} where the {others} changes by "
        f"{_percent(usual)} ({changed(beyond_ns)})",
        stands_out=True,
        rank=number,
        numbers={"own_pct": rank_pct, "usual_pct": usual},
        whole=beyond_ns * whole_ns > 0 and abs(beyond_ns) >= _ONE_RANK_SHARE * abs(whole_ns),
    )


def _percent(value: float) -> str:
    # No minus in front of nothing.
    return f"{round(value, 1) + 0.0:+.1f} %"
