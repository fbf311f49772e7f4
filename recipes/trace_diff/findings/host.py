"""Whether the host got slower: call by call and range by range, and never more than is so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

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
#: Names that are told at most: calls, and one range.
_MOST_CALLS: Final = 3
_MOST_NAMES: Final = 4


@dataclass(frozen=True)
class HostChange:
    """What the host does slower.

    Attributes:
        slower: Rows of the table host that got slower, by their time in the baseline.
        faster: How many got faster.
        tested_n: How many were looked at.
        share_pct: Time of the slower ones, in that of all, in the baseline.
    """

    slower: tuple[Record, ...]
    faster_n: int
    tested_n: int
    share_pct: float

    @property
    def told(self) -> list[Record]:
        """The few that are named: calls with most time, then a range."""
        calls = [row for row in self.slower if row["kind"] == CALL][:_MOST_CALLS]
        ranges = [row for row in self.slower if row["kind"] != CALL]
        ranges.sort(key=lambda row: -row["baseline_n"])
        return [*calls, *ranges[: max(_MOST_NAMES - len(calls), 1)]]

    @property
    def ratios(self) -> tuple[float, float]:
        """The least and the largest ratio of medians of those that are named."""
        found = [row["p50_ratio"] for row in self.told]
        return min(found), max(found)


def slower_host(tables: Tables) -> HostChange | None:
    """Return what the host does slower; None unless most of its time is in what does."""
    rows = [row for row in records(tables["host"]) if row["verdict"] != INSUFFICIENT]
    slower = sorted(
        (row for row in rows if row["verdict"] == REGRESS),
        key=lambda row: (-row["baseline_total_ns"], row["name"]),
    )
    faster_n = sum(row["verdict"] == IMPROVE for row in rows)
    whole_ns = sum(row["baseline_total_ns"] for row in rows)
    share_pct = 100 * sum(row["baseline_total_ns"] for row in slower) / max(whole_ns, 1)
    if not slower or share_pct < SLOWER_HOST_SHARE_PCT:
        return None
    return HostChange(tuple(slower), faster_n, len(rows), share_pct)


def host_words(change: HostChange) -> str:
    """Return what is slower: `launch calls take 1.4 to 1.6 times as long (...)`."""
    low, high = map(_ratio, change.ratios)
    times = low if low == high else f"{low} to {high}"
    told = [
        f"{quoted(row['name'])} {median_words(row['baseline_p50_ns'], row['input_p50_ns'])}"
        f"{' median' if place == 0 else ''}"
        for place, row in enumerate(change.told)
    ]
    return f"{_kinds(change)} take {times} times as long ({', '.join(told)})"


def host_finding(tables: Tables, costs: Costs) -> Finding | None:
    """Return the finding of a slower host that makes the GPU wait; None without one."""
    change, cost = slower_host(tables), costs.of_class(IDLE, HOST_CAUSES)
    if change is None or cost is None or cost.gain is None or cost.gain.severity is None:
        return None
    evidence: tuple[Evidence, ...] = cost.evidence
    for row in change.told:
        evidence += cells(
            "host", row, ("kind", "name"), ("baseline_p50_ns", "input_p50_ns", "p50_ratio")
        )
    numbers = {
        "slower_n": len(change.slower),
        "faster_n": change.faster_n,
        "tested_n": change.tested_n,
        "share_pct": change.share_pct,
        "change_ns": cost.change_ns,
    }
    faster = f", {change.faster_n} got faster" if change.faster_n else ""
    return RULES["slower_host"].finding(
        gain=cost.gain,
        details=f"The host is slower: {host_words(change)}. Of "
        f"{counted(change.tested_n, 'kind')} of calls and ranges that wait for no GPU, "
        f"{len(change.slower)} got slower, with {format_percent(change.share_pct)} of their "
        f"time{faster}.",
        evidence=evidence,
        numbers=numbers,
        cause="host",
        cause_ns=cost.gain.gain_ns,
        culprit="host:speed",
        rank=cost.rank,
        device_id=cost.device_id,
        impact_ns=cost.gain.gain_ns,
    )


def _ratio(value: float) -> str:
    """Return a ratio in the figures that tell it from 1: `1.03`, `1.6`."""
    return f"{value:.3g}" if value < _SMALL_RATIO else f"{value:.2g}"


def _kinds(change: HostChange) -> str:
    """Return what those that are named are: `launch and copy calls`."""
    words = {
        _KIND_WORDS.get(classify_api(row["name"]), "other") if row["kind"] == CALL else ""
        for row in change.told
    }
    calls = [word for word in (*dict.fromkeys(_KIND_WORDS.values()), "other") if word in words]
    text = f"{listed(calls)} calls" if calls else ""
    return " and ".join(part for part in (text, "NVTX ranges" if "" in words else "") if part)
