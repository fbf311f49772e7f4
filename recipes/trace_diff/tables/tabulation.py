"""Makes the tables of trace_diff of both runs, once."""

from __future__ import annotations

from typing import Final

from nsys_llm.manifest.gates import parse_gates
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.reduced.job import Job
from nsys_llm.report.outputs import Cells
from nsys_llm.taxonomy.categories import rules_for

from . import side_by_side, verdict_tables
from .chosen_steps import step_copies, step_kernels
from .comparability import STEP, WallsOf, compare
from .metrics import Metrics, metric_columns
from .runs import RunSums, runs_of
from .step_splits import RunSteps, run_steps
from .step_verdict import step_verdict

_RECIPE: Final = "trace_diff"


def tabulate(job: Job) -> dict[str, Cells]:
    """Return the recipe's tables by name, of all ranks."""
    runs, options = runs_of(job), job.options
    pairs = sorted({key[:2] for run in runs.all for key in run.keys})
    rules = rules_for([full for _, full in pairs], options["engine"])
    classes, category = rules.shown_classes(pairs), rules.compute_category

    def steps_of(run: RunSums, walls: WallsOf) -> RunSteps:
        return run_steps(run, runs.common, category, run.job.collectives, walls)

    comparison = compare(runs, steps_of, options)
    verdict = step_verdict(comparison, options)
    metrics = Metrics(runs, classes, comparison)
    declared = load_manifest(_RECIPE).metrics
    gates = parse_gates(options["gate"], declared)
    cells, (before, after) = comparison.cells, comparison.steps
    full = None
    if comparison.kind == STEP:
        full = step_kernels(before, runs.names, cells), step_kernels(after, runs.names, cells)
    copies = step_copies(before, cells), step_copies(after, cells)
    return {
        "verdict": [verdict_tables.verdict_row(verdict)],
        "wall_change": verdict_tables.wall_change_columns(verdict),
        "slow_steps": verdict_tables.slow_step_columns(verdict),
        "idle_ranges": verdict_tables.idle_range_columns(verdict),
        "comparability": comparison.checks,
        "runs": side_by_side.run_rows(runs),
        "metrics": metric_columns(metrics, declared),
        "gates": verdict_tables.gate_columns(metrics, gates, declared, verdict),
        "kernels": side_by_side.kernel_columns(runs, classes, comparison.unit, full, options),
        "configs": side_by_side.config_columns(runs),
        "memops": side_by_side.memop_columns(runs, copies),
        "apis": side_by_side.api_columns(runs),
        "phases": side_by_side.phase_columns(runs),
        "collectives": side_by_side.collective_columns(runs),
        "host": side_by_side.host_columns(runs, options),
    }
