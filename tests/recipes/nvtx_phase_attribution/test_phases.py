"""Tables of nvtx_phase_attribution on traces of a few ns. All numbers by hand."""

from __future__ import annotations

import json

import pytest
from phase_run import quick
from results import plain, rows
from trace_builder import TraceBuilder

from nsys_llm.core.errors import UsageError
from nsys_llm.taxonomy.phase_maps import read_phase_map


def written(trace, folder, name="a"):
    return trace.write_sqlite(folder / f"{name}.sqlite")


def server(slow=1):
    """Return one rank: three steps; the first computes a prompt, the others decode.

    Prefill takes 6 ns (8 on a slow rank) and 2 in a collective; a decode step 3 + 1.
    """
    trace = TraceBuilder()
    for number, (phase, start) in enumerate([("prefill", 0), ("decode", 20), ("decode", 40)]):
        trace.nvtx(f"step {number}", start, start + 18)
        trace.nvtx(phase, start + 1, start + 12).nvtx("sample", start + 13, start + 17)
        length = (6 if slow == 1 else 8) if phase == "prefill" else 3
        trace.kernel(
            "gemm", start_ns=start + 100, duration_ns=length, launch=(start + 2, start + 3)
        )
        trace.kernel(
            "ncclDevKernel_AllReduce",
            start_ns=start + 100 + length,
            duration_ns=2 if phase == "prefill" else 1,
            launch=(start + 4, start + 5),
        )
        trace.memcpy(
            "DtoH",
            start_ns=start + 112,
            duration_ns=1,
            size_bytes=8,
            launch=(start + 14, start + 15),
        )
    return trace


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    return quick(written(server(), folder, "rank0"), written(server(2), folder, "rank1"))


def test_phases_add_up_over_ranks(tables):
    names = "phase ops_n kernels_n gpu_ns kernel_ns memop_ns communication_ns work_ns instances_n"
    assert rows(tables["phases"], names) == [
        # Two ranks: 6 + 8 and twice 2 in collectives.
        ("prefill", 4, 4, 18, 18, 0, 4, 14, 2),
        # Two decode steps a rank: 3 + 1 each.
        ("decode", 8, 8, 16, 16, 0, 4, 12, 4),
        ("sampling", 6, 0, 6, 0, 6, 0, 6, 6),
        ("unmapped", 0, 0, 0, 0, 0, 0, 0, 0),
        ("no_range", 0, 0, 0, 0, 0, 0, 0, 0),
        ("no_api", 0, 0, 0, 0, 0, 0, 0, 0),
    ]
    assert rows(tables["phases"], "gpu_pct ranks_n")[:3] == [(45.0, 2), (40.0, 2), (15.0, 2)]


def test_phases_tell_how_much_host_time_they_have(tables):
    assert rows(tables["phases"], "phase host_ns")[:3] == [
        ("prefill", 22),
        ("decode", 44),
        ("sampling", 24),
    ]


def test_ranks_are_compared_by_what_they_do_themselves(tables):
    assert rows(tables["rank_phases"], "rank phase gpu_ns work_ns") == [
        (0, "prefill", 8, 6),
        (0, "decode", 8, 6),
        (0, "sampling", 3, 3),
        (1, "prefill", 10, 8),
        (1, "decode", 8, 6),
        (1, "sampling", 3, 3),
    ]


def test_steps_are_told_one_by_one(tables):
    names = "rank step name phase warmup start_ns host_ns gpu_ns ops_n kernels_n"
    assert rows(tables["steps"], names)[:3] == [
        (0, 0, "step 0", "prefill", False, 0, 18, 9, 3, 2),
        (0, 1, "step 1", "decode", False, 20, 18, 5, 3, 2),
        (0, 2, "step 2", "decode", False, 40, 18, 5, 3, 2),
    ]
    # The first step: 100-108 and the copy at 112-113.
    assert rows(tables["steps"], "gpu_start_ns gpu_end_ns span_ns idle_inside_ns")[0] == (
        100,
        113,
        13,
        4,
    )


