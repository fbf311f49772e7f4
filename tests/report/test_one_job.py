"""Profiles that look like no one job: said, and not compared; ranks of a job are not doubted."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from quick_run import quick, quick_run
from trace_builder import TraceBuilder

from nsys_llm.report.report import all_findings
from nsys_llm.report.run_findings import why_unrelated
from nsys_llm.report.run_tables import run_tables

MS = 1_000_000
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"


@dataclass(frozen=True)
class Given:
    """Two profiles: when the second begins, its length, what else they run, their names."""

    apart_ns: int = 100 * MS
    kernel: str | None = None
    names: tuple[str, str] = ("serial", "streamed")


def write(folder, given):
    for nth, name in enumerate(given.names):
        trace = TraceBuilder(system_clock_ns=10**12 + nth * given.apart_ns)
        trace.kernel("gemm", start_ns=0, duration_ns=(20 + 20 * nth) * MS)
        if given.kernel is not None:
            trace.kernel(given.kernel, start_ns=50 * MS, duration_ns=MS)
        trace.write_sqlite(folder / f"{name}.sqlite")
    return folder


@pytest.mark.slow
def test_profiles_that_ran_one_after_the_other_are_no_job(tmp_path):
    write(tmp_path, Given())
    for recipe in ("llm_hotspots", "nvtx_phase_attribution"):
        run = quick_run(recipe, tmp_path)
        findings = all_findings(run, run_tables(run))
        titles = [finding.title for finding in findings if finding.rule == "unrelated_profiles"]
        assert titles == ["These 2 profiles do not look like one job: they ran one after the other"]
        assert not [
            finding for finding in findings if finding.cause and finding.cause.kind == "rank"
        ]


@pytest.mark.parametrize(
    "given",
    [
        Given(apart_ns=10 * MS),  # at the same time
        Given(kernel=REDUCE),  # they communicate
        Given(names=("rank0", "rank1")),  # they say which rank they are
    ],
)
def test_what_may_be_one_job_is_compared(tmp_path, given):
    assert why_unrelated(quick("llm_hotspots", write(tmp_path, given))) is None


def test_two_runs_of_two_programs_are_compared_all_the_same(tmp_path):
    paths = []
    for name in ("before", "after"):
        trace = TraceBuilder().process(pid=100, name=f"serve-{name}")
        trace.kernel("gemm", start_ns=0, duration_ns=20 * MS)
        paths.append(trace.write_sqlite(tmp_path / f"{name}.sqlite"))
    before, after = paths
    assert why_unrelated(quick("llm_hotspots", before, after)) == "each is of another program"
    assert why_unrelated(quick("trace_diff", after, "--baseline", str(before))) is None
