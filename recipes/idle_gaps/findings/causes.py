"""Findings on the causes of idle time: each once, on the GPU that loses most by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from nsys_llm.report.findings import Evidence, Finding, cells
from nsys_llm.report.gains import Gain, Walls
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.taxonomy.wall_classes import IDLE
from nsys_llm.view.text import counted, format_count, format_ns, format_percent, quoted

from ..partials import MICRO_GAP_NS
from .cross_rank_idle import PipelineRanks, together_words
from .texts import PART_WORDS, RULES

#: Causes of idle time by the rule that says what to do about them.
LEVERS: Final[Mapping[str, tuple[str, ...]]] = {
    "idle_host_sync": ("host_sync",),
    "idle_sync_memop": ("sync_memop",),
    "idle_alloc": ("alloc",),
    "idle_module_load": ("module_load",),
    "queued_gaps": ("queued",),
}
#: Of these, the one that is the device's own: nothing waits for the host there.
_OF_DEVICE: Final = "queued_gaps"
#: Waits of the host that need not be there: behind them stand the launches that they held back.
_WAITS: Final = ("idle_host_sync", "idle_sync_memop")
#: The host came too late with the next operation; no call is named that need not be there.
HOST_CAUSES: Final = tuple(PART_WORDS)

#: Rules on a host that is late, by the length of most gaps.
HOST_RULES: Final = ("launch_bound", "host_work")
#: A part of a GPU's time that is not worth naming in a sentence.
_LEAST_PART_PCT: Final = 0.1
_OF_WALL: Final = ("time_ns", "share_pct")

#: Rank and device id.
Gpu = tuple[int, int]


class IdleTimes:
    """The idle time of each GPU by cause, as the table `wall` has it.

    Attributes:
        gpus: Those whose idle time is known by cause.
        walls: Spans and classes of all GPUs.
    """

    def __init__(self, tables: Tables) -> None:
        wall = tables["wall"]
        idle = records(wall[(wall["wall_class"] == IDLE) & wall["detail"].notna()])
        self._rows = {(row["rank"], row["device_id"], row["detail"]): row for row in idle}
        self.gpus: list[Gpu] = sorted({(rank, device) for rank, device, _ in self._rows})
        self.walls = Walls(tables)

    def cause_ns(self, gpu: Gpu, cause: str) -> int:
        """Return the idle time of a GPU by one cause."""
        row = self._rows.get((*gpu, cause))
        return 0 if row is None else int(row["time_ns"])

    def lost_ns(self, causes: tuple[str, ...]) -> dict[Gpu, int]:
        """Return the idle time of some causes together, by GPU."""
        return {gpu: sum(self.cause_ns(gpu, cause) for cause in causes) for gpu in self.gpus}

    def gain(self, gpu: Gpu, lost_ns: int, *, is_bound: bool = False) -> Gain:
        """Return what it gains if a GPU is not idle for some time."""
        return self.walls.gain(*gpu, lost_ns, (IDLE,), basis="idle", is_bound=is_bound)

    def rows(self, gpu: Gpu, causes: tuple[str, ...]) -> list[Record]:
        """Return the rows of some causes on a GPU, the largest first."""
        rows = [self._rows[key] for key in ((*gpu, cause) for cause in causes) if key in self._rows]
        return sorted(rows, key=lambda row: -int(row["time_ns"]))


def cause_findings(tables: Tables, stages: PipelineRanks) -> list[Finding]:
    """Return the findings on causes whose removal gains something on a GPU.

    Args:
        tables: wall, rank_causes, gaps, patterns, common_idle.
        stages: Whether ranks are stages of a pipeline: their long gaps are no fault of the host.
    """
    times = IdleTimes(tables)
    alike = [_lever(rule, times, tables) for rule in LEVERS]
    return [item for item in (*alike, _host(times, tables, stages)) if item is not None]


def _lever(rule: str, times: IdleTimes, tables: Tables) -> Finding | None:
    causes = LEVERS[rule]
    lost_ns = times.lost_ns(causes)
    if not lost_ns or rule != _OF_DEVICE:
        return _finding(rule, causes, lost_ns, times, tables)
    gpu = worst_gpu(lost_ns)
    long = 2 * _short_ns(times, tables, causes)[gpu] < lost_ns[gpu]
    return _finding(rule, causes, lost_ns, times, tables, case="long" if long else None)


def _host(times: IdleTimes, tables: Tables, stages: PipelineRanks) -> Finding | None:
    """Return the finding on a host that is late: what to do depends on how long it is."""
    lost_ns, short_ns = times.lost_ns(HOST_CAUSES), _short_ns(times, tables, HOST_CAUSES)
    if not lost_ns:
        return None
    if stages.several:
        lost_ns = short_ns  # without its input, a stage has nothing to launch
    gpu = worst_gpu(lost_ns)
    rule, case = "launch_bound", None
    if 2 * short_ns[gpu] < lost_ns[gpu]:
        rule = "host_work"
        case = "calls" if _mostly_in_calls(tables, gpu) else None
        case = "stages" if stages.may_be_two else case
    return _finding(rule, HOST_CAUSES, lost_ns, times, tables, case=case)


def worst_gpu(lost_ns: Mapping[Gpu, int]) -> Gpu:
    """Return the GPU that loses most, the first of equals; there is at least one."""
    return max(sorted(lost_ns), key=lambda gpu: lost_ns[gpu])


def _short_ns(times: IdleTimes, tables: Tables, causes: tuple[str, ...]) -> dict[Gpu, int]:
    """Return the part of some causes that lies in short gaps, by GPU."""
    rows = tables["rank_causes"]
    rows = rows[rows["cause"].isin(causes) & (rows["low_ns"] < MICRO_GAP_NS)]
    sums = rows.groupby(["rank", "device_id"], sort=True)["idle_ns"].sum()
    return {gpu: int(sums.get(gpu, 0)) for gpu in times.gpus}


def _mostly_in_calls(tables: Tables, gpu: Gpu) -> bool:
    """Return whether the late host of a GPU was in CUDA calls for most of its long gaps."""
    rows = tables["rank_causes"]
    rows = rows[(rows["rank"] == gpu[0]) & (rows["device_id"] == gpu[1])]
    rows = rows[rows["cause"].isin(HOST_CAUSES) & (rows["low_ns"] >= MICRO_GAP_NS)]
    outside_ns = int(rows.loc[rows["cause"] == "host_no_cuda", "idle_ns"].sum())
    return 2 * outside_ns < int(rows["idle_ns"].sum())


def _finding(
    rule: str,
    causes: tuple[str, ...],
    lost_ns: Mapping[Gpu, int],
    times: IdleTimes,
    tables: Tables,
    *,
    case: str | None = None,
) -> Finding | None:
    """Return the finding of a rule on the GPU that loses most; None where that is too little."""
    if not lost_ns:
        return None
    gpu = worst_gpu(lost_ns)
    gain = times.gain(gpu, lost_ns[gpu], is_bound=rule == _OF_DEVICE and case is None)
    rows = times.rows(gpu, causes)
    if gain.severity is None or not rows:
        return None
    words = _Words()
    where = ("rank", "device_id", "wall_class", "detail")
    words.evidence = [cell for row in rows for cell in cells("wall", row, where, _OF_WALL)]
    ranks, others = _ranks(lost_ns, gpu, times, words)
    window, longest = _longest(rule, causes, tables, gpu, words)
    of_host = rule in HOST_RULES
    parts = _parts(rows, _short_ns(times, tables, causes)[gpu], tables, words) if of_host else "."
    details = f"{format_ns(gain.gain_ns)} of {format_ns(gain.span_ns)}{parts}{longest}"
    if rule == "launch_bound":
        details += _pattern(causes, tables, words)
    if rule in _WAITS:
        details += _held_back(gpu, times, words)
    return RULES[rule].finding(
        case=case,
        gain=gain,
        details=f"{details}{others}",
        fields={"rank": gpu[0], "share": format_percent(gain.gain_pct)},
        evidence=tuple(words.evidence),
        numbers=words.numbers,
        cause=str(rows[0]["detail"]),
        cause_ns=int(rows[0]["time_ns"]),
        culprit="host:late" if of_host else f"idle:{rows[0]['detail']}",
        ranks=ranks,
        rank=gpu[0],
        device_id=gpu[1],
        window_ns=window,
        impact_ns=gain.gain_ns,
    )


@dataclass
class _Words:
    """What the sentences of a finding rest on, as they are written."""

    numbers: dict[str, float] = field(default_factory=dict)
    evidence: list[Evidence] = field(default_factory=list)


def _held_back(gpu: Gpu, times: IdleTimes, words: _Words) -> str:
    """Return what a wait of the host may cost besides: launches behind it come late, too."""
    idle_ns = times.walls.class_ns(*gpu, IDLE)
    words.numbers["all_idle_ns"] = idle_ns
    return (
        " It holds back the launches behind it, so that without it more may be gained: at most "
        f"all idle time of this GPU, {format_ns(idle_ns)}."
    )


def _parts(rows: Sequence[Record], short_ns: int, tables: Tables, words: _Words) -> str:
    """Return what the time of a late host is made of, and how much of it is in short gaps."""
    said = [
        f"{format_percent(row['share_pct'])} {PART_WORDS[row['detail']]}"
        for row in rows
        if row["share_pct"] >= _LEAST_PART_PCT
    ]
    words.numbers |= {"short_gaps_ns": short_ns, "short_gap_ns": MICRO_GAP_NS}
    together, together_cells, numbers = together_words(tables)
    words.evidence += together_cells
    words.numbers |= numbers
    return (
        f": {', '.join(said)}; {format_ns(short_ns)} of it in gaps below "
        f"{format_ns(MICRO_GAP_NS)}.{together}"
    )


def _ranks(
    lost_ns: Mapping[Gpu, int], gpu: Gpu, times: IdleTimes, words: _Words
) -> tuple[tuple[int, ...], str]:
    """Return the ranks on which it is worth a line, and words about the others."""
    worth = {place for place, time_ns in lost_ns.items() if times.gain(place, time_ns).severity}
    ranks = tuple(sorted({rank for rank, _ in worth}))
    rest = [time_ns for (rank, _), time_ns in lost_ns.items() if rank != gpu[0]]
    if not rest:
        return ranks, ""
    usual_ns = median(rest)
    words.numbers["other_ranks_median_ns"] = usual_ns
    affected = counted(len(ranks), "rank")
    return (
        ranks,
        f" {affected} affected; rank {gpu[0]} is the worst, the "
        f"{'median of the others' if len(rest) > 1 else 'other'} loses {format_ns(usual_ns)}.",
    )


def _longest(
    rule: str, causes: tuple[str, ...], tables: Tables, gpu: Gpu, words: _Words
) -> tuple[tuple[int, int] | None, str]:
    """Return where the longest such gap of a GPU is, and words about it."""
    gaps = tables["gaps"]
    gaps = gaps[(gaps["rank"] == gpu[0]) & (gaps["device_id"] == gpu[1])]
    gaps = gaps[gaps["cause"].isin(causes)]
    if rule == "launch_bound":
        devices = tables["devices"]
        device = devices[(devices["rank"] == gpu[0]) & (devices["device_id"] == gpu[1])].iloc[0]
        return (int(device["window_start_ns"]), int(device["window_end_ns"])), ""
    if gaps.empty:
        return None, ""
    gap = records(gaps.head(1))[0]
    said = [name for name in ("duration_ns", "api_ns", "os_call_ns", "on_core_ns") if gap[name]]
    words.evidence += cells("gaps", gap, ("rank", "device_id", "start_ns"), said)
    return (int(gap["start_ns"]), int(gap["end_ns"])), _gap_words(gap)


def _gap_words(gap: Record) -> str:
    said = [f" The longest gap: {format_ns(gap['duration_ns'])}"]
    if gap["api"] is not None:
        said.append(f", {format_ns(gap['api_ns'])} of it in {quoted(gap['api'])}")
    if gap["nvtx_range"] is not None:
        said.append(f", in the range {quoted(gap['nvtx_range'])}")
    if gap["os_call"] is not None:
        said.append(f"; {format_ns(gap['os_call_ns'])} in {quoted(gap['os_call'])}")
    if gap["on_core_ns"] is not None:
        said.append(f"; the thread ran on a core for {format_ns(gap['on_core_ns'])} of it")
    if gap["after"] is not None:
        said.append(f", before {quoted(gap['after'])}")
    return "".join([*said, "."])


def _pattern(causes: tuple[str, ...], tables: Tables, words: _Words) -> str:
    """Return words about the costliest short gap that repeats."""
    patterns = tables["patterns"]
    rows = patterns[patterns["cause"].isin(causes) & (patterns["gaps_n"] > 1)]
    rows = rows[rows["before"].notna()]
    if rows.empty:
        return ""
    row = records(rows.head(1))[0]
    words.evidence += cells("patterns", row, ("before", "after"), ("gaps_n", "p50_ns"))
    where = " on all ranks" if row["ranks_n"] > 1 else ""
    return (
        f" The costliest short gap that repeats: {quoted(row['before'])} to "
        f"{quoted(row['after'])}, {format_count(row['gaps_n'])} times{where}, median "
        f"{format_ns(row['p50_ns'])}."
    )