def test_percentiles_of_steps_are_those_of_all_ranks(tables):
    stats = tables["step_stats"]
    stats = stats[stats["measure"] == "gpu"]
    assert rows(stats, "which phase steps_n total_ns p50_ns max_ns") == [
        ("steady", None, 6, 40, 5.0, 11),
        ("steady", "prefill", 2, 20, 10.0, 11),
        ("steady", "decode", 4, 20, 5.0, 5),
    ]
    assert rows(tables["phase_steps"], "phase steps_n total_ns p50_ns max_ns") == [
        ("prefill", 2, 18, 9.0, 10),
        ("decode", 4, 16, 4.0, 4),
        ("sampling", 6, 6, 1.0, 1),
    ]
    assert rows(tables["rank_steps"], "rank name steps_n warmup_n host_p50_ns gpu_pct") == [
        (0, "step #", 3, 0, 18.0, 100.0),
        (1, "step #", 3, 0, 18.0, 100.0),
    ]


def test_what_phases_are_made_of(tables):
    names = "phase op name category launches_n total_ns mean_ns phase_pct"
    parts = rows(tables["phase_kernels"], names)
    assert parts[0] == ("prefill", "kernel", "gemm", "gemm", 2, 14, 7.0, 100 * 14 / 18)
    assert parts[2] == ("sampling", "memcpy", "memcpy DtoH", "memcpy", 6, 6, 1.0, 100.0)
    categories = rows(tables["phase_categories"], "phase category total_ns")
    assert categories[:2] == [("prefill", "gemm", 14), ("prefill", "communication", 4)]


def test_gaps_belong_to_the_phase_of_the_operation_that_ends_them(tables):
    # Rank 0: 108-112 before the copy, 113-120 before decode, 124-132, 133-140, 144-152.
    # Rank 1: the prefill ends at 110.
    assert rows(tables["phase_idle"], "phase gaps_n idle_ns within_ns before_ns") == [
        ("sampling", 6, 4 + 8 + 8 + 2 + 8 + 8, 0, 38),
        ("decode", 4, 7 * 4, 0, 28),
    ]


def test_ranges_have_names_with_running_numbers_as_one(tables):
    names = "name instances_n host_ns self_host_ns inclusive_ns self_ns ops_n kernels_n"
    assert rows(tables["ranges"], names) == [
        ("prefill", 2, 22, 22, 18, 18, 4, 4),
        ("decode", 4, 44, 44, 16, 16, 8, 8),
        ("sample", 6, 24, 24, 6, 6, 6, 0),
        ("step #", 6, 108, 108 - 22 - 44 - 24, 40, 0, 18, 12),
    ]
    assert rows(tables["ranges"], "name example phase span_ns idle_inside_ns")[3] == (
        "step #",
        "step 0",
        None,
        # 100-113 twice; 120-133 and 140-153 on two ranks.
        6 * 13,
        4 + 2 + 8 * 4,
    )


def test_the_tree_of_ranges_adds_up(tables):
    names = "path depth instances_n self_ns inclusive_ns inclusive_pct"
    assert rows(tables["range_tree"], names) == [
        ("step #", 0, 6, 0, 40, 100.0),
        ("step # / prefill", 1, 2, 18, 18, 45.0),
        ("step # / decode", 1, 4, 16, 16, 40.0),
        ("step # / sample", 1, 6, 6, 6, 15.0),
    ]


def test_times_per_token(tmp_path):
    frames = quick(written(server(), tmp_path), "--tokens-per-step", "4")
    assert frames["steps"]["token_ns"].tolist() == [4.5] * 3
    phases = dict(rows(frames["phase_steps"], "phase token_p50_ns"))
    assert phases == {"prefill": 2.0, "decode": 1.0, "sampling": 0.25}


def test_names_of_an_engines_steps_tell_tokens(tmp_path):
    names = ("execute_context_1(30)_generation_2(2)", "execute_context_0(0)_generation_4(4)")
    trace = TraceBuilder()
    for number, name in enumerate(names * 2):
        at_ns = 1_000 * number
        trace.nvtx(name, at_ns, at_ns + 640).kernel(
            "k", start_ns=at_ns + 20, duration_ns=100, launch=(at_ns + 1, at_ns + 5)
        )
    steps = quick(trace.write_sqlite(tmp_path / "r.sqlite"))["steps"]
    # 640 ns by 30 + 2 tokens, and by 4.
    assert steps["token_ns"].tolist() == [20.0, 160.0] * 2


