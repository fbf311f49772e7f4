"""Findings on the causes of idle time: each once, on the GPU that loses most by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from nsys_llm.report.causes import Cause
from nsys_llm.report.changes import Change
from nsys_llm.report.findings import Evidence, Finding, cells
from nsys_llm.report.price import LEAST_PCT
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.report.walls import Gpu, Walls, host_cause, usual_loss_ns
from nsys_llm.taxonomy.idle_causes import HOST_CAUSES
from nsys_llm.taxonomy.wall_classes import IDLE
from nsys_llm.view.text import counted, format_count, format_ns, format_percent, quoted

from ..partials import MICRO_GAP_NS
from .cross_rank_idle import PipelineRanks, together_words
from .texts import PART_WORDS, RULES

#: Causes of idle time that are no host's, by the rule that says what to do about them.
_OTHERS: Final[Mapping[str, tuple[str, Cause]]] = {
    "idle_alloc": ("alloc", Cause("allocation")),
    "idle_module_load": ("module_load", Cause("module_load")),
    "queued_gaps": ("queued", Cause("queued")),
}
#: Calls that wait, by the rule that speaks where they are most of the host's time.
_WAITS: Final = {"host_sync": "idle_host_sync", "sync_memop": "idle_sync_memop"}

#: Rules on a host that is late.
HOST_RULES: Final = ("launch_bound", "host_work", *_WAITS.values())
#: A part of a GPU's time that is not worth naming in a sentence.
_LEAST_PART_PCT: Final = 0.1
_OF_WALL: Final = ("time_ns", "share_pct")


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

    def lost_ns(self, causes: tuple[str, ...]) -> dict[Gpu, int]:
        """Return the idle time of some causes together, by GPU."""
        return {gpu: self.walls.detail_ns(gpu, IDLE, *causes) for gpu in self.gpus}

    def rows(self, gpu: Gpu, causes: tuple[str, ...]) -> list[Record]:
        """Return the rows of some causes on a GPU, the largest first."""
        rows = [self._rows[key] for key in ((*gpu, cause) for cause in causes) if key in self._rows]
        return sorted(rows, key=lambda row: -int(row["time_ns"]))


def cause_findings(tables: Tables, stages: PipelineRanks) -> list[Finding]:
    """Return the findings on causes of idle time.

    Args:
        tables: wall, rank_causes, gaps, patterns, common_idle.
        stages: Whether ranks are stages of a pipeline: their long gaps are no fault of the host.
    """
    times = IdleTimes(tables)
    if not times.gpus:
        return []
    alike = [_other(rule, times, tables) for rule in _OTHERS]
    return [item for item in (*alike, _host(times, tables, stages)) if item is not None]


def _other(rule: str, times: IdleTimes, tables: Tables) -> Finding | None:
    name, cause = _OTHERS[rule]
    lost_ns = times.lost_ns((name,))
    if cause.kind != "queued":
        return _finding(rule, (name,), lost_ns, times, tables, cause, Change("idle", name))
    gpu = worst_gpu(lost_ns)
    if 2 * _short_ns(times, tables, (name,))[gpu] >= lost_ns[gpu]:
        return _finding(rule, (name,), lost_ns, times, tables, cause, Change("queued"))
    change, cause = Change("queued", "long"), Cause("dependency")
    return _finding(rule, (name,), lost_ns, times, tables, cause, change, case="long")


def _host(times: IdleTimes, tables: Tables, stages: PipelineRanks) -> Finding | None:
    """Return the finding on a host that is late: what to do depends on what it does most."""
    lost_ns, short_ns = times.lost_ns(HOST_CAUSES), _short_ns(times, tables, HOST_CAUSES)
    if stages.several:
        lost_ns = short_ns  # without its input, a stage has nothing to launch
    gpu = worst_gpu(lost_ns)
    rows = times.rows(gpu, HOST_CAUSES)
    rule, case = "launch_bound", None
    if rows and rows[0]["detail"] in _WAITS:
        rule = _WAITS[rows[0]["detail"]]
    elif 2 * short_ns[gpu] < lost_ns[gpu]:
        rule = "host_work"
        case = "calls" if _mostly_in_calls(tables, gpu) else None
        case = "stages" if stages.may_be_two else case
    cause = host_cause(lost_ns, gpu)
    return _finding(rule, HOST_CAUSES, lost_ns, times, tables, cause, Change("host"), case=case)


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
    cause: Cause,
    change: Change,
    *,
    case: str | None = None,
) -> Finding | None:
    """Return the finding of a rule on the GPU that loses most; None where nobody loses any."""
    gpu = worst_gpu(lost_ns)
    rows, span_ns = times.rows(gpu, causes), times.walls.span_ns(*gpu)
    if not rows or not lost_ns[gpu]:
        return None
    words = _Words()
    where = ("rank", "device_id", "wall_class", "detail")
    words.evidence = [cell for row in rows for cell in cells("wall", row, where, _OF_WALL)]
    ranks, others = _ranks(lost_ns, gpu, times, words)
    window, longest, place = _longest(rule, causes, tables, gpu, words)
    of_host = rule in HOST_RULES
    parts = _parts(rows, _short_ns(times, tables, causes)[gpu], tables, words) if of_host else "."
    details = f"{format_ns(lost_ns[gpu])} of {format_ns(span_ns)}{parts}{longest}"
    if rule == "launch_bound":
        details += _pattern(causes, tables, words)
    share_pct = 100.0 * lost_ns[gpu] / max(span_ns, 1)
    words.numbers |= {"share_pct": share_pct, "lost_ns": lost_ns[gpu]}
    return RULES[rule].finding(
        case=case,
        cause=cause,
        change=change,
        details=f"{details}{others}",
        fields={"rank": gpu[0], "share": format_percent(share_pct), "place": place},
        evidence=tuple(words.evidence),
        numbers=words.numbers,
        ranks=ranks,
        rank=gpu[0],
        device_id=gpu[1],
        window_ns=window,
        impact_ns=lost_ns[gpu],
    )


@dataclass
class _Words:
    """What the sentences of a finding rest on, as they are written."""

    numbers: dict[str, float] = field(default_factory=dict)
    evidence: list[Evidence] = field(default_factory=list)


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
    least = LEAST_PCT / 100.0
    worth = {place for place, ns in lost_ns.items() if ns >= least * times.walls.span_ns(*place)}
    ranks = tuple(sorted({rank for rank, _ in worth}))
    usual_ns = usual_loss_ns(lost_ns, gpu)
    if usual_ns is None:
        return ranks, ""
    words.numbers["other_ranks_median_ns"] = usual_ns
    return ranks, f" {counted(len(ranks), 'rank')} affected; the others lose {format_ns(usual_ns)}."


def _longest(
    rule: str, causes: tuple[str, ...], tables: Tables, gpu: Gpu, words: _Words
) -> tuple[tuple[int, int] | None, str, str]:
    """Return where the longest such gap of a GPU is, words about it, and the range it is in."""
    gaps = tables["gaps"]
    gaps = gaps[(gaps["rank"] == gpu[0]) & (gaps["device_id"] == gpu[1])]
    gaps = gaps[gaps["cause"].isin(causes)]
    if rule == "launch_bound":
        devices = tables["devices"]
        device = devices[(devices["rank"] == gpu[0]) & (devices["device_id"] == gpu[1])].iloc[0]
        return (int(device["window_start_ns"]), int(device["window_end_ns"])), "", ""
    if gaps.empty:
        return None, "", ""
    gap = records(gaps.head(1))[0]
    said = [name for name in ("duration_ns", "api_ns", "os_call_ns", "on_core_ns") if gap[name]]
    words.evidence += cells("gaps", gap, ("rank", "device_id", "start_ns"), said)
    place = "" if gap["nvtx_range"] is None else f" in {quoted(gap['nvtx_range'])}"
    return (int(gap["start_ns"]), int(gap["end_ns"])), _gap_words(gap), place


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
