"""Waits in the operating system, and call stacks of slow API calls, planted by hand."""

from __future__ import annotations

from results import rows, tables_of

from nsys_llm.testing.trace_builder import TraceBuilder


def waiting():
    """The GPU is busy [10, 20) and [30, 40), launched on thread 100; 101 launches nothing.

    thread  function  call
    100     poll      [12, 26)   8 ns busy, 6 idle
    100     read      [2, 8)     before the first operation
    101     poll      [0, 50)
    """
    trace = TraceBuilder().kernel("k", start_ns=10, end_ns=20, launch=(8, 9))
    trace.kernel("k", start_ns=30, end_ns=40, launch=(27, 28))
    trace.osrt("poll", start_ns=12, end_ns=26).osrt("read", start_ns=2, end_ns=8)
    return trace.osrt("poll", start_ns=0, end_ns=50, tid=101)


def tables(tmp_path, trace, *options):
    return tables_of(tmp_path / "o", trace.write_sqlite(tmp_path / "t.sqlite"), options=options)


def test_os_calls_are_summed_by_function_and_on_threads_that_launch(tmp_path):
    os_waits = tables(tmp_path, waiting())["os_waits"]
    names = "function threads_n calls_n total_ns thread_union_ns p50_ns max_ns longest_start_ns"
    assert rows(os_waits, names) == [
        ("poll", 2, 2, 64, 64, 32.0, 50, 0),
        ("read", 1, 1, 6, 6, 6.0, 6, 2),
    ]
    names = "launching_ns launching_hidden_ns launching_outside_ns launching_exposed_ns"
    assert rows(os_waits, names) == [(14, 8, 0, 6), (6, 0, 6, 0)]


def test_os_calls_follow_the_filters_as_api_calls_do(tmp_path):
    window = tables(tmp_path, waiting(), "--filter-time", "14/22")["os_waits"]
    # 8 ns of each poll, and neither starts there.
    assert rows(window, "function calls_n total_ns p50_ns") == [("poll", 0, 16, None)]
    trace = waiting().nvtx("step", 0, 9)
    chosen = tables_of(
        tmp_path / "chosen",
        trace.write_sqlite(tmp_path / "chosen.sqlite"),
        options=["--filter-nvtx", "step"],
    )["os_waits"]
    assert rows(chosen, "function calls_n total_ns") == [("read", 1, 6)]


MAIN = ["cudaMalloc", "torch::empty", "main"]


def slow_calls():
    trace = TraceBuilder().kernel("k", start_ns=0, end_ns=9, launch=(0, 1))
    # Two chains with the same frames are one stack.
    stacks = [trace.call_stack(MAIN), trace.call_stack(MAIN), trace.call_stack(MAIN[:2])]
    for at, (stack, length) in enumerate(zip(stacks, (5, 7, 3), strict=True)):
        trace.api("cudaMalloc_v3020", start_ns=10 * at, duration_ns=length, callchain_id=stack)
    trace.api("cudaFree_v3020", start_ns=40, duration_ns=4, callchain_id=stacks[0])
    return trace.api("cudaFree_v3020", start_ns=50, duration_ns=90)


def test_call_stacks_are_those_of_calls_that_have_one_and_sum_their_time(tmp_path):
    stacks = tables(tmp_path, slow_calls())["callstacks"]
    assert rows(stacks, "api class stack calls_n total_ns max_ns first_start_ns") == [
        ("cudaMalloc", "alloc", "cudaMalloc < torch::empty < main", 2, 12, 7, 0),
        ("cudaFree", "free", "cudaMalloc < torch::empty < main", 1, 4, 4, 40),
        ("cudaMalloc", "alloc", "cudaMalloc < torch::empty", 1, 3, 3, 20),
    ]


def test_call_stacks_take_calls_that_start_in_the_window(tmp_path):
    stacks = tables(tmp_path, slow_calls(), "--filter-time", "2/25")["callstacks"]
    # The call at 0 reaches into the window; those at 10 and 20 start there.
    assert rows(stacks, "calls_n total_ns first_start_ns") == [(1, 7, 10), (1, 3, 20)]


def test_an_address_without_a_symbol_is_shown_with_its_library(tmp_path):
    trace = TraceBuilder().kernel("k", start_ns=0, end_ns=9)
    stack = trace.call_stack(["0x7f12", "main"], module="/opt/lib/libvendor.so.1")
    trace.api("cudaFree_v3020", start_ns=1, end_ns=3, callchain_id=stack)
    stacks = tables(tmp_path, trace)["callstacks"]
    assert stacks["stack"].tolist() == ["libvendor.so.1!0x7f12 < main"]


def test_a_very_deep_stack_says_how_many_frames_are_left_out(tmp_path):
    trace = TraceBuilder().kernel("k", start_ns=0, end_ns=9)
    stack = trace.call_stack([f"f{depth}" for depth in range(70)])
    trace.api("cudaFree_v3020", start_ns=1, end_ns=3, callchain_id=stack)
    (text,) = tables(tmp_path, trace)["callstacks"]["stack"]
    assert text.endswith("f62 < f63 < (6 more frames)")