def test_first_steps_that_take_far_longer_are_warm_up(tmp_path):
    trace = TraceBuilder()
    for number, (start, end) in enumerate([(0, 50), (50, 60), (60, 70), (70, 82)]):
        trace.nvtx(f"step {number}", start, end).nvtx("decode", start + 1, end - 1)
        trace.kernel("k", start_ns=start + 4, duration_ns=2, launch=(start + 2, start + 3))
    frames = quick(written(trace, tmp_path))
    assert frames["steps"]["warmup"].tolist() == [True, False, False, False]
    stats = rows(frames["step_stats"], "which phase measure steps_n total_ns")
    assert ("warm-up", None, "host", 1, 50) in stats
    assert ("steady", None, "host", 3, 32) in stats


def test_a_range_that_is_the_step_can_be_named(tmp_path):
    frames = quick(written(server(), tmp_path), "--step", "sample")
    assert rows(frames["steps"], "name gpu_ns") == [("sample", 1)] * 3
    assert rows(frames["rank_steps"], "name gpu_pct") == [("sample", 100 * 3 / 19)]


def test_steps_that_a_filter_leaves_keep_their_numbers(tmp_path):
    frames = quick(written(server(), tmp_path), "--steps", "1:")
    assert rows(frames["steps"], "step gpu_ns since_first_ns") == [(1, 5, 20), (2, 5, 40)]
    phases = {name: ns for name, ns in rows(frames["phases"], "phase gpu_ns") if ns}
    assert phases == {"decode": 8, "sampling": 2}
    # Only ranges around something that is left count.
    assert dict(rows(frames["ranges"], "name instances_n")) == {
        "decode": 2,
        "sample": 2,
        "step #": 2,
    }


def test_host_time_of_a_phase_is_whole_under_a_filter(tmp_path):
    # What is inside without GPU work is part of it; so is a step around it, which is no phase.
    trace = TraceBuilder().nvtx("all", 0, 60).nvtx("idle", 50, 56)
    trace.nvtx("decode", 1, 41).nvtx("aten::empty", 10, 30).nvtx("decode", 70, 80)
    trace.kernel("a", start_ns=100, duration_ns=2, launch=(2, 3))
    trace.kernel("a", start_ns=104, duration_ns=2, launch=(45, 46))
    trace.kernel("b", start_ns=110, duration_ns=3, launch=(71, 72), device_id=1)
    frames = quick(written(trace, tmp_path), "--device", "0")
    assert dict(rows(frames["phases"], "phase host_ns")) == {
        "decode": 40,
        "unmapped": 20,
        "no_range": 0,
        "no_api": 0,
    }


@pytest.mark.parametrize("words", [(), ("--device", "0,5000")])
def test_operations_of_devices_that_take_turns_are_kept_apart(tmp_path, words):
    """Device -1 has 3 kernels of 6 ns, 14 ns apart; 0 has 2 of 5 and a copy; 5000 computes once."""
    trace = TraceBuilder()
    for number in range(3):
        begin = 100 + 20 * number
        trace.nvtx("decode", begin - 10, begin - 5)
        place = {"launch": (begin - 9, begin - 8)}
        trace.kernel("a", start_ns=begin, duration_ns=6, device_id=-1, **place)
        if number == 1:
            trace.kernel("b", start_ns=begin + 2, duration_ns=9, device_id=5_000, **place)
            trace.memcpy("HtoD", start_ns=begin + 1, duration_ns=4, size_bytes=1, **place)
        else:
            trace.kernel("ncclDevKernel_AllReduce", start_ns=begin, duration_ns=5, **place)
    frames = quick(written(trace, tmp_path), *words)
    phases = frames["phases"].set_index("phase")
    names = ["gpu_ns", "exclusive_ns", "communication_ns", "idle_ns"]
    decode = phases.loc["decode", names]
    # Of windows of 46, 45 and 9 ns.
    assert tuple(decode) == ((41, 41, 10, 28 + 31) if not words else (23, 23, 10, 31))


