"""What a worker sends back: one broken report costs itself only, and results merge in any order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from trace_builder import TraceBuilder

from nsys_llm.facts.operations import rank as operations
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.manifest.options import resolved_options
from nsys_llm.profile.inputs import ProfileInput, expand_inputs
from nsys_llm.reduced import job_facts
from nsys_llm.run.cli import main
from nsys_llm.run.worker import map_profiles, merge_results
from nsys_llm.testing.trace_metadata import global_tid
from nsys_llm.trace.outcomes import MapResult

RECIPE = "llm_hotspots"
OPTIONS = resolved_options(load_manifest(RECIPE), {})


@pytest.fixture
def mixed(tmp_path) -> list[ProfileInput]:
    """Write ranks 0, 1 and 3 with a kernel of 2, 3 and 5 ns, an idle rank 4, and rank 2 broken."""
    for rank in (0, 1, 3):
        report = TraceBuilder().process(pid=10 + rank)
        report.kernel("k", start_ns=1, duration_ns=2 + rank, launch=(0, 1))
        report.write_sqlite(tmp_path / f"rank{rank}.sqlite")
    TraceBuilder().write_sqlite(tmp_path / "rank4.sqlite")
    (tmp_path / "rank2.sqlite").write_bytes(b"junk")
    return expand_inputs([str(tmp_path)])[0]


def mapped(inputs: list[ProfileInput], **extra: Any) -> MapResult:
    return map_profiles(inputs, recipe=RECIPE, options=OPTIONS, **extra)


def put_in(monkeypatch, of: Any) -> None:
    """Let another function reduce the ranks."""
    monkeypatch.setitem(job_facts.KINDS, "operations", of)


def durations(result: MapResult) -> dict[int, int]:
    """Return how often a launch took how long, over all ranks."""
    counts = result.facts[""].operations.kernels.counts
    return dict(zip(counts.value.tolist(), counts.count.tolist(), strict=True))


def test_each_process_with_work_is_a_rank_of_its_report(tmp_path):
    report = TraceBuilder().process(pid=7).kernel("a", start_ns=1, duration_ns=2)
    report.process(pid=8).kernel("a", start_ns=1, duration_ns=3, device_id=1)
    report.process(pid=9).api("cudaMalloc_v3020", start_ns=1, duration_ns=1)
    path = report.write_sqlite(tmp_path / "r.sqlite")
    (outcome,) = mapped([ProfileInput(str(path), "r")]).profiles
    keys = {rank.key.global_pid: rank.device_ids for rank in outcome.ranks}
    assert keys == {global_tid(7): (0,), global_tid(8): (1,)}


def test_profiles_are_in_one_order_however_results_are_merged(mixed):
    parts = [mapped([profile]) for profile in mixed]
    grouped = [merge_results(parts[2:]), merge_results(parts[:2])]
    for some in (parts[::-1], [*parts[3:], *parts[:3]], grouped):
        result = merge_results(some)
        assert [one.label for one in result.profiles] == [f"rank{rank}" for rank in range(5)]
        assert durations(result) == {2: 1, 3: 1, 5: 1}


def test_a_probe_finds_the_ranks_and_analyses_nothing(mixed, monkeypatch):
    def forbidden(*_: object) -> None:
        raise AssertionError("a probe does not analyse")

    keys = [rank.key for report in mapped(mixed).profiles for rank in report.ranks]
    put_in(monkeypatch, forbidden)
    probed = mapped(mixed, only=frozenset())
    assert [rank.key for report in probed.profiles for rank in report.ranks] == keys
    assert probed.facts == {}
    assert [report.label for report in probed.profiles if report.reason] == ["rank2"]


@pytest.fixture
def faulty(monkeypatch) -> None:
    """Make the analysis of the rank with a kernel of 3 ns raise what nobody expects."""
    put_in(monkeypatch, failing(KeyError("no such\nthing")))


def failing(error: Exception) -> Any:
    """Return an analysis of ranks that fails for the one with a kernel of 3 ns."""

    def failing_of(view):
        kernels = view.trace.tables["kernels"]
        if 3 in (kernels["end_ns"] - kernels["start_ns"]).tolist():
            raise error
        return operations.of(view)

    return failing_of


def test_a_rank_that_needs_too_much_memory_is_no_fault(monkeypatch, mixed):
    put_in(monkeypatch, failing(MemoryError("Unable to allocate 1.12 GiB")))
    failed = {profile.label: profile for profile in mapped(mixed).profiles if profile.reason}
    assert failed["rank1"].fault is None
    assert failed["rank1"].reason == (
        "rank1: needs more memory than is available; read fewer profiles at a time (--mode none), "
        "or a part of this one (--filter-time)."
    )


@pytest.mark.usefixtures("faulty")
def test_an_unexpected_exception_is_a_fault_of_one_report(mixed):
    result = mapped(mixed)
    failed = {profile.label: profile for profile in result.profiles if profile.reason is not None}
    assert list(failed) == ["rank1", "rank2"]
    assert failed["rank2"].fault is None
    reason, fault = failed["rank1"].reason, failed["rank1"].fault
    assert reason is not None
    assert "\n" not in reason
    assert "internal error of nsys-llm-recipes (KeyError" in reason
    assert fault is not None
    assert "facts_of" in fault
    assert str(Path(__file__).parent) not in fault
    assert failed["rank1"].ranks == ()
    assert durations(result) == {2: 1, 5: 1}


@pytest.mark.slow
@pytest.mark.usefixtures("faulty")
def test_a_fault_ends_in_exit_code_4_and_the_other_ranks_survive(mixed, tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ["--input", *(profile.path for profile in mixed), "--output", str(out)]
    assert main([RECIPE, *arguments, "--allow-missing-ranks"]) == 4
    said = capsys.readouterr().err.splitlines()
    assert len([line for line in said if "rank1" in line and "KeyError" in line]) == 1
    assert not any(line.startswith("Traceback") for line in said)
    files = pq.read_table(out / "files.parquet").to_pylist()
    status = {row["File"]: row["status"] for row in files}
    assert status == {
        "rank0": "ok",
        "rank1": "failed",
        "rank2": "failed",
        "rank3": "ok",
        "rank4": "no_gpu_work",
    }
