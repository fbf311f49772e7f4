"""Findings on copies: each fires on its case, with the numbers, and not without it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from results import tables_of

from nsys_llm.recipes.llm_hotspots.findings.memops import copy_findings
from nsys_llm.testing.trace_builder import TraceBuilder


@pytest.fixture
def found_in(tmp_path):
    """Return a function that analyses ranks and returns their findings by rule."""

    def found(*ranks):
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        inputs = [
            trace.write_sqlite(folder / f"rank{number}.sqlite")
            for number, trace in enumerate(ranks)
        ]
        findings = copy_findings(tables_of(folder / "o", *inputs))
        assert len({(one.rule, one.name) for one in findings}) == len(findings)
        return {one.rule: one for one in findings}

    return found


def busy(end_ns=1000):
    """Return a rank with a kernel from 0 to `end_ns`."""
    return TraceBuilder().kernel("k", start_ns=0, end_ns=end_ns)


@pytest.mark.parametrize(
    ("copy_ns", "severity"), [(40, None), (60, "low"), (300, "medium"), (900, "high")]
)
def test_copies_without_a_kernel_beside_them_are_exposed(found_in, copy_ns, severity):
    # 40, 60, 300 and 900 ns of 1040 (3.8 %), 1060 (5.7 %), 1300 (23 %) and 1900 (47 %).
    trace = busy().memcpy("HtoD", start_ns=1000, duration_ns=copy_ns, size_bytes=8)
    found = found_in(trace)
    assert ("exposed_copies" in found) == (severity is not None)
    if severity is not None:
        one = found["exposed_copies"]
        assert (one.severity, one.rank, one.device_id, one.name) == (severity, 0, 0, "HtoD")
        assert (one.window_ns, one.impact_ns) == ((1000, 1000 + copy_ns), copy_ns)
        assert "1 HtoD copies (pinned to device, 8 B" in one.details


def test_a_copy_that_a_kernel_hides_is_no_finding(found_in):
    assert found_in(busy().memcpy("HtoD", start_ns=0, end_ns=900, size_bytes=8)) == {}


def test_the_rank_with_the_largest_share_is_named_and_all_count(found_in):
    # 200 of 1200 ns on rank 0, 400 of 1400 ns on rank 1.
    ranks = [
        busy().memcpy("DtoH", start_ns=1000, duration_ns=duration, size_bytes=8)
        for duration in (200, 400)
    ]
    one = found_in(*ranks)["exposed_copies"]
    assert (one.rank, one.severity, one.impact_ns) == (1, "medium", 600)
    assert "28.6 % of the window on rank 1" in one.title


def test_copies_inside_the_device_are_not_called_exposed(found_in):
    found = found_in(busy().memcpy("DtoD", start_ns=1000, end_ns=1200, size_bytes=8))
    assert set(found) == {"device_copies"}
    # 200 of 1200 ns busy.
    assert (found["device_copies"].severity, found["device_copies"].impact_ns) == ("medium", 200)
    assert "16.7 % of busy time on rank 0" in found["device_copies"].title
    assert found_in(busy().memcpy("DtoD", start_ns=1000, end_ns=1040, size_bytes=8)) == {}


@pytest.mark.parametrize(
    ("launch_name", "source", "rule"),
    [
        ("cudaMemcpyAsync_v3020", "pageable", "pageable_copies"),
        ("cudaMemcpy_v3020", "pinned", "synchronous_copies"),
    ],
)
@pytest.mark.parametrize(
    ("end_ns", "severity"), [(1, "note"), (10, "low"), (60, "medium"), (500, "high")]
)
def test_blocking_copies_are_told_and_weighed_by_their_time(
    found_in, launch_name, source, rule, end_ns, severity
):
    # 1, 10, 60 and 500 ns of a window of 1000, hidden behind the kernel.
    trace = busy().memcpy(
        "HtoD",
        start_ns=0,
        end_ns=end_ns,
        size_bytes=70_000,
        src_memory=source,
        launch=(0, 1),
        launch_name=launch_name,
    )
    found = found_in(trace)
    assert set(found) == {rule}
    one = found[rule]
    assert (one.severity, one.rank, one.window_ns, one.impact_ns) == (
        severity,
        0,
        (0, end_ns),
        end_ns,
    )
    assert f"(HtoD) by `{launch_name.partition('_v')[0]}`, 70 kB" in one.details


def test_the_window_is_on_the_rank_that_blocks_most(found_in):
    # One copy of 50 ns on rank 0, two of 40 on rank 1.
    def rank(*spans):
        trace = busy()
        for start_ns, end_ns in spans:
            trace.memcpy(
                "HtoD",
                start_ns=start_ns,
                end_ns=end_ns,
                size_bytes=70_000,
                src_memory="pinned",
                launch=(start_ns, start_ns + 1),
                launch_name="cudaMemcpy_v3020",
            )
        return trace

    one = found_in(rank((0, 50)), rank((100, 140), (200, 240)))["synchronous_copies"]
    assert (one.rank, one.window_ns, one.impact_ns) == (1, (100, 140), 130)
    assert "most on rank 1" in one.details


def test_a_blocking_fill_is_told(found_in):
    trace = busy().api("cudaMemset_v3020", start_ns=1, end_ns=2, correlation_id=50)
    trace.raw("CUPTI_ACTIVITY_KIND_MEMSET", start=3, end=9, bytes=9, memKind=4, correlationId=50)
    one = found_in(trace)["synchronous_fills"]
    assert (one.name, one.impact_ns) == ("cudaMemset", 6)


def test_nothing_is_found_where_nothing_is(found_in, tmp_path):
    assert found_in(busy()) == {}
    options = ["--device", "7"]
    path = busy().write_sqlite(tmp_path / "t.sqlite")
    tables = tables_of(tmp_path / "o", path, options=options)
    assert copy_findings(tables) == []
