"""Tables of any recipe without writing them: a whole run takes ten times as long."""

from __future__ import annotations

import argparse
from collections import UserDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.timeline.step_lanes import KeptRanks
from nsys_llm.job.job_steps import with_agreed_warmup
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.manifest.options import add_options, resolved_options
from nsys_llm.profile.inputs import expand_sides
from nsys_llm.report.building import finished
from nsys_llm.report.part import Part
from nsys_llm.report.run import Run
from nsys_llm.report.run_findings import all_findings, findings_table
from nsys_llm.report.run_tables import run_tables
from nsys_llm.run.parts import overview_options
from nsys_llm.run.worker import load_analysis, map_profiles
from nsys_llm.trace.rank_sets import entries_by_side, number_sides

#: Whether findings are made of each run: at night, where conftest.py sets it, their titles are
#: checked in every world of any test; by day in those whose test looks at findings.
findings_at_once = False


def resolved(recipe: str, *words: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    add_options(parser, load_manifest(recipe))
    return resolved_options(load_manifest(recipe), vars(parser.parse_args([*words])))


class RunTables(UserDict[str, Any]):
    """All tables of a run; findings, half of its time, are made when somebody looks at them."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run
        if run.manifest.recipes:
            self._made = self.data = dict(finished(run).tables)
            return
        self._made = run_tables(run)
        self.data = {**self._made, "findings": None}
        if findings_at_once:
            self["findings"]

    def __getitem__(self, name: str) -> Any:
        if name == "findings" and self.data[name] is None:
            findings = all_findings(self._run, self._made)
            self.data[name] = findings_table(self._run.manifest, findings)
        return self.data[name]

    def __or__(self, other: Any) -> Any:
        return {**self, **other}

    def __ror__(self, other: Any) -> Any:
        return {**other, **self}


def quick(recipe: str, *words: str | Path) -> RunTables:
    """Return all tables of a run by its command line: reports, and options.

    A report is any word that is a path; `--input` need not be written.
    """
    return RunTables(quick_run(recipe, *words))


def quick_run(
    recipe: str,
    *words: str | Path,
    keep: Callable[[RankView], None] | None = None,
    kept: KeptRanks | None = None,
) -> Run:
    """Return a run by its command line.

    Args:
        recipe: Its name.
        words: As for `quick`.
        keep: See `map_profiles`.
        kept: Keeps the ranks, instead.
    """
    reports = [str(word) for word in words if isinstance(word, Path)]
    flags = [word for word in words if isinstance(word, str)]
    options = overview_options(recipe, resolved(recipe, "--input", *reports, *flags))
    inputs, _ = expand_sides(entries_by_side(options))
    if kept is not None:
        kept.expect([profile.path for profile in inputs])
        keep = kept.keep
    result, options = with_agreed_warmup(
        lambda options: map_profiles(inputs, recipe=recipe, options=options, keep=keep), options
    )
    assert all(profile.reason is None for profile in result.profiles), result.profiles
    return Run(
        manifest=load_manifest(recipe),
        analysis=load_analysis(recipe),
        options=options,
        profiles=result.profiles,
        facts=result.facts,
        ranks=tuple(number_sides(result, {})),
    )


def quick_part(recipe: str, *words: str | Path) -> Part:
    """Return the results of a run by its command line; of an overview, those of its recipes too."""
    return finished(quick_run(recipe, *words))
