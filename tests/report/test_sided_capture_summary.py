"""Facts and caveats of two captures: once where they are alike, by side where they are not."""

from __future__ import annotations

import pytest
from results import analyse, read_report
from trace_builder import TraceBuilder


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sides")
    before = TraceBuilder(hostname="old", gpu_name="H100").kernel(
        "k", start_ns=10, duration_ns=5, launch=(1, 2)
    )
    after = TraceBuilder(hostname="new", gpu_name="H100").kernel("k", start_ns=10, duration_ns=5)
    after.kernel("k", start_ns=40, duration_ns=-5)
    paths = [before.write_sqlite(folder / "a.sqlite"), after.write_sqlite(folder / "b.sqlite")]
    return read_report(analyse(folder / "out", *paths, recipe="trace_diff"))["report"]


def test_a_fact_that_both_share_is_told_once(report):
    facts = dict(report["facts"])
    assert facts["GPUs"] == "H100"
    assert facts["hosts"] == "baseline: old; input: new"


def test_a_caveat_names_its_side(report):
    texts = [text for text in report["caveats"] if "no API call" in text]
    assert texts[0].startswith("input: 1 of 1 recorded GPU operation")
