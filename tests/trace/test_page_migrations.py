"""Pages of unified memory: no call launches what moves them, and kernels wait for them."""

import numpy as np
import pytest
from quick_run import quick
from trace_builder import TraceBuilder

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.taxonomy.cuda_codes import copy_kind_name, migration_kinds

US = 1_000
BY_FAULT = "page migration HtoD by page fault"


def world(path, *, migrated, cause=2):
    """Forty kernels of 40 us, of which four take 400 us beside 25 moves of 64 KiB.

    The host works for 100 us between them, and three pages come back meanwhile. Moves are
    migrations, or copies that a call launches.
    """
    trace, now_ns = TraceBuilder(), 100 * US
    for number in range(40):
        ran_ns = 400 * US if number % 10 == 5 else 40 * US
        moves = [(now_ns + 12 * US + at * 14 * US, 9 * US, 11) for at in range(25)]
        if ran_ns < 100 * US:
            moves = []
        call = (now_ns, now_ns + 5 * US)
        trace.kernel("gemm", start_ns=now_ns + 8 * US, duration_ns=ran_ns, launch=call)
        now_ns += ran_ns + 10 * US
        if number < 39:
            moves += [(now_ns + 20 * US + at * 20 * US, 4 * US, 12) for at in range(3)]
        for start_ns, duration_ns, kind in moves:
            move(trace, start_ns, duration_ns, kind, cause if migrated else None)
        now_ns += 100 * US
    return trace.write_sqlite(path)


def move(trace, start_ns, duration_ns, kind, cause):
    if cause is None:
        call = (start_ns - 3 * US, start_ns - 2 * US)
        way, place = ("HtoD", "DtoH")[kind - 11], {"stream_id": 9, "tid": 77}
        trace.memcpy(
            way, start_ns=start_ns, duration_ns=duration_ns, size_bytes=65536, launch=call, **place
        )
        return
    trace.raw(
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        **{"start": start_ns, "end": start_ns + duration_ns, "correlationId": 0, "bytes": 65536},
        **{"copyKind": kind, "srcKind": 7, "dstKind": 7, "migrationCause": cause, "copyCount": 1},
    )


@pytest.fixture(scope="module")
def migrated(tmp_path_factory):
    path = world(tmp_path_factory.mktemp("pages") / "rank0.sqlite", migrated=True)
    return {name: quick(name, path) for name in ("tail_stats", "idle_gaps", "llm_hotspots")}


def titles(tables):
    findings = tables["findings"]
    return {row["rule"]: row for row in findings.to_dict("records")}


def test_kernels_that_wait_for_pages_are_said_with_what_to_do(migrated):
    said = titles(migrated["tail_stats"])["slow_launches"]
    assert said["title"] == (
        "Waiting for page migrations HtoD by page fault, `gemm` takes over twice its median in "
        "10.0 % of its launches on rank 0"
    )
    assert "cudaMemPrefetchAsync" in said["recommendation"]


def test_they_are_counted_by_cause_and_limit_nothing(migrated):
    rows = migrated["tail_stats"]["capture"]
    assert dict(zip(rows["name"], rows["count_n"], strict=True)) == {
        BY_FAULT: 100,
        "page migration DtoH by page fault": 117,
    }
    assert rows["of_n"].tolist() == [217, 217]
    assert not rows["limits"].any()


def test_none_of_them_was_launched_before_the_capture(migrated):
    rows = migrated["tail_stats"]["coverage"].set_index("op").loc["memcpy"]
    assert (rows["uncalled_n"], rows["api_missing_n"], rows["api_cut_n"]) == (217, 0, 0)


def test_a_gap_that_a_page_ends_has_the_cause_of_the_next_launch(migrated):
    causes = migrated["idle_gaps"]["rank_causes"].groupby("cause")["idle_ns"].sum()
    assert "no_api" not in causes.index
    assert causes["host_no_cuda"] > 0.9 * causes.sum()


def test_pinned_memory_is_no_advice_for_pages(migrated):
    said = titles(migrated["llm_hotspots"])["exposed_migrations"]
    assert said["title"].startswith("Exposed page migrations DtoH by page fault: ")
    assert "pinned" not in said["recommendation"]
    assert "exposed_copies" not in titles(migrated["llm_hotspots"])


def test_copies_beside_a_kernel_are_no_pages(tmp_path):
    tables = quick("tail_stats", world(tmp_path / "rank0.sqlite", migrated=False))
    said = titles(tables)["slow_launches"]
    assert "page" not in said["title"] + said["recommendation"]
    assert tables["capture"].empty


@pytest.mark.parametrize(
    ("kind", "cause", "name"),
    [
        (11, 2, BY_FAULT),
        (12, 4, "page migration DtoH by eviction"),
        (13, 1, "page migration DtoD by prefetch"),
        (11, 0, "page migration HtoD"),
        (11, NULL_INT, "page migration HtoD"),
        (11, 9, "page migration HtoD"),
        (1, 2, "HtoD"),
        (10, 5, "PtoP"),
    ],
)
def test_only_a_migration_has_a_cause(kind, cause, name):
    codes = migration_kinds(*(np.array([value], dtype=np.int64) for value in (kind, cause)))
    assert copy_kind_name(int(codes[0])) == name
