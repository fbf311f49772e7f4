"""Whether a rank's launches are longer than the others' in most kernels, in a few, or in none.

A slow GPU is slow in most kernels; more work shows in those that do it. Reads finished tables only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np
import pandas as pd

from nsys_llm.analyses.device.longer_compute import longer_pct
from nsys_llm.numeric.tails import OUTLIER_RATIO
from nsys_llm.report.records import Record, Tables
from nsys_llm.view.text import counted, quoted, shortened

from ..tables.peers import device_places
from .texts import MOST_KERNELS, SLOW_RATIO

#: Kernels with less than this share of the rank's time are left out; ours.
_TELLING_SHARE: Final = 0.005
#: As many launches as on the others, within this share; as llm_hotspots.
_SAME_LAUNCHES: Final = 0.01
#: Share of all jobs with equal ranks in which one is named all the same; as step_budget.
_LARGEST_CHANCE: Final = 0.01
#: Quartiles of a normal distribution are so many standard deviations apart, and the error of its
#: median is that of its mean times this.
_QUARTILES_SIGMA: Final = 1.349
_MEDIAN_ERROR: Final = 1.2533
_SPREAD: Final = (
    "q1_ns",
    "p50_ns",
    "q3_ns",
    "others_p50_ns",
    "parts_ratio",
    "parts_error",
    "launches_n",
    "total_ns",
)


@dataclass(frozen=True)
class Pace:
    """One device of one rank, measured by the others.

    Attributes:
        ratio: Its launches over those of the others, weighted by time; 1.0 where nobody has both.
        uneven: Where few of its kernels are longer, what each takes over the others, by name, the
            one with most time beyond them first; else empty.
        kernels_n: Kernels that were compared.
        uneven_ns: Time of the uneven ones beyond the others' medians.
        excess_ns: Time of all its launches beyond those of the others in the same configurations:
            launches times what the mean of one takes beyond the median over the others' means.
            Below 0 where they are shorter. Communication is left out.
        more_pct: By how much its kernels are longer in all, in percent.
    """

    ratio: float
    uneven: tuple[tuple[str, float], ...]
    kernels_n: int
    uneven_ns: int
    excess_ns: int
    more_pct: float

    @property
    def slow(self) -> bool:
        """Whether most of its kernels are longer."""
        return self.ratio >= SLOW_RATIO and not self.uneven

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
    devices, every = tables["tail_ranks"], tables["rank_tails"]
    ratio = _ratio(devices[_is_of(devices, rank)]["p50_others_p50"])
    more_pct = _longer_pct(tables, rank, ratio)
    every = every[~every["communication"].astype(bool)]
    chosen = _is_of(every, rank)
    excess_ns = _excess_ns(every[chosen], every[~chosen & _at_place(every, devices, rank)])
    compared = every[chosen & (every["others_p50_ns"] > 0).fillna(False)]
    sums = compared.assign(
        own_ns=compared["launches_n"] * compared["p50_ns"],
        usual_ns=compared["launches_n"] * compared["others_p50_ns"],
    )
    kernels = sums.groupby("name", sort=True)[["own_ns", "usual_ns"]].sum().astype("float64")
    kernels = kernels[kernels["own_ns"] >= _TELLING_SHARE * kernels["own_ns"].sum()]
    times = kernels["own_ns"] / kernels["usual_ns"]
    # Half of what is more in the mean: every kernel of a slow GPU has it.
    longer = times[(times >= (1 + ratio) / 2) & (times >= SLOW_RATIO)]
    if ratio < SLOW_RATIO or longer.empty or len(longer) > MOST_KERNELS * len(kernels):
        return Pace(ratio, (), len(kernels), 0, excess_ns, more_pct)
    more_ns = (kernels["own_ns"] - kernels["usual_ns"])[longer.index]
    names = more_ns.sort_values(ascending=False, kind="stable").index.tolist()
    uneven = tuple((str(name), float(times[name])) for name in names)
    uneven_ns = round(float(more_ns.sum()))
    return Pace(ratio, uneven, len(kernels), uneven_ns, excess_ns, more_pct)


def beyond_chance(tables: Tables, rank: Record) -> bool:
    """Return whether a row's medians are farther above the others' than those of equal ranks are.

    By the quartiles of its launches, as if they were independent and normal, or by how the ratio to
    the others scatters over the time, the smaller of the two: the one counts what varies alike on
    all ranks (longer contexts, other batches), the other takes more launches. Of as many ranks as
    are compared, `_LARGEST_CHANCE` allows one.

    Args:
        tables: tail_ranks and rank_tails.
        rank: Which; it has p50_others_p50.
    """
    rows = tables["rank_tails"]
    rows = rows[_is_of(rows, rank) & ~rows["communication"].astype(bool)]
    rows = rows[(rows["others_p50_ns"] > 0).fillna(False)]
    numbers = {name: rows[name].astype("float64") for name in _SPREAD}
    sigma_ns = (numbers["q3_ns"] - numbers["q1_ns"]) / _QUARTILES_SIGMA
    error_ns = _MEDIAN_ERROR * sigma_ns / np.sqrt(numbers["launches_n"].clip(lower=1.0))
    # The median that it is compared with has an error, too, of one other rank as large.
    by_launches = math.sqrt(2) * error_ns / numbers["others_p50_ns"]
    # Each error goes with the ratio that it is of.
    by_parts = numbers["parts_error"] < by_launches
    error = numbers["parts_error"].where(by_parts, by_launches)
    ratio = numbers["parts_ratio"].where(by_parts, numbers["p50_ns"] / numbers["others_p50_ns"])
    limit = NormalDist().inv_cdf(1.0 - _LARGEST_CHANCE / len(tables["tail_ranks"]))
    more_ns = float(((ratio - 1.0) * numbers["total_ns"]).sum())
    return more_ns > limit * math.sqrt(float(((error * numbers["total_ns"]) ** 2).sum()))


def _longer_pct(tables: Tables, rank: Record, ratio: float) -> float:
    """Return by how much a rank's kernels are longer in all, in percent.

    That of all its computation, as all recipes tell it; where it launches more or fewer kernels
    than the others, which says nothing of their pace, that of the launches.
    """
    devices = tables["tail_ranks"].groupby("rank", sort=True)[["total_ns", "launches_n"]].sum()
    rank_sums, others = devices.loc[rank["rank"]], devices.drop(rank["rank"])
    usual_n = others["launches_n"].median()
    others_ns = others["total_ns"].tolist()
    if others.empty or abs(rank_sums["launches_n"] - usual_n) > _SAME_LAUNCHES * usual_n:
        return 100.0 * (ratio - 1)
    return longer_pct(int(rank_sums["total_ns"]), others_ns) if any(others_ns) else 0.0


def _excess_ns(rank_rows: pd.DataFrame, others: pd.DataFrame) -> int:
    keys = ["name", "config"]
    usual = others[keys].assign(usual_ns=_usual_means(others))
    usual_ns = usual.groupby(keys)["usual_ns"].median().reset_index()
    both = (
        rank_rows[[*keys, "launches_n"]]
        .assign(own_ns=_usual_means(rank_rows))
        .merge(usual_ns, on=keys)
    )
    return round(float(((both["own_ns"] - both["usual_ns"]) * both["launches_n"]).sum()))


def _usual_means(rows: pd.DataFrame) -> pd.Series[float]:
    """Return the mean launch of each row, as if a slow first one had been like the others."""
    first_ns, later_ns = (rows[name].astype("float64") for name in ("first_ns", "later_p50_ns"))
    slow_ns = (first_ns - later_ns).where(first_ns > OUTLIER_RATIO * later_ns, 0.0)
    launches_n = rows["launches_n"].astype("float64").clip(lower=1.0)
    return rows["mean_ns"].astype("float64") - slow_ns / launches_n


def _is_of(table: pd.DataFrame, rank: Record) -> pd.Series[bool]:
    return (table["rank"] == rank["rank"]) & (table["device_id"] == rank["device_id"])


def _at_place(rows: pd.DataFrame, devices: pd.DataFrame, rank: Record) -> pd.Series[bool]:
    """Return which rows are of devices that a rank's device is compared with, and of itself."""
    numbers = (devices[name].to_numpy(np.int64) for name in ("rank", "device_id", "total_ns"))
    place = devices.assign(place=device_places(*numbers))
    places = place.set_index(["rank", "device_id"])["place"]
    of_rows = places.reindex(pd.MultiIndex.from_frame(rows[["rank", "device_id"]]))
    same = of_rows.to_numpy() == places[rank["rank"], rank["device_id"]]
    return pd.Series(same, index=rows.index)


def _ratio(values: pd.Series) -> float:
    known = values.dropna().astype("float64")
    return float(known.max()) if len(known) else 1.0
