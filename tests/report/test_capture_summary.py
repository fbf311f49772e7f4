"""What a report says of its capture: facts, caveats, and what was not recorded."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from planted import coverage, file, frame_of

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.profile.capture import CaptureFacts
from nsys_llm.report.capture_summary import capture_caveats, capture_facts, unrecorded
from nsys_llm.report.run import Run
from nsys_llm.run.worker import load_analysis
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.outcomes import ProfileOutcome, RankOutcome

MANIFEST = load_manifest("llm_hotspots")
FACTS = CaptureFacts(
    host="node1",
    driver_version="550.54",
    cuda_version="12.4",
    gpus=("H100", "H100"),
    nsys_version="2026.2.1",
    schema_version="3.25.0",
    utc_epoch_ns=None,
    system_clock_ns=None,
    processes={},
    rank_variables={},
    mpi_ranks={},
    graph_mode="node",
    traced=("Cuda", "NvtxEvents"),
)


def report(number, facts=FACTS, ranks_n=1, **others):
    path = f"/in/rank{number}.sqlite"
    ranks = tuple(RankOutcome(RankKey(path, pid), (0,), (), ()) for pid in range(ranks_n))
    return ProfileOutcome(path, f"rank{number}", facts, ranks, **others)


def run_of(reports, ranks=(), options=None):
    analysis = load_analysis(MANIFEST.name)
    return Run(MANIFEST, analysis, options or {}, tuple(reports), {}, tuple(ranks))


def facts_of(*reports, source="file_name", devices=None, options=None):
    ranks = [
        Rank(entry.key, number, f"rank{number}", source, None)
        for number, entry in enumerate(rank for report in reports for rank in report.ranks)
    ]
    tables = {} if devices is None else {"devices": frame_of("devices", devices)}
    return dict(capture_facts(reports, ranks, options or {}, tables))


def caveats(files=(), rows=(), span_ns=None):
    return capture_caveats(
        {
            "files": frame_of("files", files),
            "coverage": frame_of("coverage", rows),
            "wall": pd.DataFrame({"span_ns": [span_ns]}),
        }
    )


@pytest.mark.parametrize(
    ("ops_n", "span_ns", "op", "said"),
    [
        (3, 12_000, "kernel", ["Too little to judge: 3 GPU operations in 12 us."]),
        (999, 10**9, "kernel", ["Too little to judge: 999 GPU operations in 1 s."]),
        (1_000, 4_900_000, "kernel", ["Too little to judge: 1,000 GPU operations in 4.9 ms."]),
        (1_000, 5_000_000, "kernel", []),
        # Whole graphs are few, and hold many kernels.
        (300, 10**9, "graph", []),
    ],
)
def test_a_capture_of_little_work_is_called_so(ops_n, span_ns, op, said):
    assert caveats(rows=[coverage(0, 1_000, op=op, total_n=ops_n)], span_ns=span_ns) == said


def test_a_fact_that_all_reports_share_is_told_once():
    assert facts_of(report(0), report(1)) == {
        "ranks": "2 with GPU work in 2 profiles, numbered by `file_name`",
        "hosts": "`node1`",
        "GPUs": "`H100`",
        "driver": "`550.54`",
        "CUDA of the driver": "`12.4`",
        "exported by nsys": "`2026.2.1`",
        "export schema": "`3.25.0`",
        "traced": "`Cuda, NvtxEvents`",
        "CUDA graphs": "`node`",
    }


@pytest.mark.parametrize(
    ("label", "field"),
    [
        ("hosts", "host"),
        ("driver", "driver_version"),
        ("CUDA of the driver", "cuda_version"),
        ("exported by nsys", "nsys_version"),
        ("export schema", "schema_version"),
        ("CUDA graphs", "graph_mode"),
    ],
)
def test_of_many_values_three_are_told_and_the_others_counted(label, field):
    reports = [report(n, replace(FACTS, **{field: f"v{n}"})) for n in range(5)]
    reports.append(report(5, replace(FACTS, **{field: "v4"})))
    assert facts_of(*reports)[label] == (
        "`v4` (2 profiles), `v0` (1 profile), `v1` (1 profile) and 2 more"
    )


def test_a_sound_capture_has_no_caveats():
    rows = [coverage(0, 1000), coverage(1, 0, total_ns=0)]
    assert caveats([file(0), file(1, "no_gpu_work", "no work")], rows) == []
    assert caveats() == []


def test_node_traced_graphs_are_told_with_their_share_of_operations():
    (caveat,) = caveats(rows=[coverage(0, 1000, graph_node_n=4), coverage(1, 1000, graph_node_n=3)])
    # 4 + 3 of 10 + 10 operations.
    assert caveat.startswith("7 of 20 recorded GPU operations ran inside CUDA graphs")
    assert "30 to 60 %" in caveat


@pytest.mark.parametrize(
    ("column", "single", "many"),
    [
        ("unknown_name_n", "1 kernel ", "1,200 kernels "),
        ("duplicate_key_n", "1 join key ", "1,200 join keys "),
        ("no_process_n", "1 row ", "1,200 rows "),
    ],
)
def test_rows_with_something_wrong_are_counted(column, single, many):
    assert caveats(rows=[coverage(0, 1000, **{column: 1})])[0].startswith(single)
    rows = [coverage(0, 1000, **{column: 1000}), coverage(1, 1000, **{column: 200})]
    assert caveats(rows=rows)[0].startswith(many)


def not_recorded(*reports):
    return [item.text for item in unrecorded(run_of(reports))]


def test_a_table_that_no_report_has_is_told_with_the_flag_that_records_it():
    (read,) = (read for read in MANIFEST.reads if read.table == "memcpys")
    untold = replace(FACTS, traced=())
    (text,) = not_recorded(report(0, untold, absent_tables=("memcpys",)))
    assert text == f"{read.lost}: `--trace=cuda`"


def test_what_was_traced_and_is_not_there_did_not_happen():
    traced = replace(FACTS, traced=("Cuda", "NvtxEvents"))
    assert not_recorded(report(0, traced, absent_tables=("memcpys",))) == []


def test_a_table_that_some_reports_lack_is_told_with_how_many():
    untold = replace(FACTS, traced=())
    lacking = [report(n, untold, absent_tables=("api_calls",)) for n in range(2)]
    (text,) = not_recorded(*lacking, report(2))
    assert " (2 of 3 profiles): " in text


@pytest.mark.parametrize(
    ("levels", "sampled", "said"),
    [
        ((0, 1), True, []),
        ((2, 2), True, ["CPU samples of the kernel, which `kernel.perf_event_paranoid` 2 forbids"]),
        ((4, 1), False, ["CPU samples, which `kernel.perf_event_paranoid` 4 forbids"]),
        # Root may.
        ((4, 1), True, []),
    ],
)
def test_samples_that_linux_did_not_allow_are_told_with_what_allows_them(levels, sampled, said):
    absent = () if sampled else ("cpu_samples",)
    reports = [
        report(n, replace(FACTS, traced=("Cuda",), paranoid_level=level), absent_tables=absent)
        for n, level in enumerate(levels)
    ]
    run = run_of(reports)
    assert not unrecorded(run)  # of a recipe without samples
    items = unrecorded(replace(run, manifest=load_manifest("idle_gaps")))
    texts = [item.text for item in items if "paranoid" in item.text]
    assert [text.partition(" and 1 allows")[0] for text in texts] == said


def test_filters_are_told_as_they_were_typed():
    options = {
        "filter_time": (50, None),
        "steps": (3, 4),
        "skip_warmup": True,
        "ranks": (0, 2),
        "device": None,
        "filter_nvtx": "a`b",
    }
    text = facts_of(report("rank0"), options=options)["only"]
    words = "--filter-time 50/ --filter-nvtx a'b --steps 3:4 --skip-warmup --ranks 0,2"
    assert text == f"what `{words}` leaves of the profiles"
    assert "only" not in facts_of(report("rank0"), options={"skip_warmup": False})


def test_the_window_is_that_of_the_devices():
    same = [{"window_ns": 1_500}, {"window_ns": 1_500}]
    assert facts_of(report(0), devices=same)["window"] == "1.5 us a device"
    other = [{"window_ns": 2_000}, {"window_ns": 7}, {"window_ns": 9}]
    assert facts_of(report(0), devices=other)["window"] == "7 ns to 2 us a device"
    assert "window" not in facts_of(report(0), devices=[])


@pytest.mark.parametrize(
    ("cut_n", "words"),
    [
        (0, ""),
        (2, ": 2 of them launched before the capture began"),
        (3, ": launched before the capture began"),
    ],
)
def test_operations_without_an_api_call_are_counted_with_their_time(cut_n, words):
    rows = [coverage(0, 875, api_missing_n=3, api_cut_n=cut_n), coverage(1, 1000)]
    said = f"3 of 20 recorded GPU operations (125 ns) have no API call in the profile{words}."
    assert caveats(rows=rows) == [said]
