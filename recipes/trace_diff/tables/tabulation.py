"""Makes the tables of trace_diff out of the merged partial, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pandas as pd

from nsys_llm.manifest.gates import parse_gates
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.report.columns import Columns
from nsys_llm.report.outputs import declared_frame
from nsys_llm.taxonomy.categories import (
    UNMATCHED,
    Classification,
    RuleSet,
    detect_engine,
    load_rules,
)
from nsys_llm.taxonomy.communication import COMMUNICATION
from nsys_llm.trace.identity import Rank

from ..partials import DiffPartial
from .chosen_steps import composition_columns
from .collectives import collective_columns, matched, sum_collectives
from .comparability import STEP, WallsOf, compare
from .kernels import config_columns, kernel_columns, named_kernels
from .metrics import Metrics, gate_columns, metric_columns
from .runs import Runs, RunSums, runs_of
from .step_kernels import step_copies, step_kernels
from .step_splits import RunSteps, run_steps
from .step_verdict import step_verdict
from .sums import (
    api_columns,
    category_columns,
    idle_columns,
    memop_columns,
    phase_columns,
    rank_columns,
    rank_kernel_columns,
    run_columns,
)
from .wall_change import (
    host_columns,
    idle_range_columns,
    slow_step_columns,
    verdict_columns,
    wall_change_columns,
    waterfall_columns,
)

_RECIPE: Final = "trace_diff"
#: Category of a shown name that stands for full names of different categories.
_MIXED: Final = "mixed"


def tabulate(
    partial: DiffPartial, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> dict[str, pd.DataFrame]:
    """Make the recipe's tables, as manifests/trace_diff.json declares them, of all ranks."""
    manifest = load_manifest(_RECIPE)
    runs = runs_of(partial, ranks)
    columns = _columns(runs, options)
    return {name: declared_frame(manifest.table(name), table) for name, table in columns.items()}


def _columns(runs: Runs, options: Mapping[str, Any]) -> dict[str, Columns]:
    rules = _rules(runs, options["engine"])
    classes = _classes(runs, rules)
    kernels = named_kernels(runs, classes)
    met = {
        run.side: matched(run.part, [rank for rank, _ in run.ranks], options) for run in runs.all
    }
    collectives = {run.side: sum_collectives(run, met[run.side]) for run in runs.all}
    category = _category_of(rules)

    def steps_of(run: RunSums, walls: WallsOf) -> RunSteps:
        return run_steps(run, runs.common, category, met[run.side], walls)

    comparison = compare(runs, steps_of, options)
    verdict = step_verdict(comparison, options)
    metrics, declared = (
        Metrics(runs, collectives, classes, comparison),
        load_manifest(_RECIPE).metrics,
    )
    rank_kernels = rank_kernel_columns(runs, classes)
    changes = wall_change_columns(verdict)
    talks = dict(zip(kernels.names, kernels.communication.tolist(), strict=True))
    full = None
    if comparison.kind == STEP:
        first, second = comparison.steps
        full = (
            step_kernels(first, kernels.names, comparison.cells),
            step_kernels(second, kernels.names, comparison.cells),
        )
    return {
        "verdict": verdict_columns(verdict),
        "wall_change": changes,
        "slow_steps": slow_step_columns(verdict),
        "idle_ranges": idle_range_columns(verdict),
        "composition": composition_columns(comparison.steps),
        "comparability": {
            name: [check[name] for check in comparison.checks] for name in comparison.checks[0]
        },
        "runs": run_columns(runs),
        "metrics": metric_columns(metrics, declared),
        "gates": gate_columns(metrics, parse_gates(options["gate"], declared), declared),
        "kernels": kernel_columns(kernels, runs, comparison.unit, full, options),
        "configs": config_columns(runs, options),
        "categories": category_columns(kernels),
        "memops": memop_columns(
            runs, [step_copies(some, comparison.cells) for some in comparison.steps]
        ),
        "apis": api_columns(runs),
        "phases": phase_columns(runs),
        "ranks": rank_columns(runs, rank_kernels, talks),
        "rank_kernels": rank_kernels,
        "idle": idle_columns(runs),
        "collectives": collective_columns(runs, collectives),
        "host": host_columns(runs, options),
        "waterfall": waterfall_columns(verdict, changes),
    }


def _rules(runs: Runs, engine: str) -> RuleSet:
    """Return the rules for kernel categories, by the full names of both runs."""
    if engine == "auto":
        engine = detect_engine(sorted({key[1] for run in runs.all for key in run.part.keys}))
    return load_rules(engine)


def _category_of(rules: RuleSet) -> Callable[[str], str]:
    """Return what gives the category of a kernel that computes, by its full name."""

    def category(name: str) -> str:
        kind = rules.classify(name).category
        # Whether a kernel communicates is told alike by the rules of all engines.
        return UNMATCHED if kind == COMMUNICATION else kind

    return category


def _classes(runs: Runs, rules: RuleSet) -> dict[str, Classification]:
    """Return what each shown name says; mixed where its full names differ."""
    pairs = sorted({key[:2] for run in runs.all for key in run.part.keys})
    classes: dict[str, Classification] = {}
    for shown, full in pairs:
        here = rules.classify(full)
        before = classes.setdefault(shown, here)
        if before != here:
            same = before.category == here.category
            classes[shown] = Classification(before.category if same else _MIXED, None, None, ())
    return classes
