"""Jobs in which what a recipe could blame is innocent: no recipe, and no overview, blames it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from effort import seeds
from machine import parts, simulate, write_profiles
from machine.program import Flush, Program, Sync
from machine.scenarios import gpu_bound
from quick_run import quick_part


def by_cause(folder, program):
    """Return whom the findings on time of all recipes blame, and the overview."""
    write_profiles(simulate(program), folder)
    done = quick_part("llm_overview", folder)
    shown = [finding for part in done.parts.values() for finding in part.report.opportunities]
    return {finding.cause: finding for finding in shown if finding.cause is not None}


def blamed_ranks(folder, program):
    return {cause.rank for cause in by_cause(folder, program) if cause.kind == "rank"}


@pytest.mark.nightly("350000-3")
@pytest.mark.parametrize("seed", seeds(6, 1))
@pytest.mark.parametrize("capture_ns", [350_000, 1_400_000])
def test_a_rank_whose_capture_began_later(tmp_path, capture_ns, seed):
    program = gpu_bound(4, 12, 300 + seed)
    ranks = list(program.ranks)
    ranks[seed % 4] = replace(ranks[seed % 4], capture_ns=capture_ns)
    assert blamed_ranks(tmp_path, Program(tuple(ranks))) == set()


def flushed(seed):
    """Return a job of equal ranks; the profiler flushes on all of them in each step.

    But in the first one: how late ranks begin, before their first operation, is no part of a run.
    """

    def body(make, at, step):
        flush = [Flush(make.ns(200_000))] if step else []
        kernels = [make.kernel(parts.GEMM, 150_000), make.kernel(parts.ATTENTION, 100_000)]
        return [*flush, *kernels, make.reduce(30_000), Sync("device")]

    return parts.ranked(4, 16, body, seed)


@pytest.mark.parametrize("seed", seeds(6, 1))
def test_a_wait_behind_which_the_profiler_flushes(tmp_path, seed):
    causes = by_cause(tmp_path, flushed(seed))
    # Where launches behind the wait come late by themselves, that is a few percent.
    late = [
        finding.price.gain_pct
        for cause, finding in causes.items()
        if cause.kind in ("host", "wait")
    ]
    assert max(late, default=0.0) < 10
