"""Whether a rank's launches are longer than the others' in most kernels, in a few, or in none.

A slow GPU is slow in most kernels; more work shows in those that do it. Reads finished tables only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pandas as pd

from nsys_llm.report.records import Record, Tables
from nsys_llm.view.text import counted, quoted, shortened

from .texts import MOST_KERNELS, SLOW_RATIO

#: Kernels with less than this share of the rank's time are left out; ours.
_TELLING_SHARE: Final = 0.005


@dataclass(frozen=True)
class Pace:
    """One device of one rank, measured by the others.

    Attributes:
        ratio: Its launches over those of the others, weighted by time; 1.0 where nobody has both.
        uneven: Where few of its kernels are longer, what each takes over the others, by name, the
            one with most time beyond them first; else empty.
        kernels_n: Kernels that were compared.
        uneven_ns: Time of the uneven ones beyond the others' medians.
    """

    ratio: float
    uneven: tuple[tuple[str, float], ...]
    kernels_n: int
    uneven_ns: int

    @property
    def slow(self) -> bool:
        """Whether most of its kernels are longer."""
        return self.ratio >= SLOW_RATIO["low"] and not self.uneven

    def words(self) -> str:
        """Name the uneven kernels."""
        (name, _), *others = self.uneven
        more = f" and {counted(len(others), 'more kernel')}" if others else ""
        return f"{quoted(shortened(name))}{more}"


def pace_of(tables: Tables, rank: Record) -> Pace:
    """Return the pace of a row that has rank and device_id.

    Args:
        tables: tail_ranks and rank_tails.
        rank: Which.
    """
    ratio = _ratio(_rows(tables["tail_ranks"], rank)["p50_others_p50"])
    own = _rows(tables["rank_tails"], rank)
    own = own[~own["communication"] & (own["others_p50_ns"] > 0).fillna(False)]
    sums = own.assign(
        own_ns=own["launches_n"] * own["p50_ns"],
        usual_ns=own["launches_n"] * own["others_p50_ns"],
    )
    kernels = sums.groupby("name", sort=True)[["own_ns", "usual_ns"]].sum().astype("float64")
    kernels = kernels[kernels["own_ns"] >= _TELLING_SHARE * kernels["own_ns"].sum()]
    times = kernels["own_ns"] / kernels["usual_ns"]
    # Half of what is more in the mean: every kernel of a slow GPU has it.
    longer = times[(times >= (1 + ratio) / 2) & (times >= SLOW_RATIO["low"])]
    if ratio < SLOW_RATIO["low"] or longer.empty or len(longer) > MOST_KERNELS * len(kernels):
        return Pace(ratio, (), len(kernels), 0)
    more_ns = (kernels["own_ns"] - kernels["usual_ns"])[longer.index]
    names = more_ns.sort_values(ascending=False, kind="stable").index.tolist()
    uneven = tuple((str(name), float(times[name])) for name in names)
    return Pace(ratio, uneven, len(kernels), round(float(more_ns.sum())))


def _rows(table: pd.DataFrame, rank: Record) -> pd.DataFrame:
    return table[(table["rank"] == rank["rank"]) & (table["device_id"] == rank["device_id"])]


def _ratio(values: pd.Series) -> float:
    known = values.dropna().astype("float64")
    return float(known.max()) if len(known) else 1.0
