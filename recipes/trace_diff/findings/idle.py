"""What explains a change of idle time: the host, a rank, new waits, or work that takes less."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from nsys_llm.report.causes import Cause
from nsys_llm.report.findings import Evidence, cells
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.taxonomy.api_classes import classify_api
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, COMPUTE, COPIES, HOST, IDLE, idle_group
from nsys_llm.view.text import listed, quoted

from ..tables.verdicts import IMPROVE, INSUFFICIENT, REGRESS
from ..tables.wall_change import CALL
from .change import LEAST_SHARE, ClassCost, Clock, Explained, a_unit, changed, number_of
from .step_words import median_words
from .texts import SLOWER_HOST_SHARE_PCT

#: Causes of idle time that a faster host shortens.
_HOST_CAUSES: Final = tuple(name for name in CAUSE_NAMES if idle_group(name) == HOST)
#: What calls of a class are called, by class.
_KIND_WORDS: Final = {
    "launch": "launch",
    "graph_launch": "launch",
    "memcpy": "copy",
    "memset": "fill",
    "event": "event",
    "stream_order": "event",
}
_OTHER: Final = "other"
_RANGES: Final = "NVTX ranges"
#: Ratios below this need three figures.
_SMALL_RATIO: Final = 1.1
#: Calls that are named at most.
_MOST_CALLS: Final = 2
#: A change is that of one rank, or of what a range holds, if it has so much of it; ours.
_MOST_SHARE: Final = 0.5


def explain_idle(tables: Tables, clock: Clock, cost: ClassCost) -> Explained:
    """Return what explains the change of idle time."""
    host = _moved_host(tables, clock, cost)
    if host is not None:
        return host
    for explain in (_rank, _waits, _graphs):
        explained = explain(tables, clock, cost)
        if explained is not None:
            return explained
    work_ns = sum(clock.mean_ns(name) for name in (COMPUTE, COMMUNICATION, COPIES))
    where, numbers = _range_words(tables, cost)
    most = max(cost.details, key=lambda name: cost.details[name] * cost.mean_ns, default=None)
    cause = f"mostly {quoted(most)}" if most else "cause not known"
    kind = "host" if most in _HOST_CAUSES else "queued"
    if cost.mean_ns > 0 and -work_ns >= _MOST_SHARE * cost.mean_ns:
        cause += "; the work of the GPUs takes less and no longer hides it"
    rule = "more_idle" if cost.mean_ns > 0 else "less_idle"
    numbers |= {"cause_ns": cost.details.get(most or "", 0.0)}
    return Explained(rule, f"{cause}{where}", Cause("host" if kind == "host" else "queued"),
                     numbers=numbers)  # fmt: skip


def _moved_host(tables: Tables, clock: Clock, cost: ClassCost) -> Explained | None:
    """Return a host that is slower, or faster, by enough of the difference; None if it is not."""
    change_ns = clock.verdict["change_ns"]
    host_ns = sum(ns for cause, ns in cost.details.items() if cause in _HOST_CAUSES)
    host = _host(tables, REGRESS if cost.mean_ns > 0 else IMPROVE)
    alike = min(host_ns * cost.mean_ns, change_ns * cost.mean_ns) > 0
    if host is None or not alike or 2 * abs(host_ns) < abs(cost.cost_ns):
        return None
    # What a host is slower in a step bounds what it makes: idle time grows behind a faster GPU too.
    most_ns = abs(1 - 1 / host.factor) * clock.step_ns(cost.rank, cost.device_id)
    if most_ns < LEAST_SHARE * abs(change_ns):
        return None
    rule = "slower_host" if cost.mean_ns > 0 else "faster_host"
    return replace(host.explained(rule), most_ns=most_ns)


def _rank(tables: Tables, clock: Clock, cost: ClassCost) -> Explained | None:
    """Return the rank that is idle longer where the others are not; None without one."""
    gpus = clock.by_gpu(IDLE)
    others = [row["change_ns"] for key, row in gpus.items() if key[0] != cost.rank]
    if not others or cost.cost_ns <= 0 or max(others) > _MOST_SHARE * cost.cost_ns:
        return None
    where, numbers = _range_words(tables, cost)
    most = max(cost.details, key=lambda name: cost.details[name], default=None)
    cause = f" (mostly {quoted(most)})" if most else ""
    what = f"rank {cost.rank} alone is idle {changed(cost.cost_ns)} longer{cause}{where}"
    return Explained(
        "idle_rank",
        what.replace("+", ""),
        Cause("host", cost.rank),
        fields={"rank": cost.rank},
        numbers=numbers,
        rank=cost.rank,
    )


def _range_words(tables: Tables, cost: ClassCost) -> tuple[str, dict[str, float]]:
    """Return in which range of the host most of the change is; nothing where in none."""
    rows = records(tables["idle_ranges"])
    rows = [row for row in rows if row["rank_change_ns"] * cost.cost_ns > 0 and row["range"]]
    rows = [row for row in rows if abs(row["rank_change_ns"]) >= _MOST_SHARE * abs(cost.cost_ns)]
    if not rows:
        return "", {}
    most = max(rows, key=lambda row: abs(row["rank_change_ns"]))
    words = f", the host in {quoted(most['range'])} ({changed(most['rank_change_ns'])})"
    return words, {"range_ns": most["rank_change_ns"]}


def _waits(tables: Tables, clock: Clock, cost: ClassCost) -> Explained | None:
    """Return new waits of the host for the GPU; None where there are none."""
    waited_ns = cost.details.get("host_sync", 0.0) + cost.details.get("sync_memop", 0.0)
    if cost.mean_ns <= 0 or waited_ns < _MOST_SHARE * cost.cost_ns:
        return None
    runs, best = tables["runs"].set_index("run"), None
    for row in records(tables["apis"]):
        if row["class"] not in ("host_block", "sync_memop"):
            continue
        steps = [float(runs.loc[side, "ranks_n"]) for side in ("baseline", "input")]
        verdict = clock.verdict
        if verdict["basis"] == "step":
            steps = [n * max(verdict[f"{side}_steps_n"], 1)
                     for n, side in zip(steps, ("baseline", "input"), strict=True)]  # fmt: skip
        n0, n1 = row["baseline_calls_n"] / steps[0], row["input_calls_n"] / steps[1]
        if n1 > 1.2 * n0 and (best is None or n1 - n0 > best[2] - best[1]):
            best = row["api"], n0, n1
    if best is None:
        return None
    name, n0, n1 = best
    what = f"new waits: {quoted(name)} {number_of(n0)} -> {number_of(n1)} {a_unit(clock.unit)}"
    return Explained(
        "new_waits",
        what,
        Cause("wait", detail=name),
        name,
        {"name": quoted(name)},
        {"baseline_n": n0, "input_n": n1},
    )


def _graphs(tables: Tables, clock: Clock, cost: ClassCost) -> Explained | None:
    """Return that CUDA graphs went away; None where they did not."""
    graphs = [row for row in records(tables["apis"]) if row["class"] == "graph_launch"]
    before, after = (
        sum(row[f"{side}_calls_n"] for row in graphs) for side in ("baseline", "input")
    )
    if not before or after or cost.mean_ns <= 0:
        return None
    what = (
        f"the {before:,} graph launches of the baseline are gone: kernels are launched one by one"
    )
    return Explained("graphs_lost", what, Cause("host"), numbers={"graphs_n": float(before)})


@dataclass(frozen=True)
class _HostChange:
    """What the host does slower, or faster.

    Attributes:
        moved: Rows of the table host that changed that way, by their time in the baseline.
        tested: All rows that were looked at.
    """

    moved: tuple[Record, ...]
    tested: tuple[Record, ...]

    @property
    def factor(self) -> float:
        """How much longer the calls and ranges of the baseline take at the medians of the input."""
        before, after = (
            sum(row["baseline_n"] * row[f"{side}_p50_ns"] for row in self.tested)
            for side in ("baseline", "input")
        )
        return after / before if before else 1.0

    def explained(self, rule: str) -> Explained:
        """Return the change as what explains idle time."""
        calls = [row for row in self.moved if row["kind"] == CALL][:3]
        ranges = [row for row in self.moved if row["kind"] != CALL]
        ranges = sorted(ranges, key=lambda row: -row["baseline_n"])[:1]
        groups = [(calls, {_kind(row) for row in calls}), (ranges, {_RANGES})]
        words: list[str] = []
        evidence: list[Evidence] = []
        numbers = {"factor": self.factor}
        for place, (named, kinds) in enumerate(groups):
            if not named:
                continue
            text, more = self._group(named, kinds)
            numbers |= {f"group{place}_{key}": value for key, value in more.items()}
            short = text.replace("take ", "", 1).replace("as long (medians: ", "(")
            words.append(short if words else text)
            evidence += [
                cell
                for row in named
                for cell in cells("host", row, ("kind", "name"),
                                  ("baseline_p50_ns", "input_p50_ns", "p50_ratio"))
            ]  # fmt: skip
        what = f"the host: {', '.join(words)}"
        return Explained(rule, what, Cause("host"), numbers=numbers, evidence=tuple(evidence))

    def _group(self, named: list[Record], kinds: set[str]) -> tuple[str, dict[str, float]]:
        """Return how many of some kinds changed, and by how much: `launch calls take 1.4 times`."""
        tested_n = sum(_kind(row) in kinds for row in self.tested)
        ratios = [row["p50_ratio"] for row in self.moved if _kind(row) in kinds]
        order = [word for word in (*dict.fromkeys(_KIND_WORDS.values()), _OTHER) if word in kinds]
        name = f"{listed(order)} calls" if order else _RANGES
        some = "" if len(ratios) == tested_n else f"{len(ratios)} of {tested_n} "
        low, high = _ratio(min(ratios)), _ratio(max(ratios))
        times = low if low == high else f"{low} to {high}"
        reported = ", ".join(
            f"{quoted(row['name'])} {median_words(row['baseline_p50_ns'], row['input_p50_ns'])}"
            for row in named[:_MOST_CALLS]
        )
        numbers = {"moved_n": len(ratios), "n": tested_n, "least": min(ratios), "most": max(ratios)}
        return f"{some}{name} take {times} times as long (medians: {reported})", numbers


def _host(tables: Tables, wanted: str) -> _HostChange | None:
    """Return what the host does slower or faster; None unless most of its time is in what does."""
    rows = [row for row in records(tables["host"]) if row["verdict"] != INSUFFICIENT]
    moved = sorted(
        (row for row in rows if row["verdict"] == wanted),
        key=lambda row: (-row["baseline_total_ns"], row["name"]),
    )
    whole_ns = sum(row["baseline_total_ns"] for row in rows)
    share_pct = 100 * sum(row["baseline_total_ns"] for row in moved) / max(whole_ns, 1)
    change = _HostChange(tuple(moved), tuple(rows))
    return change if moved and share_pct >= SLOWER_HOST_SHARE_PCT else None


def _ratio(value: float) -> str:
    """Return a ratio in the figures that tell it from 1: `1.03`, `1.6`."""
    return f"{value:.3g}" if value < _SMALL_RATIO else f"{value:.2g}"


def _kind(row: Record) -> str:
    """Return what a row of the table host is called: launch, copy, ..., or NVTX ranges."""
    return _KIND_WORDS.get(classify_api(row["name"]), _OTHER) if row["kind"] == CALL else _RANGES
