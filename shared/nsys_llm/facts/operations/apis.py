"""What one rank's host spent in CUDA API calls, by function.

Sums are those of all threads.
"""

from __future__ import annotations

from dataclasses import dataclass

from nsys_llm.numeric.by_key import ByKey
from nsys_llm.numeric.distributions import Spread, ValueCounts
from nsys_llm.numeric.grouping import summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.longest import longest_starts
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.names import strip_api_version
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.rank_trace import RankTrace


@dataclass(frozen=True)
class RankApis:
    """The API calls of one rank, by function; arrays of shape (functions,).

    Attributes:
        names: Of the functions, without version, sorted.
        spread: Of whole calls that start in the window.
        total_ns: Time inside the window.
        longest_start_ns: Start of the longest call, the earliest of equals; NULL_INT for none.
    """

    names: tuple[str, ...]
    spread: Spread
    total_ns: IntArray
    longest_start_ns: IntArray


def map_apis(trace: RankTrace, calls: Table) -> tuple[RankApis, ByKey]:
    """Reduce the API calls of one rank.

    Returns:
        Its rows, and how often each function took how long.
    """
    names, code = coded_names(calls["name_id"], trace.strings, strip_api_version)
    inside, whole_ns = trace.starts_inside(calls), calls["end_ns"] - calls["start_ns"]
    counted = (code, whole_ns) if inside.all() else (code[inside], whole_ns[inside])
    counts = ValueCounts.from_values(*counted)
    spread = counts.spread(len(names))
    rank_apis = RankApis(
        names=names,
        spread=spread,
        total_ns=summed(code, trace.clipped_ns(calls), len(names)),
        longest_start_ns=longest_starts(
            code, calls["start_ns"], whole_ns, inside, spread.moments.maximum
        ),
    )
    return rank_apis, ByKey(names, counts=counts)
