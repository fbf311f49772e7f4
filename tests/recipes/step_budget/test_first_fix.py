"""The fix that the first line names, and the GPU that it is about."""

from __future__ import annotations

import re

import pytest
from gain_checks import check_findings
from path_truth import STEP
from quick_run import quick

from nsys_llm.recipes.step_budget.findings.answer import answer
from nsys_llm.recipes.step_budget.findings.first_fix import first_fix
from nsys_llm.recipes.step_budget.findings.gains import findings, fix_gain
from nsys_llm.recipes.step_budget.findings.on_gpu import gpu_of_file
from nsys_llm.report.findings import ranked
from nsys_llm.report.records import records
from nsys_llm.testing.trace_builder import TraceBuilder
from nsys_llm.view.text import format_percent

US = 1_000
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"


def write_job(folder, *, stray, ranks_n=4, steps_n=20, late=2):
    """Write a job with a late host, each rank on the device of its number.

    With `stray` all ranks but the first fill some memory on device 0, too, before their first step.
    """
    traces = [TraceBuilder().process(pid=100 + rank, name="python") for rank in range(ranks_n)]
    for trace in traces[1:] if stray else []:
        launch = (490 * US, 495 * US)
        trace.kernel("fill", start_ns=500 * US, end_ns=502 * US, launch=launch, device_id=0)
    begin = 1_000 * US
    for step in range(steps_n):
        begun = [begin + (520 if rank == late else 20) * US for rank in range(ranks_n)]
        starts = [at + 1_025 * US for at in begun]
        end = max(starts) + 100 * US
        for rank, (at, start, trace) in enumerate(zip(begun, starts, traces, strict=True)):
            gpu = {"device_id": rank, "context_id": 2}
            first = at + 15 * US
            trace.kernel(
                "gemm", start_ns=first, end_ns=start - 10 * US, launch=(at, at + 10 * US), **gpu
            )
            launch = (at + 120 * US, at + 130 * US)
            trace.kernel(REDUCE, start_ns=start, end_ns=end, launch=launch, **gpu)
            trace.api("cudaDeviceSynchronize_v3020", start_ns=at + 140 * US, end_ns=end + 5 * US)
            trace.nvtx(f"ProfilerStep#{step}", start_ns=begin, end_ns=end + 6 * US)
        begin = end + 10 * US
    folder.mkdir()
    for rank, trace in enumerate(traces):
        trace.write_sqlite(folder / f"rank{rank}.sqlite")
    return folder


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("first_fix")
    return {
        stray: quick("step_budget", write_job(folder / str(stray), stray=stray), *STEP)
        for stray in (False, True)
    }


def test_a_kernel_on_another_device_hides_no_fix(jobs):
    assert answer(jobs[True]) == answer(jobs[False])
    assert "Removing the waits of `cudaDeviceSynchronize` gains about" in answer(jobs[True])
    for tables in jobs.values():
        listed = ranked(findings(tables))
        check_findings(listed, tables)
        (late,) = (finding for finding in listed if finding.rule == "path_straggler")
        assert (late.rank, late.device_id) == (2, 2)
        assert late.gain.gain_pct > 25
    assert gpu_of_file(jobs[True], "rank2").device_id == 2


def printed(tables):
    return float(re.search(r"gains about ([\d.]+) %", first_fix(tables))[1])


def test_the_first_line_names_the_fix_whose_printed_gain_is_largest(jobs):
    tables = jobs[False]
    what_if, wall = tables["what_if"], tables["wall"]
    wait = what_if["change"] == "wait:cudaDeviceSynchronize"
    # In a replay the wait gains most; its GPU has hardly any time in which it waits.
    held = wall["wall_class"].isin(["idle", "communication"]) & (wall["file"] != "rank2")
    # The rank with most of the path is another than the late one.
    ceilings = tables["ceilings"]
    on_path = ceilings["change"] == "rank"
    ceilings = ceilings.assign(name=ceilings["name"].where(~on_path, "rank1"))
    short = wall.assign(time_ns=wall["time_ns"].where(~held, wall["time_ns"] // 20))
    limited = {**tables, "wall": short, "ceilings": ceilings}
    fixes = [row for row in records(what_if) if row["what"] == "rank"]
    assert what_if.loc[wait, "gain_pct"].item() > max(row["gain_pct"] for row in fixes)
    best = max(
        fix_gain(records(limited["ceilings"]), limited, row).replayed_pct or 0 for row in fixes
    )
    assert first_fix(limited).startswith("Making `rank2` as early as the median rank gains about")
    assert format_percent(best) == f"{printed(limited):.1f} %"
    # With no time to gain, there is no sentence.
    none = wall.assign(time_ns=wall["time_ns"] // 10_000)
    assert first_fix({**limited, "wall": none}) == ""
