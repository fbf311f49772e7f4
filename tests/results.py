"""Reading what a run wrote, and comparing two runs column by column, bit for bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from quick_run import quick

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.report.outputs import declared_frame, write_tables
from nsys_llm.run.cli import main

RECIPE = "llm_hotspots"

#: What stands first in PYTHONPATH of children: conftest.py has them draw nothing.
paths_of_children: tuple[str, ...] = ()


def idle_by_cause(tables: Mapping[str, pd.DataFrame], column: str = "idle_ns") -> dict[str, int]:
    """Return a column of rank_causes of idle_gaps over all GPUs and lengths of gaps, by cause."""
    causes = tables["rank_causes"]
    causes = causes[causes["cause"] != "profiler_overhead"]
    return causes.groupby("cause")[column].sum().to_dict()


#: Where `NSYS_RECIPE_PATH` points in a checkout.
RECIPES_FOLDER = Path(__file__).parents[1] / "recipes"

#: Columns that name a rank or say how it was numbered; another layout of the same ranks may differ
#: in these.
LABELS = frozenset({"File", "file", "Min File", "Max File", "rank_source"})


def read_results(folder: Path) -> dict[str, pa.Table]:
    """Return every table of an output folder as it was written, types and null flags included."""
    written = {file.stem: pq.read_table(file) for file in _tables_in(folder)}
    return {**written, **{name: pa.table(frame) for name, frame in _empty(folder).items()}}


def read_frames(folder: Path) -> dict[str, pd.DataFrame]:
    return {file.stem: pd.read_parquet(file) for file in _tables_in(folder)} | _empty(folder)


def _tables_in(folder: Path) -> list[Path]:
    files = sorted(folder.glob("*.parquet"))
    assert files, f"{folder} holds no tables: no two of them would differ"
    return files


def _empty(folder: Path) -> dict[str, pd.DataFrame]:
    """Return the tables without rows, of which a run writes no file; NVIDIA's recipes write all."""
    if not (folder / "report.json").exists():
        return {}
    record = read_report(folder)
    return {
        table.file: declared_frame(table, {column.name: [] for column in table.columns})
        for table in load_manifest(record["recipe"]).writes
        if not record["tables"][table.file]["rows"]
    }


def read_report(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "report.json").read_text("utf-8"))


def differences(
    left: Mapping[str, pa.Table], right: Mapping[str, pa.Table], but: Collection[str] = ()
) -> list[str]:
    """Return one line for each table or column in which two results differ; bits, not tolerances.

    Args:
        left: As `read_results` gives it.
        right: Likewise.
        but: Names of columns that may differ.
    """
    lines = [f"{name}: in one of the two only" for name in sorted(left.keys() ^ right.keys())]
    for name in sorted(left.keys() & right.keys()):
        left_table, right_table = left[name], right[name]
        if left_table.column_names != right_table.column_names:
            lines.append(
                f"{name}: columns {left_table.column_names} and {right_table.column_names}"
            )
            continue
        for field in left_table.schema:
            same_field = field.equals(right_table.schema.field(field.name), check_metadata=True)
            same = same_field and left_table[field.name].equals(right_table[field.name])
            if not same and field.name not in but:
                lines.append(
                    f"{name}.{field.name}: {left_table[field.name]} and {right_table[field.name]}"
                )
    return lines


def assert_same(
    left: Path, right: Path, *, but: Collection[str] = (), recipe: str = RECIPE
) -> None:
    """Fail unless two output folders hold the full set of tables, equal but for some columns."""
    left_tables, right_tables = read_results(left), read_results(right)
    assert set(left_tables) == {table.file for table in load_manifest(recipe).writes}
    assert not (lines := differences(left_tables, right_tables, but)), "\n".join(lines)


def analyse(
    output: Path, *inputs: Path | str, options: Iterable[str] = (), recipe: str = RECIPE
) -> Path:
    """Run the standalone command in this process, in one thread unless `options` say otherwise."""
    words = ["--output", str(output), "--mode", "none", "--quiet", *options, "--input"]
    assert main([recipe, *words, *map(str, inputs)]) == 0
    return output


#: What only a whole run obeys; a run for its tables is three times as fast.
_OF_WHOLE_RUNS = {"--csv", "--rank-map", "--ranks", "--world-size", "--allow-missing-ranks"}


def tables_of(
    output: Path,
    *inputs: Path | str,
    options: Sequence[str] = (),
    recipe: str = RECIPE,
    whole: bool = False,
) -> dict[str, Any]:
    """Return the tables of one run as data frames; to write and read them takes as long again.

    Args:
        output: A new folder, for a whole run.
        inputs: Profiles, or folders of them.
        options: Words of the command line.
        recipe: Its name.
        whole: Write all that a run writes: report.json, report.md and the notebook, too.
    """
    if whole or _OF_WHOLE_RUNS & set(options):
        return read_frames(analyse(output, *inputs, options=options, recipe=recipe))
    return quick(recipe, *map(Path, inputs), *options)


