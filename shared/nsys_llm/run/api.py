"""The package in Python: run a recipe, or load a result, and look at its tables."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from nsys_llm.core.console import Console
from nsys_llm.core.errors import OutputError, UsageError
from nsys_llm.core.rooted import ROOTS, Roots
from nsys_llm.manifest.manifest import Manifest, load_manifest, recipe_names
from nsys_llm.manifest.options import parsed_option, resolved_options
from nsys_llm.report.part import PARTS_FOLDER
from nsys_llm.report.run_record import REPORT_NAME
from nsys_llm.report.stored import StoredResults
from nsys_llm.run.executors import MODES, open_executor
from nsys_llm.run.parts import COMPARED
from nsys_llm.run.runner import run_recipe
from nsys_llm.view.results import Results


class Tables(Mapping[str, pd.DataFrame]):
    """The tables of a result by name, read when they are asked for.

    Times are ns, sizes bytes, shares percent (0 to 100); null is pandas' NA.
    """

    def __init__(self, results: Results, listed: Mapping[str, Any]) -> None:
        self._results = results
        self._listed = listed

    def __getitem__(self, name: str) -> pd.DataFrame:
        return self._results.table(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)


class Result:
    """A result folder.

    Attributes:
        folder: Where it stands; of a run without `output` a temporary folder, kept as long as this
            object.
        report: report.json: how the run ended, what was read, findings, facts, caveats.
        tables: The tables by name; every table that the recipe declares, also an empty one.
        parts: Of an overview, the result of each recipe by its name, and of a comparison with its
            baseline.
    """

    def __init__(self, folder: Path, whole: Result | None = None, root: Path | None = None) -> None:
        """Read report.json.

        Args:
            whole: The overview that it is a part of, which is kept as long as this.
            root: Nothing outside of it is opened; None: the folder.

        Raises:
            OutputError: There is no result.
        """
        self.folder = folder
        self._whole, self._root = whole, root or folder
        self.results = StoredResults(folder, self._root)
        self.report = self.results.record()
        self.tables = Tables(self.results, self.report["tables"])

    @property
    def recipe(self) -> str:
        """Name of the recipe."""
        return str(self.report["recipe"])

    @property
    def answer(self) -> str:
        """The recipe's answer; names out of a trace stand in backticks."""
        return str(self.report["report"]["answer"])

    @property
    def findings(self) -> list[dict[str, Any]]:
        """Findings in the order in which to read them; fields as in the table `findings`."""
        findings: list[dict[str, Any]] = self.report["report"]["findings"]
        return findings

    @cached_property
    def parts(self) -> dict[str, Result]:
        """Of an overview, the result of each recipe by its name; empty for others.

        Raises:
            OutputError: One is missing or damaged, or of no recipe.
        """
        if "recipes" not in self.tables:
            return {}
        place, names = self.folder / PARTS_FOLDER, self.tables["recipes"]["recipe"].tolist()
        if odd := [name for name in names if name not in recipe_names()]:
            raise OutputError(f"{self.folder}: a part of no recipe ({odd[0]!r}); run it again.")
        if (place / COMPARED / REPORT_NAME).exists():
            names.append(COMPARED)
        return {name: Result(place / name, self, self._root) for name in names}

    def __repr__(self) -> str:
        return f"<nsys_llm.Result of {self.recipe} in {self.folder}>"


def analyze(
    recipe: str,
    inputs: str | Path | Sequence[str | Path] = (),
    output: str | Path | None = None,
    *,
    mode: str = MODES[0],
    **options: Any,
) -> Result:
    """Run a recipe and return its result.

    Args:
        inputs: Profiles and folders of profiles, as `--input` takes them.
        output: Folder for the results; None: a temporary one, which lives as long as the result.
        options: The recipe's options by name: `filter_time="1s/2s"`, `top=20`. Text is read as the
            command line reads it.

    Raises:
        NsysLlmError: As the command would end, with the same message.
    """
    if not isinstance(recipe, str):
        raise UsageError(f"{recipe!r} is no name of a recipe.")
    manifest = load_manifest(recipe)
    given = _given(manifest, inputs, options)
    if mode not in MODES:
        raise UsageError(f"argument --mode: invalid choice: {mode!r} (choose from {MODES}).")
    scratch = None
    if output is None:
        scratch = tempfile.mkdtemp(prefix="nsys-llm-")
        output = Path(scratch) / recipe
    try:
        given |= _given(manifest, inputs, {"output": output})
        given["output"] = str(given["output"]).replace("%", "%%")
        return _analyzed(manifest, given, mode, scratch)
    except BaseException:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
        raise


def analyze_within(
    roots: Roots, recipe: str, inputs: Sequence[str | Path], **options: Any
) -> Result:
    """Run a recipe into a new folder in the first of some folders, outside of which none is read.

    Raises:
        NsysLlmError: As `analyze`.
    """
    manifest = load_manifest(recipe)
    first = str(roots.folders[0]).replace("%", "%%")
    given = _given(manifest, inputs, options)
    return _analyzed(manifest, given | {"output": f"{first}/{recipe}-%n", ROOTS: roots}, MODES[0])


def _given(manifest: Manifest, inputs: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as the command line would give them."""
    known = {option.name: option for option in manifest.options}
    if odd := sorted(options.keys() - known.keys()):
        names = ", ".join(sorted(known))
        raise UsageError(f"{manifest.name} has no option '{odd[0]}'; it has: {names}.")
    all_of_them = {**options, "input": [] if inputs is None else inputs}
    return {name: parsed_option(known[name], value) for name, value in all_of_them.items()}


def _analyzed(
    manifest: Manifest, given: Mapping[str, Any], mode: str, scratch: str | None = None
) -> Result:
    console = Console(quiet=True)
    with open_executor(mode, None) as executor:
        options = resolved_options(manifest, given)
        outcome = run_recipe(manifest.name, options, executor, console)
    if outcome.folder is None:
        raise UsageError(f"{manifest.name}: no profile could be read.")
    result = Result(outcome.folder)
    if scratch is not None:
        weakref.finalize(result, shutil.rmtree, scratch, ignore_errors=True)
    return result


def load(folder: str | Path) -> Result:
    """Return a result that was written before.

    Raises:
        OutputError: There is none.
    """
    if not isinstance(folder, (str, os.PathLike)) or not os.fspath(folder):
        raise OutputError(f"{folder!r}: no folder of a result.")
    return Result(Path(folder))
