"""Makes the tables of trace_diff out of the merged partial, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from nsys_llm.manifest.gates import parse_gates
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.report.columns import Columns
from nsys_llm.report.outputs import declared_frame
from nsys_llm.taxonomy.categories import Classification, detect_engine, load_rules
from nsys_llm.trace.identity import Rank

from ..partials import DiffPartial
from .charts import duration_columns, waterfall_columns
from .checks import BLOCKING
from .collectives import collective_columns, sum_collectives
from .comparability import comparability_columns
from .kernels import config_columns, kernel_columns, named_kernels
from .metrics import Measures, gate_columns, metric_columns
from .ranks import rank_columns, rank_kernel_columns
from .runs import Runs, runs_of
from .sums import (
    api_columns,
    category_columns,
    idle_columns,
    memop_columns,
    phase_columns,
    run_columns,
)

_RECIPE: Final = "trace_diff"
#: Category of a shown name that stands for full names of different categories.
_MIXED: Final = "mixed"


def tabulate(
    partial: DiffPartial, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> dict[str, pd.DataFrame]:
    """Make the recipe's tables, as manifests/trace_diff.json declares them.

    Args:
        partial: Of all sides.
        ranks: All that was numbered, without GPU work or not.
        options: By name.
    """
    manifest = load_manifest(_RECIPE)
    runs = runs_of(partial, ranks)
    columns = _columns(runs, options)
    return {name: declared_frame(manifest.table(name), one) for name, one in columns.items()}


def _columns(runs: Runs, options: Mapping[str, Any]) -> dict[str, Columns]:
    classes = _classes(runs, options["engine"])
    kernels = named_kernels(runs, classes, options)
    collectives = {run.side: sum_collectives(run, options) for run in runs.all}
    comparability = comparability_columns(runs, options)
    measures = Measures(runs, collectives, classes, _blocked(comparability))
    metrics = load_manifest(_RECIPE).metrics
    rank_kernels = rank_kernel_columns(runs, classes)
    talks = dict(zip(kernels.names, kernels.communication.tolist(), strict=True))
    by_name = kernel_columns(kernels, runs)
    return {
        "comparability": comparability,
        "runs": run_columns(runs),
        "metrics": metric_columns(measures, metrics),
        "gates": gate_columns(measures, parse_gates(options["gate"], metrics), metrics),
        "kernels": by_name,
        "configs": config_columns(runs, options),
        "categories": category_columns(kernels),
        "memops": memop_columns(runs),
        "apis": api_columns(runs),
        "phases": phase_columns(runs),
        "ranks": rank_columns(runs, rank_kernels, talks),
        "rank_kernels": rank_kernels,
        "idle": idle_columns(runs),
        "collectives": collective_columns(runs, collectives),
        "durations": duration_columns(kernels),
        "waterfall": waterfall_columns(by_name),
    }


def _blocked(comparability: Columns) -> dict[str, list[str]]:
    """Return the checks that make all, sums over the runs, or times per step not comparable."""
    rows = list(zip(comparability["check"], comparability["status"], strict=True))
    return {status: [check for check, own in rows if own == status] for status in BLOCKING}


def _classes(runs: Runs, engine: str) -> dict[str, Classification]:
    """Return what each shown name says; mixed where its full names differ."""
    pairs = sorted({key[:2] for run in runs.all for key in run.part.keys})
    if engine == "auto":
        engine = detect_engine(full for _, full in pairs)
    rules = load_rules(engine)
    classes: dict[str, Classification] = {}
    for shown, full in pairs:
        here = rules.classify(full)
        before = classes.setdefault(shown, here)
        if before != here:
            same = before.category == here.category
            classes[shown] = Classification(before.category if same else _MIXED, None, None, ())
    return classes
