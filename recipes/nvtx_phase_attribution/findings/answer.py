"""What nvtx_phase_attribution reports: the answer in two sentences, and findings."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.findings import Finding
from nsys_llm.report.rank_findings import rank_findings
from nsys_llm.report.records import Tables, records
from nsys_llm.report.walls import Walls
from nsys_llm.taxonomy.step_names import is_engine_step, recording_advice
from nsys_llm.view.text import counted, format_ns, format_percent, listed, quoted

from .attribution_coverage import coverage_findings
from .phases import idle_findings, slow_step_findings

_TOP_PHASES: Final = 4
#: Ways to a range that infer, or that stand for many runs of one capture.
_WORDS: Final = {
    "start_end": "by start/end ranges, which cover the launches of all threads of the process "
    "while they are open",
    "graph_launch": "to the range around the launch of its CUDA graph, not to the ranges open "
    "during its capture (`--graph-ranges capture` prefers those)",
    "graph_capture": "to the range in which its CUDA graph node was captured, however often "
    "the graph ran since",
    "delegated": "to the range of a thread that handed the work over and waited, as in PyTorch's "
    "backward pass; the trace shows the waiting, not the handover",
}


def answer(tables: Tables) -> str:
    """Return what the phases and the parts of the model cost, in two or three sentences."""
    phases = tables["phases"]
    gpu_ns = int(phases["gpu_ns"].sum())
    if not gpu_ns:
        return (
            "No GPU operation takes time in the selection. `coverage` shows what the profiles "
            "contain, and what a filter left."
        )
    gpus_n = max(len(Walls(tables).gpus), 1)
    mapped = phases[phases["mapped"] & (phases["gpu_ns"] > 0)]
    rest = phases[~phases["mapped"] & (phases["gpu_ns"] > 0)]
    mean = ", mean GPU" if gpus_n > 1 else ""
    shares = [
        f"{quoted(row['phase'])} {format_percent(row['gpu_pct'])} "
        f"({format_ns(row['gpu_ns'] / gpus_n)}{mean if at == 0 else ''})"
        for at, row in enumerate(records(mapped.head(_TOP_PHASES)))
    ]
    lost = [
        f"{format_percent(row['gpu_pct'])} is {row['meaning']}"
        for row in records(rest.sort_values("gpu_ns", ascending=False))
    ]
    if shares:
        first = f"Of the GPU time: {listed(shares)}"
        first += f"; {'; '.join(lost)}." if lost else "; none is without a phase."
    else:
        first = f"No phase is marked: {'; '.join(lost)}."
    return " ".join(filter(None, (first, _parts(tables), _steps(tables))))


def _parts(tables: Tables) -> str:
    """Return the parts of the model with most kernel time; empty where none is known."""
    parts = tables["model_parts"]
    whole_ns = int(parts["total_ns"].sum())
    sums = parts.groupby("model_part")["total_ns"].sum().sort_values(ascending=False, kind="stable")
    if sums.empty:
        return ""
    named = [
        f"{quoted(part)} {format_percent(100.0 * ns / whole_ns)}"
        for part, ns in sums.head(_TOP_PHASES).items()
    ]
    return f"Most of the kernel time by part of the model: {listed(named)}."


def findings(tables: Tables) -> list[Finding]:
    """Return all findings of the recipe, in no order."""
    of_phases = (*rank_findings(tables), *idle_findings(tables), *slow_step_findings(tables))
    return [*of_phases, *coverage_findings(tables)]


def _steps(tables: Tables) -> str:
    """Return a sentence on steps, or on the ranges with most GPU time if there are none."""
    stats = tables["step_stats"]
    ranks = tables["rank_steps"][tables["rank_steps"]["name"].notna()]
    steady = stats[stats["which"] == "steady"]
    host = steady[(steady["measure"] == "host") & steady["phase"].notna()]
    if len(host):
        row = host.loc[host["steps_n"].idxmax()]
        of_phase = steady[steady["phase"] == row["phase"]].set_index("measure")
        gpu, span = of_phase.loc["gpu"], of_phase.loc["span"]
        kind = f" of {quoted(row['phase'])}" if len(host) > 1 else ""
        first = ranks[ranks["counted"]].iloc[0]
        several = f" on {len(ranks)} ranks" if len(ranks) > 1 else ""
        return (
            f"A {first['unit']}{kind} ({quoted(first['name'])}, "
            f"{counted(int(row['steps_n']), first['unit'])}{several}) takes "
            f"{format_ns(span['p50_ns'])} from its first to its last operation in the median and "
            f"{format_ns(span['p99_ns'])} at p99, with {format_ns(gpu['p50_ns'])} of GPU time."
        )
    ranges = tables["ranges"]
    top = ranges[ranges["self_ns"] > 0].head(_TOP_PHASES)
    if top.empty:
        return "No operation was launched inside a range, so no phase can be distinguished."
    named = [f"{quoted(row['label'])} {format_percent(row['self_pct'])}" for row in records(top)]
    return f"The ranges with most self time are {listed(named)}."


def caveats(tables: Tables) -> list[str]:
    """Return what to know before reading the numbers, as prose."""
    of_ranges = (*_methods(tables), *_part_notes(tables), *_open_ranges(tables))
    return [*of_ranges, *_no_steps(tables), *_engine_steps(tables)]


def headline(tables: Tables) -> list[str]:
    """Return how many kernels of graphs the annotations fit; nothing without any."""
    marks = tables["marks"]
    rows = marks[marks["annotation_key"].notna() & (marks["contradicted_n"] == 0)]
    if rows.empty:
        return []
    share = 100.0 * int(rows["annotated_n"].sum()) / int(rows["graph_kernels_n"].sum())
    keys = listed(sorted(set(rows["annotation_key"])))
    return [f"annotations: of {format_percent(share)} of the kernels in CUDA graphs, by {keys}"]


def _part_notes(tables: Tables) -> list[str]:
    """Say how many kernels of graphs the annotations fit, and what is inferred of their parts."""
    parts = tables["model_parts"]
    lines = [f"{line[0].upper()}{line[1:]}." for line in headline(tables)]
    inferred = parts[parts["found_by"] == "eager_run"]
    if len(inferred):
        share = format_percent(100.0 * inferred["total_ns"].sum() / parts["total_ns"].sum())
        lines.append(
            f"The part of the model of {share} of the kernel time is inferred: the same kernels "
            "have it where they run outside of CUDA graphs."
        )
    return lines


def _methods(tables: Tables) -> list[str]:
    rows = tables["attribution"]
    total_ns = int(rows["gpu_ns"].sum())
    times = {part: int(rows.loc[rows["part"] == part, "gpu_ns"].sum()) for part in _WORDS}
    return [
        f"{format_percent(100.0 * own_ns / total_ns)} of the GPU time ({format_ns(own_ns)}) was "
        f"attributed {_WORDS[part]}."
        for part, own_ns in times.items()
        if own_ns
    ]


def _open_ranges(tables: Tables) -> list[str]:
    without_end_n = int(tables["marks"]["without_end_n"].sum())
    if not without_end_n:
        return []
    few = without_end_n == 1
    return [
        f"{counted(without_end_n, 'range')} {'was' if few else 'were'} never closed, and "
        f"{'lasts' if few else 'last'} to the end of the GPU work here."
    ]


def _no_steps(tables: Tables) -> list[str]:
    marks, ranks = tables["marks"], tables["rank_steps"]
    if not (marks["push_pop_n"] + marks["start_end_n"]).sum():
        return []
    without_n = int(ranks["name"].isna().sum())
    if without_n == len(ranks):
        return [
            "No steps were found: no range is an engine's, or repeats and holds at least half of "
            f"the launched GPU time. Name one with {quoted('--step RANGE')}."
        ]
    names = sorted(set(ranks["name"].dropna()))
    lines = []
    if without_n:
        lines.append(f"{counted(without_n, 'rank')} of {len(ranks)} have no steps.")
    if len(names) > 1:
        shown = ", ".join(quoted(name) for name in names[:3])
        lines.append(
            f"Ranks have different steps ({shown}). Statistics cover the most common kind; "
            "choose another with `--step`."
        )
    # A filter may leave steps without any GPU time, of which nothing has a share.
    shares = ranks["gpu_pct"].dropna()
    if len(shares) and (low := shares.min()) < 90.0:
        lines.append(
            f"Steps ({quoted(names[0])}) hold {format_percent(low)} of the GPU time on the rank "
            "with the least; the rest was launched outside them."
        )
    return lines


def _engine_steps(tables: Tables) -> list[str]:
    """Say what records the engine's own step ranges, where there are none."""
    engines = set(tables["phase_categories"]["engine"])
    advice = recording_advice(next(iter(engines))) if len(engines) == 1 else None
    if advice is None:
        return []
    (engine,), (title, record) = engines, advice
    names = [*tables["rank_steps"]["name"].dropna(), *tables["ranges"]["name"]]
    if any(is_engine_step(name, engine) for name in names):
        return []
    return [f"The kernels belong to {title}, but its own step ranges are absent. {record}."]
