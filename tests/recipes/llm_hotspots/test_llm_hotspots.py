"""Tables of llm_hotspots on traces of a few ns, through the public run. All numbers by hand."""

from __future__ import annotations

import pytest
from results import (
    NVIDIA,
    OF_RANK,
    only_tables,
    plain,
    read_frames,
    read_report,
    rows,
    spread,
    tables_of,
)
from trace_builder import TraceBuilder

S = "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_splitK_TNT"
N = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
M = "mystery"
SUMS = "name launches_n total_ns exclusive_ns"


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Two ranks. Rank 0 overlaps N with S on device 0; rank 1 has a kernel that no rule knows."""
    folder = tmp_path_factory.mktemp("ranks")
    first = TraceBuilder(hostname="node1", gpu_name="A GPU", system_clock_ns=1000)
    first.process(pid=100, name="python", gpu_ids=(0, 1))
    first.kernel(S, start_ns=10, end_ns=17, launch=(1, 3))
    first.kernel(N, start_ns=12, end_ns=17, launch=(4, 6), stream_id=8)
    first.kernel(S, start_ns=20, end_ns=25)
    first.memcpy("HtoD", start_ns=24, end_ns=30, size_bytes=64, launch=(7, 8))
    first.kernel(N, start_ns=11, end_ns=13, launch=(9, 10), device_id=1)
    first.write_sqlite(folder / "rank0.sqlite")
    second = TraceBuilder(hostname="node1", gpu_name="A GPU", system_clock_ns=1007)
    second.process(pid=200, name="python", gpu_ids=(0,))
    second.kernel(S, start_ns=10, end_ns=19, launch=(1, 3))
    second.kernel(M, start_ns=25, end_ns=31, launch=(4, 6))
    second.memset(start_ns=40, end_ns=42, size_bytes=8)
    second.write_sqlite(folder / "rank1.sqlite")
    return tables_of(folder / "out", folder)


def test_devices_hold_the_parts_of_every_share(tables):
    assert plain(tables["devices"]) == {
        "rank": [0, 0, 1],
        "file": ["rank0", "rank0", "rank1"],
        "device_id": [0, 1, 0],
        "window_start_ns": [10, 11, 10],
        "window_end_ns": [30, 13, 42],
        "window_ns": [20, 2, 32],
        "launches_n": [3, 1, 2],
        "kernel_total_ns": [7 + 5 + 5, 2, 9 + 6],
        "kernel_busy_ns": [7 + 5, 2, 9 + 6],
        "busy_ns": [7 + 10, 2, 9 + 6 + 2],
    }


def test_kernels_are_those_of_all_ranks_together(tables):
    # S and N share 5 ns: 2 each, and the odd one to S, which started first.
    # S: (2 + 2 + 1) + 5 + 9 = 19; N: 2 + 2 on device 1; M: 6; together 29 = 12 + 2 + 15 busy.
    assert plain(tables["kernels"]) == {
        "name": [S, M, N],
        "category": ["gemm", "unmatched", "communication"],
        "rule_id": ["generic.nvjet_split_k", None, "generic.nccl_all_reduce"],
        "operation": ["GEMM (cuBLAS nvjet, split K)", None, "all-reduce (NCCL)"],
        "flags": ["cublas_heuristic, split_k", None, None],
        "ranks_n": [2, 1, 1],
        "launches_n": [3, 1, 2],
        "total_ns": [21, 6, 7],
        "exclusive_ns": [19, 6, 4],
        **spread([7, 5, 9], [6], [5, 2]),
        "total_pct": [100 * 21 / 34, 100 * 6 / 34, 100 * 7 / 34],
        "busy_pct": [100 * 19 / 29, 100 * 6 / 29, 100 * 4 / 29],
    }
    # Literally: of 5, 7, 9 ns the third quartile lies at 1.5 of 2 steps.
    assert tables["kernels"]["q3_ns"][0] == 8.0


def test_rank_kernels_are_split_by_device(tables):
    assert plain(tables["rank_kernels"].drop(columns="ncu")) == {
        "rank": [0, 0, 0, 1, 1],
        "file": ["rank0", "rank0", "rank0", "rank1", "rank1"],
        "device_id": [0, 0, 1, 0, 0],
        "name": [S, N, N, S, M],
        "category": ["gemm", "communication", "communication", "gemm", "unmatched"],
        "launches_n": [2, 1, 1, 1, 1],
        "total_ns": [12, 5, 2, 9, 6],
        "exclusive_ns": [10, 2, 2, 9, 6],
        **spread([7, 5], [5], [2], [9], [6], form=OF_RANK),
        "total_pct": [100 * 12 / 19, 100 * 5 / 19, 100 * 2 / 19, 60.0, 40.0],
        "busy_pct": [100 * 10 / 12, 100 * 2 / 12, 100.0, 60.0, 40.0],
    }


def test_nvidia_s_tables_have_their_shares_and_files(tables):
    assert plain(tables["rank_stats"]) == {
        "Name": [S, N, S, M],
        "Time": [100 * 12 / 19, 100 * 7 / 19, 60.0, 40.0],
        "Total Time": [12, 7, 9, 6],
        "Instances": [2, 2, 1, 1],
        **spread([7, 5], [5, 2], [9], [6], form=NVIDIA),
        "File": ["rank0", "rank0", "rank1", "rank1"],
        "Rank": [0, 0, 1, 1],
    }
    assert plain(tables["all_stats"]) == {
        "Name": [S, N, M],
        "Time": [100 * 21 / 34, 100 * 7 / 34, 100 * 6 / 34],
        "Total Time": [21, 7, 6],
        "Instances": [3, 2, 1],
        **spread([7, 5, 9], [5, 2], [6], form=NVIDIA),
        "Min File": ["rank0", "rank0", "rank1"],
        "Max File": ["rank1", "rank0", "rank1"],
    }


def test_categories_sum_their_kernels_up_and_state_what_no_rule_knows(tables):
    assert plain(tables["categories"]) == {
        "category": ["gemm", "unmatched", "communication"],
        "engine": ["generic"] * 3,
        "kernels_n": [1, 1, 1],
        "launches_n": [3, 1, 2],
        "total_ns": [21, 6, 7],
        "exclusive_ns": [19, 6, 4],
        "total_pct": [100 * 21 / 34, 100 * 6 / 34, 100 * 7 / 34],
        "busy_pct": [100 * 19 / 29, 100 * 6 / 29, 100 * 4 / 29],
    }


def test_operations_add_up_and_unknown_ones_have_rows_of_their_own(tmp_path):
    names = ["nvjet_tst_192x192", "nvjet_tst_64x8", "mystery", "void flash_fwd_kernel<int>(int)"]
    trace = TraceBuilder()
    for index, name in enumerate(names):
        trace.kernel(name, start_ns=10 * index, duration_ns=1 << index)
    tables = tables_of(tmp_path / "o", trace.write_sqlite(tmp_path / "t.sqlite"))
    table = tables["operations"]
    by_name = {row[0]: row[1:] for row in rows(table, "operation category kernels_n total_ns")}
    assert by_name["GEMM (cuBLAS nvjet)"] == ("gemm", 2, 1 + 2)
    assert by_name[None] == ("unmatched", 1, 4)
    for name in ("launches_n", "total_ns", "exclusive_ns"):
        assert table[name].sum() == tables["categories"][name].sum()
    assert table["busy_pct"].sum() == pytest.approx(100)


def test_nvjet_names_are_decoded(tables):
    decoded = {"data_types": "tst", "a_type": "bf16", "b_type": "bf16", "c_type": "bf16"}
    decoded |= {"compute_type": "fp32", "d_type": "bf16", "arch": None, "tile_m": 128}
    decoded |= {"tile_n": 256, "k_tile": 64, "stages": 4, "cluster_m": 2, "cluster_n": 1}
    decoded |= {"order": "v", "two_cta": False, "beta": "bz", "epilogue": None, "bias": False}
    decoded |= {"scales": None, "cooperative": "A", "split_k": True, "layout": "TNT"}
    decoded |= {"other": None, "name": S, "launches_n": 3, "total_ns": 21}
    assert plain(tables["nvjet"]) == {name: [value] for name, value in decoded.items()}


def test_a_time_window_clips_sums_and_counts_what_starts_in_it(tmp_path):
    trace = TraceBuilder().kernel("a", start_ns=0, end_ns=10).kernel("a", start_ns=20, end_ns=30)
    trace.kernel("b", start_ns=8, end_ns=12, stream_id=8)
    trace.memcpy("HtoD", start_ns=24, end_ns=40, size_bytes=1)
    # These touch the window and are not in it: [5, 9) and [25, 26).
    trace.kernel("c", start_ns=5, end_ns=9, stream_id=9).kernel("c", start_ns=25, end_ns=26)
    trace.write_sqlite(tmp_path / "t.sqlite")
    options = ["--filter-time", "9/25"]
    frames = tables_of(tmp_path / "o", tmp_path / "t.sqlite", options=options)
    # a: [9, 10) + [20, 25) = 6; b: [9, 12) = 3. They share [9, 10): k = 2, so 0 each and the odd
    # ns to a, which started first; b keeps [10, 12). Only the second a starts inside: 10 ns whole.
    columns = f"{SUMS} mean_ns min_ns p50_ns"
    assert rows(frames["kernels"], columns) == [
        ("a", 1, 6, 6, 10, 10, 10),
        ("b", 0, 3, 2, None, None, None),
    ]
    # The copy adds nothing: a runs in [24, 25).
    names = "window_start_ns window_end_ns window_ns launches_n kernel_total_ns kernel_busy_ns"
    assert rows(frames["devices"], f"{names} busy_ns") == [(9, 25, 16, 1, 9, 8, 8)]
    assert rows(frames["coverage"], "op total_n total_ns selected_n selected_ns")[:2] == [
        ("kernel", 5, 10 + 10 + 4 + 4 + 1, 1, 9),
        ("memcpy", 1, 16, 1, 1),
    ]
    assert rows(frames["all_stats"], "Instances Avg Min")[1] == (0, None, None)


@pytest.mark.slow
def test_base_names_merge_template_instances_and_say_when_categories_mix(tmp_path):
    start = "void at::native::vectorized_elementwise_kernel<4, at::native::"
    add, fill = f"{start}CUDAFunctor_add<float>>(int)", f"{start}FillFunctor<float>>(int)"
    trace = TraceBuilder().kernel(add, start_ns=0, duration_ns=3)
    trace.kernel(fill, start_ns=5, duration_ns=4)
    trace.kernel("void k<int>(int)", start_ns=10, duration_ns=1, mangled_name="_Z1kIiEvi")
    trace.kernel("void k<float>(int)", start_ns=20, duration_ns=2).write_sqlite(
        tmp_path / "t.sqlite"
    )
    full = tables_of(tmp_path / "f", tmp_path / "t.sqlite", options=["--engine", "pytorch"])
    base = tables_of(
        tmp_path / "b", tmp_path / "t.sqlite", options=["--engine", "pytorch", "--base"]
    )
    kinds = dict(rows(full["kernels"], "name category"))
    assert (kinds[add], kinds[fill]) == ("elementwise", "memory")
    assert rows(base["kernels"], f"{SUMS} category rule_id") == [
        ("vectorized_elementwise_kernel", 2, 7, 7, "mixed", None),
        ("k", 2, 3, 3, "unmatched", None),
    ]
    # Categories follow the full names, whatever is shown.
    columns = "category total_ns"
    expected = [("memory", 4), ("elementwise", 3), ("unmatched", 3)]
    assert rows(full["categories"], columns) == rows(base["categories"], columns) == expected
    mangled = tables_of(tmp_path / "m", tmp_path / "t.sqlite", options=["--mangled"])
    assert {"_Z1kIiEvi", "void k<float>(int)"} <= set(mangled["kernels"]["name"])


@pytest.mark.parametrize("engine", ["vllm", "generic", "auto"])
def test_the_engine_chooses_the_rules(engine, tmp_path):
    trace = TraceBuilder().kernel("kernel_unified_attention_2d", start_ns=0, duration_ns=3)
    trace.write_sqlite(tmp_path / "t.sqlite")
    frames = tables_of(tmp_path / "o", tmp_path / "t.sqlite", options=["--engine", engine])
    used = "vllm" if engine == "auto" else engine
    assert set(frames["categories"]["engine"]) == {used}
    (rule,) = frames["kernels"]["rule_id"]
    assert (rule == "vllm.unified_attention_2d") == (used == "vllm")
    unmatched = frames["categories"].set_index("category").loc["unmatched"]
    assert unmatched["busy_pct"] == (100.0 if rule is None else 0.0)


def written(tmp_path, trace, name="t.sqlite"):
    return trace.write_sqlite(tmp_path / name)


def test_the_odd_ns_in_a_window_goes_to_the_kernel_that_really_started_first(tmp_path):
    # z [0, 20) and a [5, 15) share all 5 ns of the window [10, 15): 2 each, and 1 to z.
    trace = TraceBuilder().kernel("z", start_ns=0, end_ns=20)
    trace.kernel("a", start_ns=5, end_ns=15, stream_id=8)
    tables = tables_of(tmp_path / "o", written(tmp_path, trace), options=["--filter-time", "10/15"])
    assert rows(tables["kernels"], "name exclusive_ns") == [("z", 3), ("a", 2)]


#: Kernels a, b, c, d, e take 1, 2, 4, 8, 16 ns: a sum tells which there are.
CHOICES = [
    (["--filter-nvtx", "step"], 1 + 2 + 4 + 8, 4),
    (["--filter-nvtx", "step@NCCL"], 2, 1),
    (["--filter-time", "0/111", "--filter-nvtx", "step"], 1 + 1, 2),
    # b runs in [110, 112), and e, launched by nobody, in [104, 120).
    (["--filter-projected-nvtx", "step@NCCL"], 2 + 2, 1),
    # A step is its thread's, and holds what any thread launches during it: f, then d too.
    (["--steps", "1:"], 2 + 4, 3),
    (["--steps", "1:", "--filter-nvtx", "step"], 2 + 4, 2),
    (["--steps", ":1"], 1 + 8, 2),
    # The first step ends at 10; the launch of e is not known, it starts on the GPU later.
    (["--skip-warmup"], 2 + 4 + 16, 4),
    # f, of no length at the very end, is in an open window.
    (["--filter-time", "0/"], 1 + 2 + 4 + 8 + 16, 6),
]


@pytest.mark.parametrize(("options", "total_ns", "launches_n"), CHOICES)
def test_ranges_choose_what_was_launched_in_them(options, total_ns, launches_n, tmp_path):
    trace = TraceBuilder().nvtx("whole", 0, 40).nvtx("any thread", 0, 13, kind="start_end")
    for start, domain in ((0, ""), (10, "NCCL"), (20, "")):
        trace.nvtx("it", start, start + 10).nvtx("step", start + 1, start + 9, domain=domain)
    trace.nvtx("step", 1, 9, tid=101)
    trace.kernel("f", start_ns=138, duration_ns=0, launch=(13, 14), tid=101)
    trace.kernel("a", start_ns=100, duration_ns=1, launch=(2, 3))
    trace.kernel("b", start_ns=110, duration_ns=2, launch=(12, 13))
    trace.kernel("c", start_ns=120, duration_ns=4, launch=(22, 23))
    trace.kernel("d", start_ns=130, duration_ns=8, launch=(2, 3), tid=101)
    trace.kernel("e", start_ns=104, duration_ns=16, stream_id=8)
    kernels = tables_of(tmp_path / "o", written(tmp_path, trace), options=options)["kernels"]
    assert (kernels["total_ns"].sum(), kernels["launches_n"].sum()) == (total_ns, launches_n)


def test_a_device_that_idles_in_the_window_stays_a_part_of_the_whole(tmp_path):
    # Device 0 is busy all 10 ns of the window, device 1 none of them.
    trace = TraceBuilder().kernel("a", start_ns=0, end_ns=10)
    trace.kernel("b", start_ns=50, end_ns=60, device_id=1)
    tables = tables_of(tmp_path / "o", written(tmp_path, trace), options=["--filter-time", "0/10"])
    assert rows(tables["devices"], "device_id window_ns kernel_busy_ns") == [
        (0, 10, 10),
        (1, 10, 0),
    ]
    assert rows(tables["kernels"], "name exclusive_ns") == [("a", 10)]
    assert tables["files"]["device_ids"].tolist() == ["0,1"]


@pytest.mark.slow
def test_the_engine_is_that_of_the_run_whatever_window_is_looked_at(tmp_path):
    trace = TraceBuilder().kernel(
        "void vllm::reshape_and_cache_flash_kernel<int>(int)", start_ns=0, end_ns=9
    )
    trace.kernel("void at::native::reduce_kernel<512>(int)", start_ns=20, end_ns=30)
    report = written(tmp_path, trace)
    whole = tables_of(tmp_path / "o", report)["categories"]["engine"].unique().tolist()
    options = ["--filter-time", "20/30"]
    part = tables_of(tmp_path / "p", report, options=options)["categories"]["engine"].unique()
    assert part.tolist() == whole == ["vllm"]


@pytest.mark.slow
def test_a_report_with_copies_only_says_what_it_cannot_tell(tmp_path):
    trace = TraceBuilder().memcpy("HtoD", start_ns=1, duration_ns=4, size_bytes=8)
    tables = tables_of(tmp_path / "o", written(tmp_path, trace), whole=True)
    assert tables["devices"]["busy_ns"].tolist() == [4]
    (note,) = read_report(tmp_path / "o")["notes"]
    assert "no rows in CUPTI_ACTIVITY_KIND_KERNEL; all statistics of kernels are missing" in note


@pytest.mark.slow
def test_a_name_that_is_no_text_reads_the_same_from_both_kinds(tmp_path):
    # The name was cut off inside a character of three bytes.
    trace = TraceBuilder(lazy=False).kernel("good", start_ns=1, duration_ns=4)
    sqlite = written(tmp_path, trace)
    parquet = trace.write_parquet(tmp_path / "t_pqtdir")
    _cut_name(sqlite, parquet)
    only_tables(tmp_path / "a", sqlite)
    only_tables(tmp_path / "b", parquet)
    left, right = (read_frames(tmp_path / folder)["kernels"]["name"].tolist() for folder in "ab")
    assert left == right == ["goo\\xe2\\x82"]


def _cut_name(sqlite, parquet):
    import sqlite3

    import pyarrow as pa
    import pyarrow.parquet as pq

    raw = b"goo\xe2\x82"
    with sqlite3.connect(sqlite) as database:
        database.execute(
            "UPDATE StringIds SET value = CAST(? AS TEXT) WHERE value = 'good'", (raw,)
        )
    database.close()
    file = parquet / "StringIds.parquet"
    table = pq.read_table(file)
    values = [raw if text == "good" else text.encode() for text in table["value"].to_pylist()]
    cut = pa.array(values, pa.binary()).view(pa.string())
    pq.write_table(table.set_column(1, table.schema.field(1), cut), file)
