"""The package in Python: run a recipe, or load a result, and look at its tables."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pandas as pd

from nsys_llm import __version__
from nsys_llm.core.console import Console
from nsys_llm.core.errors import OutputError, UsageError
from nsys_llm.manifest.manifest import Manifest, load_manifest
from nsys_llm.manifest.options import parsed_option, resolved_options
from nsys_llm.report.part import PARTS_FOLDER
from nsys_llm.report.run_record import FORMAT, REPORT_NAME
from nsys_llm.run.executors import MODES, open_executor
from nsys_llm.run.parts import COMPARED
from nsys_llm.run.runner import run_recipe
from nsys_llm.view.results import Results

#: Names of tables are names of files.
_NAME: Final = re.compile(r"[a-z0-9_]+")
#: Of report.json; runs over 2,000 ranks write some MB.
_MOST_BYTES: Final = 256 << 20
#: What is shown of findings.
_FINDING: Final = frozenset(
    {"title", "kind", "severity", "details", "recommendation", "evidence"}
    | {"gain_pct", "gain_step_ns", "gain_ns", "rank"}
)


class Tables(Mapping[str, pd.DataFrame]):
    """The tables of a result by name, read when they are asked for.

    Times are ns, sizes bytes, shares percent (0 to 100); null is pandas' NA.
    """

    def __init__(self, results: Results, listed: Mapping[str, Any]) -> None:
        self._results = results
        self._listed = listed

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._listed:
            raise KeyError(f"no table '{name}'; there are: {', '.join(self._listed)}")
        file = self._results.folder / f"{name}.parquet"
        try:
            # Of a table without rows there is none. A pipe would be waited for.
            if (self._listed[name]["rows"] or os.path.lexists(file)) and not file.is_file():
                raise FileNotFoundError(file)
            return self._results.table(name)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            # Arrow's errors are among them.
            raise OutputError(f"{file}: missing or damaged; run the recipe again.") from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)


def _record(folder: Path) -> dict[str, Any]:
    """Return report.json of a result, whoever made it.

    Raises:
        OutputError: There is none, it is damaged, or a later version wrote it.
    """
    file = folder / REPORT_NAME
    try:
        if not file.is_file() or file.stat().st_size > _MOST_BYTES:
            raise ValueError("no regular file of a usual size")
        record = json.loads(file.read_text("utf-8"))
        if isinstance(record["format"], int) and record["format"] > FORMAT:
            raise OutputError(
                f"{folder}: written by a later version of nsys-llm-recipes "
                f"({str(record.get('version'))[:20]}); this is {__version__}."
            )
        _require_shape(record)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise OutputError(
            f"{folder}: no result of a recipe ({REPORT_NAME} is missing or damaged); give the "
            "output folder of a run."
        ) from error
    return dict(record)


def _require_shape(record: Any) -> None:
    """Refuse a record whose fields are not those of a run, as far as anything here reads them.

    Raises:
        ValueError: They are not.
        KeyError: One is missing.
        TypeError: One is something else.
        AttributeError: Likewise.
    """
    load_manifest(record["recipe"])
    reported = record["report"]
    shaped = [
        record["format"] == FORMAT,
        isinstance(reported["answer"], str),
        all(isinstance(item, dict) for item in reported["findings"]),
        all(_NAME.fullmatch(name) for name in record["tables"]),
        all(isinstance(table["rows"], int) for table in record["tables"].values()),
        all("columns" in table for table in record["tables"].values() if not table["rows"]),
        all("reason" in table for table in record["tables"].values()),
        all(finding.keys() >= _FINDING for finding in reported["findings"]),
        all(isinstance(finding["title"], str) for finding in reported["findings"]),
    ]
    if not all(shaped):
        raise ValueError("fields of another type")


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
            whole: The overview that it is a part of, which is kept as long as this.

        Raises:
            OutputError: There is no result.
        """
        self.folder = folder
        self._whole = whole
        self.report = _record(folder)
        self.results = Results(folder)
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
        inputs: Profiles and folders of profiles, as `--input` takes them.
        output: Folder for the results; None: a temporary one, which lives as long as the result.
        options: The recipe's options by name: `filter_time="1s/2s"`, `top=20`. Text is read as the
            command line reads it.

    Raises:
        NsysLlmError: As the command would end, with the same message.
    """
    manifest = load_manifest(recipe)
    known = {option.name: option for option in manifest.options}
    if odd := sorted(options.keys() - known.keys()):
        raise UsageError(f"{recipe} has no option '{odd[0]}'; it has: {', '.join(sorted(known))}.")
    if mode not in MODES:
        raise UsageError(f"argument --mode: invalid choice: {mode!r} (choose from {MODES}).")
    given = {name: parsed_option(known[name], value) for name, value in options.items()}
    given["input"] = parsed_option(known["input"], [] if inputs is None else inputs)
    scratch = None
    if output is None:
        scratch = tempfile.mkdtemp(prefix="nsys-llm-")
        output = Path(scratch) / recipe
    try:
        given["output"] = str(parsed_option(known["output"], output)).replace("%", "%%")
        return _analyzed(manifest, given, mode, scratch)
    except BaseException:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
        raise


def _analyzed(
    manifest: Manifest, given: Mapping[str, Any], mode: str, scratch: str | None
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
    return Result(Path(folder))
