"""Call stacks of slow API calls, planted by hand."""

from __future__ import annotations

import pytest
from results import rows, tables_of
from trace_builder import TraceBuilder


def tables(tmp_path, trace, *options):
    return tables_of(tmp_path / "o", trace.write_sqlite(tmp_path / "t.sqlite"), options=options)


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


def test_a_very_deep_stack_says_how_many_frames_are_left_out(tmp_path):
    trace = TraceBuilder().kernel("k", start_ns=0, end_ns=9)
    stack = trace.call_stack([f"f{depth}" for depth in range(70)])
    trace.api("cudaFree_v3020", start_ns=1, end_ns=3, callchain_id=stack)
    (text,) = tables(tmp_path, trace)["callstacks"]["stack"]
    assert text.endswith("f62 < f63 < (6 more frames)")


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ((), ["secret.so", "secret.so", "libc.so.6", ""]),
        (("--anonymize",), ["other", "framework", "c_library", "unresolved"]),
    ],
)
def test_an_address_without_a_symbol_is_shown_with_its_library_or_the_class_of_it(
    tmp_path, words, names
):
    trace = TraceBuilder().kernel("k", start_ns=0, end_ns=9)
    paths = ["/home/me/secret.so", "/opt/torch/lib/secret.so", "/lib/libc.so.6", ""]
    for nth, path in enumerate(paths):
        stack = trace.call_stack([f"0x7f1{nth}", "main"], module=path)
        trace.api("cudaFree_v3020", start_ns=1 + nth, end_ns=2 + nth, callchain_id=stack)
    told = [f"{name}!0x7f1{nth} < main" for nth, name in enumerate(names)]
    assert sorted(tables(tmp_path, trace, *words)["callstacks"]["stack"]) == sorted(told)
