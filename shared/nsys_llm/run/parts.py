"""What an overview has beside its own files: a folder for each of its recipes, and a comparison."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from nsys_llm import __version__
from nsys_llm.core.console import Console
from nsys_llm.core.errors import ExitCode
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.report.part import PARTS_FOLDER, Part
from nsys_llm.report.report import Report
from nsys_llm.report.report_files import write_data, write_run
from nsys_llm.report.run_record import REPORT_NAME
from nsys_llm.run.publish import ANALYSIS_SUFFIX, names_below
from nsys_llm.trace.rank_sets import BASELINE


def overview_options(recipe: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what an overview itself is run with: it reads one run, and trace_diff compares."""
    if not load_manifest(recipe).recipes:
        return options
    return {name: value for name, value in options.items() if name != BASELINE}


#: The recipe that compares a run with its baseline.
COMPARED: Final = "trace_diff"


def with_verdict(report: Report, folder: Path) -> Report:
    """Return the report of an overview with the verdict of a comparison ahead of its answer."""
    compared = json.loads((folder / REPORT_NAME).read_text("utf-8"))["report"]
    screen = report.screen
    return replace(
        report,
        answer=f"{compared['answer']}\n{report.answer}",
        screen=None if screen is None else replace(screen, verdict=compared["answer"]),
    )


def write_parts(folder: Path, results: Part, code: ExitCode, console: Console) -> dict[str, str]:
    """Write a folder for each recipe; return these folders with their labels."""
    written: dict[str, str] = {}
    for name, part in results.parts.items():
        place = folder / PARTS_FOLDER / name
        place.mkdir(parents=True)
        what = place, part.run, part.tables, part.report, code
        _, files = (
            write_run(*what, console) if results.run.options["notebooks"] else write_data(*what)
        )
        record = {
            "RecipeName": name,
            "DisplayName": part.run.manifest.title,
            "RecipeVersion": __version__,
            "Outputs": files,
            "Files": sorted([*names_below(place), f"{name}{ANALYSIS_SUFFIX}"]),
        }
        text = json.dumps(record, indent=4)
        (place / f"{name}{ANALYSIS_SUFFIX}").write_text(text, encoding="utf-8")
        written[f"{PARTS_FOLDER}/{name}"] = part.run.manifest.title
    return written
