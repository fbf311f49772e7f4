"""The overview's own tables, of the tables and findings of all recipes."""

from __future__ import annotations

from typing import Any

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.report.outputs import Cells, declared_rows
from nsys_llm.report.part import PARTS_FOLDER, OverviewParts, Part
from nsys_llm.report.records import grouped
from nsys_llm.report.screen import Screen
from nsys_llm.report.unprofiled import step_share

from .opportunities import all_finding_rows, grouped_findings, opportunity_rows
from .ranks import mean_step_ns, rank_rows, with_phases
from .views import gpus_of
from .when import when_rows, when_step_rows


def tabulate(results: OverviewParts) -> dict[str, Cells]:
    """Return all tables; `timeline`, which needs all others, is empty yet."""
    parts, ranks = results.parts, results.ranks
    groups = grouped_findings(parts)
    # All parts have the same walls.
    profiles = next((part.run.profiles for part in parts.values()), ())
    gpus = rank_rows(profiles, ranks)
    if phases := parts.get("nvtx_phase_attribution"):
        gpus = with_phases(gpus, phases.tables["steps"])
    table = load_manifest("llm_overview").table
    of_ranks = grouped(gpus, "group")
    steps_ns = {row["rank"]: mean_step_ns(some) for some in of_ranks.values() for row in some}
    for part in list(parts.values())[:1]:
        left = {rank: step_share(part.tables["wall"], [rank]) for rank in steps_ns}
        steps_ns = {rank: ns and ns * (left[rank] or 1.0) for rank, ns in steps_ns.items()}
    # Both are made of whole rows of findings.
    shown, every = opportunity_rows(groups, steps_ns), all_finding_rows(parts, groups)
    when = list(when_rows(parts, groups))
    lanes = gpus_of(gpus, ranks)
    return {
        "opportunities": declared_rows(table("opportunities"), shown),
        "all_findings": declared_rows(table("all_findings"), every),
        "ranks": gpus,
        "when": declared_rows(table("when"), when),
        "when_steps": declared_rows(table("when_steps"), when_step_rows(parts, when, lanes)),
        "recipes": [_recipe_row(name, part) for name, part in parts.items()],
        "timeline": [],
    }


def _recipe_row(name: str, part: Part) -> dict[str, Any]:
    manifest, analysis = part.run.manifest, part.run.analysis
    screen = (analysis.screen and analysis.screen(part.tables)) or Screen()
    return {
        "recipe": name,
        "question": manifest.question,
        "answer": part.report.answer,
        "headline": "\n".join(screen.lines) or None,
        "kernels_bound": screen.kernels_bound,
        "findings_n": len(part.report.opportunities),
        "remarks_n": len(part.report.remarks),
        "folder": f"{PARTS_FOLDER}/{name}",
    }