def test_a_step_that_a_filter_leaves_without_gpu_time_is_a_step(tmp_path):
    trace = server()
    trace.kernel("empty", start_ns=160, duration_ns=0, launch=(56, 57), device_id=1)
    frames = quick(written(trace, tmp_path), "--device", "1")
    assert rows(frames["steps"], "step name ops_n gpu_ns phase") == [(2, "step 2", 1, 0, None)]


def test_a_range_in_pieces_counts_where_it_is_seen_first(tmp_path):
    trace = TraceBuilder().nvtx("a", 0, 20).nvtx("b", 10, 30, domain="N")
    trace.kernel("k", start_ns=100, duration_ns=3, launch=(12, 13))
    trace.kernel("k", start_ns=110, duration_ns=4, launch=(24, 25), device_id=1)
    path = written(trace, tmp_path)
    names = "label instances_n host_ns self_ns inclusive_ns span_ns"
    # What is left was launched in the second piece; the host time is whole.
    assert rows(quick(path, "--device", "1")["ranges"], names) == [("b@N", 1, 20, 4, 4, 4)]


def test_start_end_ranges_around_another_one_count_under_a_filter(tmp_path):
    trace = TraceBuilder().nvtx("prefill", 0, 50, kind="start_end")
    trace.nvtx("request", 10, 40, kind="start_end")
    trace.kernel("k", start_ns=100, duration_ns=3, launch=(12, 13))
    trace.kernel("k", start_ns=110, duration_ns=4, launch=(60, 61), device_id=1)
    frames = quick(written(trace, tmp_path), "--device", "0")
    assert sorted(rows(frames["ranges"], "label instances_n host_ns inclusive_ns span_ns")) == [
        ("prefill", 1, 50, 3, 3),
        ("request", 1, 30, 3, 3),
    ]
    assert rows(frames["phases"], "phase gpu_ns instances_n")[0] == ("prefill", 3, 1)


def test_every_path_of_the_tree_is_there_once(tmp_path):
    trace = TraceBuilder().nvtx("a / b", 0, 10).nvtx("a", 20, 40).nvtx("b", 22, 30)
    trace.nvtx("c", 50, 60, kind="start_end").nvtx("c [start/end]", 70, 80)
    for number, at in enumerate([2, 24, 52, 72]):
        trace.kernel("k", start_ns=100 + number, duration_ns=1, launch=(at, at + 1))
    tree = quick(written(trace, tmp_path))["range_tree"]
    assert tree["path"].is_unique
    assert sorted(rows(tree, "label depth inclusive_ns")) == [
        ("a", 0, 1),
        ("a / b", 0, 1),
        ("b", 1, 1),
        ("c", 0, 1),
        ("c [start/end]", 0, 1),
    ]


def test_a_rank_without_ranges_leaves_the_tree_of_the_others_as_deep_as_it_is(tmp_path):
    paths = []
    for name in ("none", "some"):
        trace = TraceBuilder().kernel("k", start_ns=100, duration_ns=1, launch=(3, 4))
        if name == "some":
            trace.nvtx("a", 0, 50).nvtx("b", 1, 40).nvtx("c", 2, 30)
        paths.append(written(trace, tmp_path, name))
    tree = quick(*paths)["range_tree"]
    assert rows(tree, "label depth") == [("a", 0), ("b", 1), ("c", 2)]


@pytest.mark.slow
def test_running_numbers_can_be_kept_or_hidden(tmp_path):
    trace = TraceBuilder()
    for step in range(3):
        trace.nvtx(f"step {step}", 20 * step, 20 * step + 18)
        for layer in range(2):
            at = 20 * step + 2 + 8 * layer
            trace.nvtx(f"layer {layer}", at, at + 6)
            trace.kernel("k", start_ns=at + 2, duration_ns=1, launch=(at + 1, at + 2))
    path = written(trace, tmp_path)

    def names(*words):
        return sorted(quick(path, *words)["ranges"]["name"])

    assert names() == ["layer 0", "layer 1", "step #"]
    assert names("--running-numbers", "hide") == ["layer #", "step #"]
    assert len(names("--running-numbers", "keep")) == 5


