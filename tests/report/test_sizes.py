"""Notebooks stay small however many ranks there are, 3 MB for 64, 10 MB for 1,024; pages 3 MB."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from effort import nightly_but
from report_maker import FINDING, made_report

from nsys_llm.manifest.manifest import load_manifest, recipe_names
from nsys_llm.report.report_files import write_report
from nsys_llm.testing.demo import RANKS
from nsys_llm.view.results import Results
from nsys_llm.view.text import quoted

pytestmark = pytest.mark.drawn

MB = 1_000_000
LIMITS = {64: 3 * MB, 1024: 10 * MB}

#: Its rows do not grow with the ranks: what is drawn of each is less (see `test_timeline`).
BOUNDED = "timeline"

#: Columns that say which rank a row is of.
NUMBERS, LABELS = {"rank", "Rank"}, {"file", "File"}


class Silent:
    """A console that nobody reads."""

    def warn(self, text: str) -> None:
        raise AssertionError(text)


def multiplied(table: pa.Table, ranks_n: int) -> pa.Table:
    """Return a table of the demo set as one of many ranks; what is not by rank stays as it is."""
    frame = table.to_pandas(ignore_metadata=True, types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    number = next((name for name in frame if name in NUMBERS), None)
    if number is None or frame[number].isna().any() or frame[number].nunique() < RANKS:
        return table
    copies_n = ranks_n // RANKS
    whole = pd.concat([frame] * copies_n, ignore_index=True)
    ranks = whole[number].to_numpy(dtype=np.int64)
    ranks += np.repeat(np.arange(copies_n) * RANKS, len(frame))
    noise = np.random.default_rng(1).normal(1, 0.01, len(whole))
    for name in whole:
        if name in NUMBERS:
            whole[name] = ranks
        elif name in LABELS:
            whole[name] = [f"{rank:04}:rank{rank}" for rank in ranks.tolist()]
        elif name.endswith(("_ns", "_n")):
            # No two ranks are the same to the last figure.
            whole[name] = (whole[name].astype("Float64") * noise).round()
    return pa.Table.from_pandas(whole, schema=table.schema, preserve_index=False, safe=False)


def widened(source, target, ranks_n):
    """Copy a result with its tables by rank made those of many ranks."""
    target.mkdir()
    rows_n = 0
    for path in sorted(source.glob("*.parquet")):
        table = pq.read_table(path)
        table = table if path.stem == BOUNDED else multiplied(table, ranks_n)
        rows_n += len(table)
        pq.write_table(table, target / path.name)
    shutil.copy(source / "report.json", target)
    return rows_n


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "ranks_n"), nightly_but(product(recipe_names(), LIMITS), [("trace_diff", 64)])
)
def test_a_notebook_of_many_ranks_stays_small(shared_runs, tmp_path, recipe, ranks_n):
    _, result = shared_runs.run("demo", recipe)
    rows_n = widened(result, tmp_path / "out", ranks_n)
    assert rows_n > 10 * ranks_n
    manifest = load_manifest(recipe)
    long = replace(FINDING, title=f"{quoted('k' * 5_000)} is slow", tables=("files",))
    results = Results(tmp_path / "out")
    # As of any run: sections that stand beside findings have rows.
    sections = tuple(one for one in manifest.sections if len(results.table(one.table)))
    report = made_report(manifest, *[long] * 40, sections=sections)
    write_report(tmp_path / "out", report, results, Silent(), html=True)
    size = {path.name: path.stat().st_size for path in (tmp_path / "out").iterdir()}
    assert size["analysis.ipynb"] < LIMITS[ranks_n]
    assert size["report.html"] < 3 * MB
    # A report that people read does not grow with the number of ranks.
    assert size["report.md"] < 60_000


@pytest.mark.slow
@pytest.mark.parametrize("recipe", recipe_names())
def test_a_report_is_read_in_minutes(shared_runs, recipe):
    _, result = shared_runs.run("demo", recipe)
    text = (result / "report.md").read_text("utf-8")
    assert len(text.split()) <= 1_500
    assert text.count("\n## ") <= 6
