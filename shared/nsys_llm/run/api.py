"""The package in Python: run a recipe, or load a result, and look at its tables."""

from __future__ import annotations

import json
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
from nsys_llm.core.open_files import OutOfFilesTold
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.manifest.options import parsed_option, resolved_options
from nsys_llm.report.part import PARTS_FOLDER
from nsys_llm.report.run_record import REPORT_NAME
from nsys_llm.run.executors import MODES, open_executor
from nsys_llm.run.parts import COMPARED
from nsys_llm.run.runner import run_recipe
from nsys_llm.view.results import Results


class Tables(Mapping[str, pd.DataFrame]):
    """The tables of a result by name, read when they are asked for.

    Times are ns, sizes bytes, shares percent (0 to 100); null is pandas' NA.
    """

    def __init__(self, results: Results, names: Sequence[str]) -> None:
        self._results = results
        self._names = tuple(names)

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._names:
            raise KeyError(f"no table '{name}'; there are: {', '.join(self._names)}")
        return self._results.table(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


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

    def __init__(self, folder: Path, whole: Result | None = None) -> None:
        """Read report.json.

        Args:
            folder: With results of ours.
            whole: The overview that it is a part of, which is kept as long as this.

        Raises:
            OutputError: There is no result.
        """
        self.folder = folder
        self._whole = whole
        try:
            text = (folder / REPORT_NAME).read_text("utf-8")
            self.report: dict[str, Any] = json.loads(text)
            names = list(self.report["tables"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise OutputError(
                f"{folder}: no result of a recipe ({REPORT_NAME} is missing or damaged); give the "
                "output folder of a run."
            ) from error
        self.results = Results(folder)
        self.tables = Tables(self.results, names)

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
        """Of an overview, the result of each recipe by its name; empty for others."""
        if "recipes" not in self.tables:
            return {}
        names = self.tables["recipes"]["recipe"].tolist()
        if (self.folder / PARTS_FOLDER / COMPARED / REPORT_NAME).exists():
            names.append(COMPARED)
        return {name: Result(self.folder / PARTS_FOLDER / name, self) for name in names}

    def __repr__(self) -> str:
        return f"<nsys_llm.Result of {self.recipe} in {self.folder}>"


def analyze(
    recipe: str,
    inputs: str | Path | Sequence[str | Path],
    output: str | Path | None = None,
    *,
    mode: str = MODES[0],
    **options: Any,
) -> Result:
    """Run a recipe and return its result.

    Args:
        recipe: Its name: `llm_overview`, `idle_gaps`, ...
        inputs: Profiles and folders of profiles, as `--input` takes them.
        output: Folder for the results; None: a temporary one, which lives as long as the result.
        mode: As `--mode` takes it.
        options: The recipe's options by name: `filter_time="1s/2s"`, `top=20`. Text is read as the
            command line reads it.

    Raises:
        NsysLlmError: As the command would end, with the same message.
    """
    manifest = load_manifest(recipe)
    known = {option.name: option for option in manifest.options}
    if odd := sorted(options.keys() - known.keys()):
        raise UsageError(f"{recipe} has no option '{odd[0]}'; it has: {', '.join(sorted(known))}.")
    scratch = None
    if output is None:
        scratch = tempfile.mkdtemp(prefix="nsys-llm-")
        output = Path(scratch) / recipe
    try:
        return _analyzed(recipe, inputs, output, mode, options, scratch)
    except BaseException:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
        raise


def _analyzed(
    recipe: str,
    inputs: str | Path | Sequence[str | Path],
    output: str | Path,
    mode: str,
    options: Mapping[str, Any],
    scratch: str | None,
) -> Result:
    manifest = load_manifest(recipe)
    known = {option.name: option for option in manifest.options}
    paths = [inputs] if isinstance(inputs, (str, Path)) else list(inputs)
    given = {name: parsed_option(known[name], value) for name, value in options.items()}
    given |= {"input": [str(path) for path in paths], "output": str(output).replace("%", "%%")}
    console = Console(quiet=True)
    with OutOfFilesTold(), open_executor(mode, None, console.note) as executor:
        outcome = run_recipe(recipe, resolved_options(manifest, given), executor, console)
    if outcome.folder is None:
        raise UsageError(f"{recipe}: no profile could be read.")
    result = Result(outcome.folder)
    if scratch is not None:
        weakref.finalize(result, shutil.rmtree, scratch, ignore_errors=True)
    return result


def load(folder: str | Path) -> Result:
    """Return a result that was written before.

    Raises:
        OutputError: There is none.
    """
    return Result(Path(folder))