def test_a_number_that_counts_up_on_one_rank_is_hidden_on_all(tmp_path):
    counting, alone = TraceBuilder(), TraceBuilder()
    for step in range(4):
        counting.nvtx(f"step {step}", 20 * step, 20 * step + 18)
    alone.nvtx("step 7", 0, 18)
    for trace in (counting, alone):
        trace.kernel("k", start_ns=4, duration_ns=3, launch=(2, 3))
    frames = quick(written(counting, tmp_path, "rank0"), written(alone, tmp_path, "rank1"))
    assert rows(frames["ranges"], "name ranks_n instances_n self_ns") == [("step #", 2, 5, 6)]
    assert rows(frames["range_tree"], "path self_ns") == [("step #", 6)]


def test_domains_are_told_apart_and_shown(tmp_path):
    trace = (
        TraceBuilder().nvtx("decode", 0, 20).nvtx("decode", 2, 8, domain="NCCL", registered=True)
    )
    trace.kernel("a", start_ns=30, duration_ns=3, launch=(4, 5))
    trace.kernel("b", start_ns=40, duration_ns=4, launch=(9, 10))
    frames = quick(written(trace, tmp_path))
    assert rows(frames["ranges"], "label domain self_ns inclusive_ns") == [
        ("decode", "", 4, 7),
        ("decode@NCCL", "NCCL", 3, 3),
    ]
    assert rows(frames["range_tree"], "path self_ns")[1] == ("decode / decode@NCCL", 3)
    # One instance: the inner range has the same phase.
    assert rows(frames["phases"], "phase gpu_ns instances_n")[0] == ("decode", 7, 1)


def test_where_gpu_time_goes_lost_and_why(tmp_path):
    trace = TraceBuilder().nvtx("decode", 10, 20).nvtx("x", 30, 40, kind="start_end")
    trace.kernel("early", start_ns=1, duration_ns=1)
    trace.kernel("a", start_ns=21, duration_ns=2, launch=(12, 13))
    trace.kernel("outside", start_ns=31, duration_ns=3, launch=(25, 26))
    trace.kernel("free", start_ns=41, duration_ns=4, launch=(33, 34))
    trace.kernel("other", start_ns=51, duration_ns=5, launch=(15, 16), tid=9)
    trace.kernel("no call", start_ns=61, duration_ns=6)
    frames = quick(written(trace, tmp_path))
    assert rows(frames["attribution"], "part attributed ops_n gpu_ns gpu_pct") == [
        ("launch", True, 1, 2, 100 * 2 / 21),
        ("start_end", True, 1, 4, 100 * 4 / 21),
        ("unmarked_thread", False, 1, 5, 100 * 5 / 21),
        ("outside_ranges", False, 1, 3, 100 * 3 / 21),
        ("before_capture", False, 1, 1, 100 * 1 / 21),
        ("no_call", False, 1, 6, 100 * 6 / 21),
    ]
    (coverage,) = [row for row in frames["coverage"].to_dict("records") if row["op"] == "kernel"]
    assert (coverage["range_missing_n"], coverage["range_missing_ns"]) == (2, 8)
    assert (coverage["attributed_ns"], coverage["api_missing_ns"]) == (6, 7)


@pytest.mark.slow
def test_without_ranges_all_is_told_as_lost(tmp_path):
    trace = TraceBuilder().kernel("a", start_ns=5, duration_ns=4, launch=(1, 2))
    frames = quick(written(trace, tmp_path))
    assert rows(frames["attribution"], "part gpu_ns") == [("no_ranges", 4)]
    for name in ("ranges", "range_tree", "steps", "step_stats", "phase_steps"):
        assert len(frames[name]) == 0
    frames = quick(written(TraceBuilder().kernel("a", start_ns=5, duration_ns=4), tmp_path, "b"))
    assert rows(frames["attribution"], "part gpu_ns") == [("no_calls", 4)]


