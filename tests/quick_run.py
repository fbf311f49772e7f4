"""Tables of any recipe without writing them: a whole run takes ten times as long."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.manifest.options import add_options, resolved_options
from nsys_llm.profile.inputs import expand_sides
from nsys_llm.report.report import find, findings_table
from nsys_llm.report.run_record import run_tables
from nsys_llm.run.recipe_module import load_analysis
from nsys_llm.run.worker import map_reports
from nsys_llm.trace.rank_sets import entries_by_side, number_sides


def resolved(recipe: str, *words: str) -> dict[str, Any]:
    """Return all options of a recipe."""
    parser = argparse.ArgumentParser()
    add_options(parser, load_manifest(recipe))
    return resolved_options(load_manifest(recipe), vars(parser.parse_args([*words])))


def quick(recipe: str, *words: str | Path) -> dict[str, Any]:
    """Return all tables of a run by its command line: reports, and options.

    A report is any word that is a path; `--input` need not be written.
    """
    reports = [str(word) for word in words if isinstance(word, Path)]
    flags = [word for word in words if isinstance(word, str)]
    options = resolved(recipe, "--input", *reports, *flags)
    inputs, _ = expand_sides(entries_by_side(options))
    result = map_reports(inputs, recipe=recipe, options=options)
    assert all(report.reason is None for report in result.reports), result.reports
    ranks = number_sides(result, {})
    manifest = load_manifest(recipe)
    tables = {
        **load_analysis(recipe).tabulate(result.partial, ranks, options),
        **run_tables(manifest, result, ranks, options),
    }
    return {
        **tables,
        "findings": findings_table(manifest, find(load_analysis(manifest.name), tables)),
    }
