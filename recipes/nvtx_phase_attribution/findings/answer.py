"""What nvtx_phase_attribution reports: the answer in two sentences, and findings.

Made from finished tables alone.
"""

from __future__ import annotations

from typing import Final

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Tables, records
from nsys_llm.report.walls import Walls
from nsys_llm.view.text import counted, format_ns, format_percent, listed, quoted

from .attribution_coverage import coverage_findings
from .phases import phase_findings
from .steps import slow_step_findings

_TOP_PHASES: Final = 4


def answer(tables: Tables) -> str:
    """Return what the phases and the parts of the model cost, in two or three sentences."""
    phases = tables["phases"]
    gpu_ns = int(phases["gpu_ns"].sum())
    if not gpu_ns:
        return (
            "No GPU operation takes time in the selection. `coverage` says what the profiles "
            "hold, and what a filter left of it."
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
    return [*phase_findings(tables), *slow_step_findings(tables), *coverage_findings(tables)]


def _steps(tables: Tables) -> str:
    """Return a sentence on steps, or on the ranges with most GPU time where there are none."""
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
    named = [
        f"{quoted(row['label'])} {format_percent(row['self_pct'])}"
        for row in top.to_dict("records")
    ]
    return f"The ranges with most self time are {listed(named)}."