def only_tables(
    output: Path, *inputs: Path | str, options: Iterable[str] = (), recipe: str = RECIPE
) -> Path:
    """Write the tables of one run and nothing else; return the folder, for `assert_same`."""
    output.mkdir(parents=True)
    tables = quick(recipe, *map(Path, inputs), *options)
    write_tables(output, load_manifest(recipe), tables, csv=False)
    listed = {name: {"rows": len(table)} for name, table in tables.items()}
    record = json.dumps({"recipe": recipe, "tables": listed})
    (output / "report.json").write_text(record, "utf-8")
    return output


def plain(frame: pd.DataFrame) -> dict[str, list[Any]]:
    """Return a table as lists by column, index included, with None for null."""
    if frame.index.name:
        frame = frame.reset_index()
    return {name: _plain(frame[name]) for name in frame.columns}


def _plain(column: pd.Series) -> list[Any]:
    cells = zip(column.tolist(), column.isna().tolist(), strict=True)
    return [None if none else cell for cell, none in cells]


def rows(frame: pd.DataFrame, columns: str) -> list[tuple[Any, ...]]:
    """Return some columns, named with blanks between, as a list of rows."""
    cells = plain(frame)
    return list(zip(*(cells[name] for name in columns.split()), strict=True))


#: The columns that durations alone decide, in our tables and in NVIDIA's.
OF_RANK = "mean_ns min_ns p50_ns p99_ns max_ns"
OURS = f"{OF_RANK} q1_ns q3_ns"
NVIDIA = "Avg StdDev Min Q1 Med Q3 Max"
_PERCENTS = {"q1": 25, "p50": 50, "med": 50, "q3": 75, "p90": 90, "p95": 95, "p99": 99}


def spread(*launches: list[int], form: str = OURS) -> dict[str, list[Any]]:
    """Return what numpy says of durations, by column; each argument is one row's durations."""
    return {name: [_statistic(name, row) for row in launches] for name in form.split()}


def _statistic(name: str, durations: list[int]) -> Any:
    kind = name.lower().removesuffix("_ns")
    if kind.startswith("std"):
        return pytest.approx(np.std(durations, ddof=1), rel=1e-14) if len(durations) > 1 else None
    if kind in _PERCENTS:
        return pytest.approx(np.percentile(durations, _PERCENTS[kind]), rel=1e-14)
    return pytest.approx({"mean": np.mean, "avg": np.mean, "min": min, "max": max}[kind](durations))


def environment(**changes: str) -> dict[str, str]:
    """Return the environment of a child: this Python first on PATH, and no Dask or nsys settings.

    `tests/mutants` names the folder with the copy of this package that is tested.

    Args:
        changes: Variables to set besides.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DASK_", "NSYS_")) and name not in ("PYTHONPATH", "PYTHONWARNINGS")
    }
    kept["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])
    paths = [*paths_of_children, *filter(None, [kept.get("TESTED_COPY")])]
    return {**kept, **({"PYTHONPATH": os.pathsep.join(paths)} if paths else {}), **changes}


def run(
    command: Iterable[str | Path], cwd: Path, timeout_s: float = 90, **changes: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with both outputs in `stdout`."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment(**changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def under_nsys(
    nsys: str, cwd: Path, *words: str | Path, recipe: str = RECIPE, **changes: str
) -> subprocess.CompletedProcess[str]:
    where = {"NSYS_RECIPE_PATH": str(RECIPES_FOLDER), **changes}
    return run([nsys, "recipe", recipe, *words], cwd, **where)


@contextmanager
def background(
    command: Iterable[str | Path], cwd: Path, **changes: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command beside the block; it and its children end with the block."""
    with (cwd / "background.log").open("ab") as log:
        child = subprocess.Popen(
            [str(word) for word in command],
            cwd=cwd,
            env=environment(**changes),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield child
    finally:
        # Its own group: the block may have failed, and no process may outlive the test.
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGTERM)
        try:
            child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait(timeout=10)


def wait_until(path: Path, process: subprocess.Popen[Any]) -> None:
    limit_s = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < limit_s
        assert process.poll() is None
        time.sleep(0.05)


def demo_inputs(folder: Path, recipe: str) -> list[Path]:
    """Return what of the demo set in a folder a recipe looks at: one run, or both to compare."""
    runs = ("baseline", "after") if recipe == "trace_diff" else ("baseline",)
    return [folder / name for name in runs]