def test_time_in_which_a_graph_without_a_row_may_have_run_is_not_idle(tmp_path):
    trace = TraceBuilder(schema="3.7.2").nvtx("decode", 0, 40)
    trace.kernel("a", start_ns=50, duration_ns=4, launch=(1, 2))
    trace.kernel("b", start_ns=90, duration_ns=4, launch=(21, 22))
    trace.graph_launch([("n", 60, 80)], launch=(10, 12), mode="graph")
    frames = quick(written(trace, tmp_path))
    # From the end of a to the begin of b, which was launched after the graph.
    assert set(plain(frames["phases"])["idle_ns"]) == {0}
    assert plain(frames["phase_idle"])["idle_ns"] == [0]


@pytest.mark.slow
def test_a_map_of_one_s_own(tmp_path):
    map_path = tmp_path / "phases.json"
    map_path.write_text(json.dumps({"tail": ["sample", "re:^never"], "all": "step"}))
    path = written(server(), tmp_path)
    phases = quick(path, "--phase-map", str(map_path))["phases"]
    assert rows(phases, "phase gpu_ns")[:2] == [("all", 16), ("tail", 3)]
    phases = quick(path, "--phase-map", "vllm,sglang")["phases"]
    assert rows(phases, "phase gpu_ns")[0] == ("unmapped", 19)


def test_the_capture_of_nodes_comes_first_if_asked(tmp_path):
    trace = TraceBuilder().nvtx("layer", 1, 9).graph_node(501, start_ns=3)
    trace.graph_node((1 << 32) + 1, start_ns=12, original_node_id=501)
    trace.nvtx("decode", 20, 90).graph_launch([("node", 100, 105)], launch=(30, 32))
    path = written(trace, tmp_path)
    for words, part in (((), "graph_launch"), (("--graph-ranges", "capture"), "graph_capture")):
        frames = quick(path, *words)
        assert rows(frames["attribution"], "part gpu_ns") == [(part, 5)]
    # Runs of a graph are no length of the range that captured it.
    assert rows(frames["ranges"], "name self_ns span_ns") == [
        ("layer", 5, 0),
        ("decode", 0, 0),
    ]


def test_odd_ranges_cost_nothing_but_themselves(tmp_path):
    trace = TraceBuilder().nvtx("decode", 0, 50).nvtx("backwards", 30, 20).nvtx("empty", 5, 5)
    trace.raw("NVTX_EVENTS", start=1, end=40, eventType=59, textId=4711)
    trace.raw("NVTX_EVENTS", start=2, end=30, eventType=59, text=None)
    trace.raw("NVTX_EVENTS", start=3, end=20, eventType=59, text="nobody's", globalTid=None)
    trace.nvtx("mark", 4, kind="mark").nvtx("open", 49, None)
    trace.kernel("a", start_ns=60, duration_ns=4, launch=(6, 7))
    trace.kernel("b", start_ns=70, duration_ns=5, launch=(35, 36))
    trace.kernel("c", start_ns=80, duration_ns=6, launch=(45, 46))
    tables = quick(written(trace, tmp_path))
    assert tables["phases"]["gpu_ns"].sum() == 15
    assert dict(rows(tables["phases"], "phase gpu_ns"))["decode"] == 15
    assert rows(tables["marks"], "empty_n without_end_n") == [(2, 1)]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is no JSON"),
        ("[]", "must be a JSON object"),
        ("{}", "must be a JSON object"),
        ('{"a": []}', "needs a pattern"),
        ('{"a": [1]}', "needs a pattern"),
        ('{"a": "re:("}', "not a regular expression"),
        ('{"a": ""}', "is empty"),
        ('{"no_api": "x"}', "cannot be called 'no_api'"),
        ('{" ": "x"}', "cannot be called"),
    ],
)
def test_a_map_that_means_nothing_is_refused_in_one_line(tmp_path, content, said):
    path = tmp_path / "m.json"
    path.write_text(content)
    with pytest.raises(UsageError) as caught:
        read_phase_map(str(path))
    assert said in caught.value.message
    assert "m.json" in caught.value.message
    with pytest.raises(UsageError, match=r"cannot be read .*vllm, sglang"):
        read_phase_map(str(tmp_path / "absent.json"))
