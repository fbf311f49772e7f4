"""Tails on real traces: against numpy on the raw rows, and the reference numbers of the field."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import pandas as pd
import pytest
from results import tables_of

pytestmark = pytest.mark.traces

RECIPE = "tail_stats"
TRACES = ["h100_mfu/before", "h100_mfu/after", "h100_mfu_ranks/before", "h100_mfu_ranks/after"]
CONFIG = ["gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "dynamicSharedMemory"]


@pytest.fixture(scope="module")
def analysed(traces, tmp_path_factory):
    """The tables of each trace, and its raw kernels with names."""
    by_name = {}
    for name in TRACES:
        path = traces / name
        files = sorted(path.glob("*.sqlite")) if path.is_dir() else [path.with_suffix(".sqlite")]
        output = tmp_path_factory.mktemp("out") / "o"
        raw = pd.concat([kernels(file) for file in files], ignore_index=True)
        by_name[name] = (tables_of(output, *files, recipe=RECIPE), raw)
    return by_name


def kernels(path):
    query = f"""
        SELECT names.value AS name, {", ".join(CONFIG)}, end - start AS duration, start, deviceId,
               streamId, globalPid
        FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds AS names ON names.id = demangledName
    """
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        return pd.read_sql_query(query, database).assign(path=str(path))


@pytest.mark.parametrize("name", TRACES)
def test_every_statistic_is_that_of_numpy_on_the_raw_rows(analysed, name):
    tables, raw = analysed[name]
    tails = tables["tails"].set_index(["name", "config"])
    groups = raw.groupby(["name", *CONFIG])["duration"]
    assert len(groups) == len(tails)
    for (kernel, *sizes, shared), durations in groups:
        config = f"{'x'.join(map(str, sizes[:3]))} / {'x'.join(map(str, sizes[3:]))}"
        row = tails.loc[(kernel, f"{config} / {shared} B" if shared else config)]
        values = durations.to_numpy()
        median = np.median(values)
        beyond = np.maximum(0, values - median)
        assert (row["launches_n"], row["max_ns"]) == (values.size, values.max())
        assert row["total_ns"] == values.sum()
        for column, percentile in (("p50_ns", 50), ("p99_ns", 99)):
            assert row[column] == pytest.approx(np.percentile(values, percentile), rel=1e-14)
        assert row["excess_ns"] == int(beyond.sum())
        assert row["outliers_n"] == (values > 2 * median).sum()
        assert row["outlier_excess_ns"] == int(beyond[values > 2 * median].sum())
