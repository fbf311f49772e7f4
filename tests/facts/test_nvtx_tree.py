"""Ranges as trees against a plain search through all of them."""

from __future__ import annotations

import time

import numpy as np
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.nvtx import nvtx_tree as nvtx_tree_module
from nsys_llm.facts.nvtx.nvtx_tree import NvtxTree, innermost_events
from nsys_llm.profile.tables import Table

THREADS = (11, 12)
CAPTURE_END = 40


def events(*ranges):
    """Return NVTX events of (start, end, thread[, kind])."""
    rows = [(*row, 59)[:4] for row in ranges]
    columns = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    names = ("start_ns", "end_ns", "global_tid", "event_type")
    return Table(dict(zip(names, columns, strict=True)))


def tree(*ranges):
    return NvtxTree.of(events(*ranges), CAPTURE_END)


def test_pieces_of_nested_ranges_are_the_ranges():
    nvtx_tree = tree((0, 9, 11), (2, 5, 11), (2, 4, 11), (6, 8, 11), (20, 30, 11))
    assert nvtx_tree.event.tolist() == [0, 1, 2, 3, 4]
    assert nvtx_tree.parent.tolist() == [-1, 0, 1, 0, -1]
    assert nvtx_tree.depth.tolist() == [0, 1, 2, 1, 0]
    assert nvtx_tree.self_host_ns().tolist() == [9 - 3 - 2, 3 - 2, 2, 2, 10]
    assert nvtx_tree.first.all()


def test_ranges_without_an_end_last_to_the_end_of_the_capture_and_are_counted():
    nvtx_tree = tree((0, NULL_INT, 11), (3, 3, 11), (5, 4, 11), (7, 9, 11))
    assert nvtx_tree.end_ns.tolist() == [CAPTURE_END, 9]
    assert (nvtx_tree.without_end_n, nvtx_tree.empty_n) == (1, 2)


def test_without_ranges_nothing_is_open():
    for empty in (NvtxTree.of(None, 9), tree(), tree((0, 9, 11, 34))):
        assert len(empty) == 0
        assert empty.thread_codes(np.array([11])).tolist() == [-1]
        assert empty.innermost(np.array([empty.free, -1]), np.array([3, 4])).tolist() == [-1, -1]
        assert empty.nearest(np.empty(0, dtype=bool)).size == 0


@pytest.mark.parametrize("kind", [59, 60])
@pytest.mark.parametrize(
    "times", [(NULL_INT, 30), (NULL_INT, 0), (NULL_INT + 1, 30), (-(2**62), 30), (3, 2**63 - 1)]
)
def test_nothing_lies_in_a_range_without_times_that_a_capture_can_have(times, kind):
    table = events((2, 9, 11), (*times, 11, kind))
    nvtx_tree = NvtxTree.of(table, CAPTURE_END)
    assert (nvtx_tree.event.tolist(), nvtx_tree.parent.tolist()) == ([0], [-1])
    assert nvtx_tree.empty_n == 1
    row = innermost_events(table, np.array([1, 5, 20]), np.full(3, 11), CAPTURE_END)
    assert row.tolist() == [-1, 0, -1]


def test_more_pieces_than_can_be_are_not_made(monkeypatch):
    monkeypatch.setattr("nsys_llm.facts.nvtx.nvtx_tree._PIECES_EACH", 1)
    monkeypatch.setattr("nsys_llm.facts.nvtx.nvtx_tree._PIECES_MORE", 0)
    nvtx_tree = tree((0, 10, 11), (5, 15, 11))
    assert (nvtx_tree.end_ns.tolist(), nvtx_tree.parent.tolist()) == ([10, 10], [-1, 0])


RANGES = st.lists(
    st.tuples(
        st.integers(0, 25),
        st.one_of(st.integers(0, 12), st.none()),
        st.sampled_from(THREADS),
        st.sampled_from([59, 59, 59, 60, 34]),
    ),
    max_size=14,
)


def as_events(ranges):
    return events(
        *(
            (start, NULL_INT if length is None else start + length, tid, kind)
            for start, length, tid, kind in ranges
        )
    )


def open_at(table, tid, at, kind=59):
    """Return the ranges open on a thread, outermost first: by start, the longer first."""
    rows = []
    for row in range(len(table)):
        start, end = int(table["start_ns"][row]), int(table["end_ns"][row])
        end = CAPTURE_END if end == NULL_INT else end
        belongs = table["event_type"][row] == kind and (
            kind == 60 or table["global_tid"][row] == tid
        )
        if belongs and start <= at < end:
            rows.append((start, -end, row))
    return [row for _, _, row in sorted(rows)]


