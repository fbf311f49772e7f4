"""Tables of nvtx_phase_attribution without writing them: a whole run takes ten times as long."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from nsys_llm.identity import RankEntry, number_ranks
from nsys_llm.inputs import expand_inputs
from nsys_llm.manifest import load_manifest
from nsys_llm.options import add_options, resolved_options
from nsys_llm.recipe_module import load_analysis
from nsys_llm.run_record import run_tables
from nsys_llm.worker import map_reports

RECIPE = "nvtx_phase_attribution"


def resolved(*words: str) -> dict[str, Any]:
    """Return all options of the recipe."""
    parser = argparse.ArgumentParser()
    add_options(parser, load_manifest(RECIPE))
    return resolved_options(load_manifest(RECIPE), vars(parser.parse_args([*words])))


def quick(*words: str | Path) -> dict[str, Any]:
    """Return the tables of a run by its command line: reports, and options.

    A report is any word that does not belong to an option; `--input` need not be written.
    """
    reports = [str(word) for word in words if isinstance(word, Path)]
    options = resolved("--input", *reports, *(word for word in words if isinstance(word, str)))
    inputs, _ = expand_inputs(options["input"])
    result = map_reports(inputs, recipe=RECIPE, options=options)
    assert all(report.reason is None for report in result.reports), result.reports
    entries = [
        RankEntry(rank.key, report.label, report.facts, True)
        for report in result.reports
        for rank in report.ranks
    ]
    ranks = number_ranks(entries, None)
    tables = load_analysis(RECIPE).tabulate(result.partial, ranks, options)
    return {**tables, **run_tables(load_manifest(RECIPE), result, ranks, options)}
