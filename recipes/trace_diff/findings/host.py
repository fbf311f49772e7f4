"""Whether the host got slower: call by call and range by range, and never more than is so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nsys_llm.report.causes import Cause
from nsys_llm.report.findings import Evidence, Finding, cells
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.taxonomy.api_classes import classify_api
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES
from nsys_llm.taxonomy.wall_classes import HOST, IDLE, idle_group
from nsys_llm.view.text import counted, format_percent, listed, quoted

from ..tables.verdicts import IMPROVE, INSUFFICIENT, REGRESS
from ..tables.wall_change import CALL
from .gains import Costs
from .step_words import median_words
from .texts import RULES, SLOWER_HOST_SHARE_PCT

#: Causes of idle time that a faster host shortens.
HOST_CAUSES: Final = tuple(name for name in CAUSE_NAMES if idle_group(name) == HOST)
#: What calls of a class are called, by class.
_KIND_WORDS: Final = {
    "launch": "launch",
    "graph_launch": "launch",
    "memcpy": "copy",
    "memset": "fill",
    "event": "event",
    "stream_order": "event",
}
#: Ratios below this need three figures.
_SMALL_RATIO: Final = 1.1
#: Calls that are named at most.
_MOST_CALLS: Final = 3
_RANGES: Final = "NVTX ranges"
_OTHER: Final = "other"


@dataclass(frozen=True)
class HostChange:
    """What the host does slower.

    Attributes:
        slower: Rows of the table host that got slower, by their time in the baseline.
        tested: All rows that were looked at.
    """

    slower: tuple[Record, ...]
    tested: tuple[Record, ...]

    @property
    def faster_n(self) -> int:
        """How many got faster."""
        return sum(row["verdict"] == IMPROVE for row in self.tested)

    @property
    def share_pct(self) -> float:
        """Time of the slower ones, in that of all, in the baseline."""
        whole_ns = sum(row["baseline_total_ns"] for row in self.tested)
        return 100 * sum(row["baseline_total_ns"] for row in self.slower) / max(whole_ns, 1)

    @property
    def factor(self) -> float:
        """How much longer the calls and ranges of the baseline take at the medians of the input."""
        before, after = (
            sum(row["baseline_n"] * row[f"{side}_p50_ns"] for row in self.tested)
            for side in ("baseline", "input")
        )
        return after / before if before else 1.0

    @property
    def groups(self) -> list[HostGroup]:
        """What is told: the kinds of the calls with most time, then ranges."""
        calls = [row for row in self.slower if row["kind"] == CALL][:_MOST_CALLS]
        kinds = {_kind(row) for row in calls}
        ranges = [row for row in self.slower if row["kind"] != CALL]
        most = sorted(ranges, key=lambda row: -row["baseline_n"])[:1]
        groups = [self._group(calls, kinds), self._group(most, {_RANGES})]
        return [group for group in groups if group.named]

    def _group(self, named: list[Record], kinds: set[str]) -> HostGroup:
        tested = [row for row in self.tested if _kind(row) in kinds]
        ratios = [row["p50_ratio"] for row in self.slower if _kind(row) in kinds]
        order = [word for word in (*dict.fromkeys(_KIND_WORDS.values()), _OTHER) if word in kinds]
        name = f"{listed(order)} calls" if order else _RANGES
        return HostGroup(name, tuple(named), len(ratios), len(tested), tuple(ratios))


@dataclass(frozen=True)
class HostGroup:
    """Some kinds of calls, or the ranges.

    Attributes:
        name: What they are called.
        named: Those that are named; all of them got slower.
        slower_n: How many got slower.
        tested_n: How many were looked at.
        ratios: Of the medians of those that got slower.
    """

    name: str
    named: tuple[Record, ...]
    slower_n: int
    tested_n: int
    ratios: tuple[float, ...]

    def words(self, most: int) -> str:
        """Return how many of them are slower, and by how much: `launch calls take 1.4 times ...`.

        Args:
            most: Names at most.
        """
        some = "" if self.slower_n == self.tested_n else f"{self.slower_n} of {self.tested_n} "
        low, high = _ratio(min(self.ratios)), _ratio(max(self.ratios))
        times = low if low == high else f"{low} to {high}"
        reported = ", ".join(
            f"{quoted(row['name'])} {median_words(row['baseline_p50_ns'], row['input_p50_ns'])}"
            for row in self.named[:most]
        )
        return f"{some}{self.name} take {times} times as long (medians: {reported})"


def slower_host(tables: Tables) -> HostChange | None:
    """Return what the host does slower; None unless most of its time is in what does."""
    rows = [row for row in records(tables["host"]) if row["verdict"] != INSUFFICIENT]
    slower = sorted(
        (row for row in rows if row["verdict"] == REGRESS),
        key=lambda row: (-row["baseline_total_ns"], row["name"]),
    )
    change = HostChange(tuple(slower), tuple(rows))
    return change if slower and change.share_pct >= SLOWER_HOST_SHARE_PCT else None


def host_words(change: HostChange, most: int = _MOST_CALLS) -> str:
    """Return what is slower: `launch calls take 1.4 times as long (...), NVTX ranges 1.1 (...)`.

    Args:
        change: What the host does slower.
        most: Names of calls at most.
    """
    first, *others = [group.words(most) for group in change.groups]
    short = [words.replace("take ", "", 1).replace("as long (medians: ", "(") for words in others]
    return ", ".join([first, *short])


def host_finding(tables: Tables, costs: Costs) -> Finding | None:
    """Return the finding of a slower host that makes the GPU wait; None without one."""
    change = slower_host(tables)
    if change is None:
        return None
    # What a host is slower in a step bounds what it costs: idle time grows behind a faster GPU too.
    cost = costs.of_class(IDLE, HOST_CAUSES, most_share=1 - 1 / max(change.factor, 1.0))
    if cost is None or cost.gain is None or cost.gain.severity is None:
        return None
    evidence: tuple[Evidence, ...] = cost.evidence
    numbers: dict[str, float] = {
        "slower_n": len(change.slower),
        "faster_n": change.faster_n,
        "tested_n": len(change.tested),
        "share_pct": change.share_pct,
        "change_ns": cost.change_ns,
        "factor": change.factor,
    }
    for place, group in enumerate(change.groups):
        numbers |= {f"group{place}_slower_n": group.slower_n, f"group{place}_n": group.tested_n}
        numbers |= {
            f"group{place}_least": min(group.ratios),
            f"group{place}_most": max(group.ratios),
        }
        for row in group.named:
            evidence += cells(
                "host", row, ("kind", "name"), ("baseline_p50_ns", "input_p50_ns", "p50_ratio")
            )
    faster = f", {change.faster_n} got faster" if change.faster_n else ""
    return RULES["slower_host"].finding(
        price=cost.gain,
        details=f"The host is slower: {host_words(change)}. Of "
        f"{counted(len(change.tested), 'kind')} of calls and ranges that wait for no GPU, "
        f"{len(change.slower)} got slower, with {format_percent(change.share_pct)} of their "
        f"time{faster}.",
        evidence=evidence,
        numbers=numbers,
        cause=Cause("host", rank=cost.rank),
        rank=cost.rank,
        device_id=cost.device_id,
        impact_ns=cost.gain.gain_ns,
    )


def _ratio(value: float) -> str:
    """Return a ratio in the figures that tell it from 1: `1.03`, `1.6`."""
    return f"{value:.3g}" if value < _SMALL_RATIO else f"{value:.2g}"


def _kind(row: Record) -> str:
    """Return what a row of the table host is called: launch, copy, ..., or NVTX ranges."""
    return _KIND_WORDS.get(classify_api(row["name"]), _OTHER) if row["kind"] == CALL else _RANGES