@pytest.mark.slow
@examples(300)
@given(RANGES)
def test_the_path_of_every_instant_is_what_is_open_there(ranges):
    table = as_events(ranges)
    nvtx_tree = NvtxTree.of(table, CAPTURE_END)
    instants = np.arange(CAPTURE_END + 1)
    for tid in THREADS:
        code = nvtx_tree.thread_codes(np.full(instants.shape, tid))
        for at, piece in enumerate(nvtx_tree.innermost(code, instants).tolist()):
            path = []
            while piece >= 0:
                path.insert(0, int(nvtx_tree.event[piece]))
                piece = int(nvtx_tree.parent[piece])
            assert path == open_at(table, tid, at)
    free = nvtx_tree.innermost(np.full(instants.shape, nvtx_tree.free), instants)
    for at, piece in enumerate(free.tolist()):
        around = open_at(table, None, at, 60)
        assert (piece < 0 and not around) or nvtx_tree.event[piece] == around[-1]


@pytest.mark.slow
@examples(150)
@given(RANGES, st.data())
def test_trees_are_sound(ranges, data):
    nvtx_tree = NvtxTree.of(as_events(ranges), CAPTURE_END)
    inner = np.flatnonzero(nvtx_tree.parent >= 0)
    above = nvtx_tree.parent[inner]
    assert (above < inner).all()
    assert (nvtx_tree.start_ns[above] <= nvtx_tree.start_ns[inner]).all()
    assert (nvtx_tree.end_ns[above] >= nvtx_tree.end_ns[inner]).all()
    assert (nvtx_tree.depth[inner] == nvtx_tree.depth[above] + 1).all()
    assert (nvtx_tree.self_host_ns() >= 0).all()
    assert np.unique(nvtx_tree.event[nvtx_tree.first]).size == nvtx_tree.first.sum()
    assert set(nvtx_tree.event.tolist()) == set(nvtx_tree.event[nvtx_tree.first].tolist())
    chosen = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(nvtx_tree), max_size=len(nvtx_tree))),
        dtype=bool,
    )
    for piece, nearest in enumerate(nvtx_tree.nearest(chosen).tolist()):
        while piece >= 0 and not chosen[piece]:
            piece = int(nvtx_tree.parent[piece])
        assert nearest == piece


@examples(80)
@given(RANGES)
def test_the_short_way_for_few_launches_finds_the_same(ranges):
    table = as_events(ranges)
    nvtx_tree = NvtxTree.of(table, CAPTURE_END)
    instants = np.arange(CAPTURE_END)
    for tid in THREADS:
        thread = np.full(instants.shape, tid)
        piece = nvtx_tree.innermost(nvtx_tree.thread_codes(thread), instants)
        free = nvtx_tree.innermost(np.full(instants.shape, nvtx_tree.free), instants)
        piece = np.where(piece < 0, free, piece)
        short = innermost_events(table, instants, thread, CAPTURE_END)
        assert np.append(nvtx_tree.event, -1)[piece].tolist() == short.tolist()


@pytest.mark.parametrize("steps", [0, 1, 16])
def test_what_is_open_behind_a_deep_chain_is_found_whatever_its_depth(monkeypatch, steps):
    monkeypatch.setattr(nvtx_tree_module, "_STEPS_UP", steps)
    # One around all, then 60 in one another that end one by one from 100 on.
    nvtx_tree = tree((0, 1_000, 11), *((1 + at, 160 - at, 11) for at in range(60)))
    at_ns = np.arange(-2, 1_003)
    found = nvtx_tree.innermost(np.zeros(at_ns.size, dtype=np.int64), at_ns)
    expected = [
        max(
            (row for row in range(61) if nvtx_tree.start_ns[row] <= at < nvtx_tree.end_ns[row]),
            default=-1,
        )
        for at in at_ns.tolist()
    ]
    assert found.tolist() == expected


def test_launches_behind_a_deep_chain_do_not_walk_it():
    depth, launches_n = 2_000, 200_000
    nvtx_tree = tree((0, 10**7, 11), *((1 + at, 10_000 - at, 11) for at in range(depth)))
    at_ns = np.arange(20_000, 20_000 + launches_n)
    began_s = time.process_time()
    found = nvtx_tree.innermost(np.zeros(launches_n, dtype=np.int64), at_ns)
    assert time.process_time() - began_s < 1  # 0.05 s; 4 s where each launch walks the chain
    assert (found == 0).all()
