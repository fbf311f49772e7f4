"""What happens once is told with its own time; copies on the path with theirs."""

from __future__ import annotations

from random import Random

import pytest
from finding_numbers import unexplained_numbers
from judgement.jobs import job, layers
from machine import simulate, write_profiles
from machine.program import Pop, Push, Sync
from quick_run import quick_run
from trace_builder import TraceBuilder

from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import finding_record
from nsys_llm.report.price import price_words
from nsys_llm.report.run_findings import all_findings
from nsys_llm.report.run_tables import run_tables

US = 1_000
STEPS = 6


def found(folder, rule):
    run = quick_run("step_budget", folder)
    return [made for made in all_findings(run, run_tables(run)) if made.rule == rule]


def host(tmp_path, steps, length_ns):
    """Return title and price of the host's finding, of 12 steps some of which save something."""

    def body(make, rank, step):
        saving = [Push("save"), make.host(length_ns), Pop()] if step in steps else []
        return [Sync("stream"), *saving, *layers(make, 2)]

    program = job(Random(1), body, ranks_n=1, steps_n=12)
    write_profiles(simulate(program), tmp_path)
    (made,) = found(tmp_path, "path_host")
    return made.title, price_words(made.price)


@pytest.mark.parametrize(
    ("steps", "length_ns", "title", "each"),
    [
        ((7,), 4_000_000, "Rank 0's host: 4.06 ms in `save`", False),
        (range(12), 400_000, "Rank 0's host: 398 us a step in `save`", True),
    ],
    ids=["once", "in every step"],
)
def test_one_event_is_told_as_one_event(steps, length_ns, title, each, tmp_path):
    said, price = host(tmp_path, steps, length_ns)
    assert said == title
    assert (" a step" in price) == each


def write(folder, copy_us, kernel_us, stream_id):
    """Write steps: a copy on a stream, and a kernel that runs after it or beside it."""
    trace, at = TraceBuilder(), 1_000_000
    for number in range(STEPS):
        begin, at = at, at + 10 * US
        copied = {"start_ns": at, "duration_ns": copy_us * US, "size_bytes": 1 << number}
        trace.memcpy("DtoH", **copied, stream_id=stream_id, launch=(begin, begin + 500))
        at += copy_us * US if stream_id == 7 else 1
        launch = (begin + US, begin + 2 * US)
        trace.kernel("gemm", start_ns=at, duration_ns=kernel_us * US, stream_id=7, launch=launch)
        at += kernel_us * US
        trace.api("cudaStreamSynchronize_v3020", start_ns=begin + 3 * US, end_ns=at + US)
        at += 2 * US
        trace.nvtx(f"execute_context_0(0)_generation_{number}({number})", begin, at)
    trace.write_sqlite(folder / "rank0.sqlite")


@pytest.mark.parametrize(
    ("copy_us", "kernel_us", "stream_id", "path_ns"),
    [(64, 36, 7, 64_000), (64, 90, 20, None)],
    ids=["before the kernel", "beside it"],
)
def test_copies_are_told_where_they_are_on_the_path(
    tmp_path, copy_us, kernel_us, stream_id, path_ns
):
    write(tmp_path, copy_us, kernel_us, stream_id)
    listed = found(tmp_path, "path_copies")
    assert len(listed) == (path_ns is not None)
    for finding in listed:
        assert finding.impact_ns == STEPS * path_ns
        assert finding.title == "Copies on the critical path: 64 us a step"
        assert (finding.cause, finding.change) == (Cause("copies"), Change("copies", "DtoH"))
        assert unexplained_numbers(finding_record(finding)) == []
