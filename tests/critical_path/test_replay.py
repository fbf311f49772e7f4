"""The joined graph of a rank against a plain recursion over all operations and calls."""

from __future__ import annotations

import functools
import math
import sys
from dataclasses import replace

import numpy as np
import pytest
from effort import over_seeds
from machine import random_program, simulate, write_profiles
from quick_run import quick

from nsys_llm.critical_path.path.outline import crossed
from nsys_llm.critical_path.rank import replay as per_rank
from nsys_llm.critical_path.replay import solve
from nsys_llm.critical_path.replay.condensed import Condenser
from nsys_llm.critical_path.replay.skeleton import NEVER, skeleton
from nsys_llm.critical_path.replay.solve import Clamps, beyond_others, levels, longest

SEEDS = range(6)


def caught(monkeypatch, folder, seed, **rows):
    """Return graph, marks and skeleton of each rank of a random job."""
    captured, graphs = [], []
    monkeypatch.setattr(
        per_rank, "rank_graph", lambda *parts: graphs.append(rank_graph(*parts)) or graphs[-1]
    )

    def spied(graph, marks):
        captured.append((graph, marks, skeleton(graph, marks)))
        return captured[-1][2]

    monkeypatch.setattr(per_rank, "skeleton", spied)
    write_profiles(simulate(random_program(seed, ranks_n=2)), folder, **rows)
    quick("step_budget", folder)
    return captured


rank_graph = per_rank.rank_graph


def plain_ends(graph, marks, weights):
    """Return when each operation ends, by recursion; communication takes its own time."""
    ops, calls = graph.edges.ops, graph.edges.host.calls
    waiting = {int(call): place for place, call in enumerate(graph.waiting)}
    waits = by_target(graph.waits, weights.wake, weights.waits)
    links = by_target(graph.links, weights.link)
    hands = by_target(graph.hands, weights.hand)

    @functools.cache
    def begin(call):
        first = call == calls.bounds[calls.thread[call]]
        handed = [returned(int(source)) + lag for source, lag in hands.get(call, [])]
        if first:
            return max(handed, default=int(calls.start_ns[call]))
        return max([returned(call - 1) + int(weights.gap[call]), *handed])

    @functools.cache
    def returned(call):
        if call not in waiting:
            return begin(call) + int(weights.call[call])
        place = waiting[call]
        woken = [end(source) + lag for source, lag in waits.get(place, [])]
        return max([begin(call) + int(weights.unblocked[place]), *woken])

    @functools.cache
    def start(op):
        place, ways = int(ops.place[op]), []
        if place >= 0:
            launched = begin(place) if graph.in_call[op] else returned(place)
            ways.append(launched + int(weights.launch[op]))
        if graph.follows[op]:
            ways.append(end(op - 1) + int(weights.stream[op]))
        ways += [end(source) + lag for source, lag in links.get(op, [])]
        return max(ways, default=int(ops.start_ns[op]))

    @functools.cache
    def end(op):
        return start(op) + int(weights.op[op])

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        return [end(op) for op in range(len(ops))]
    finally:
        sys.setrecursionlimit(limit)


def by_target(links, lags, chosen=None):
    sources = {}
    for place, (source, target) in enumerate(zip(links.source, links.target, strict=True)):
        if chosen is None or chosen[place]:
            sources.setdefault(int(target), []).append((int(source), int(lags[place])))
    return sources


def joined_ends(graph, marks, condensed, weights):
    """Return when each end is, by the joined graph."""
    ns, through = Condenser(graph, marks, condensed).weights(weights)
    assert through.size == condensed.group_of.size
    order = levels(condensed.base_ns.size, condensed.source, condensed.target)
    assert order.is_whole
    at_ns = longest(order, condensed.base_ns, condensed.source, ns[:, None])
    return at_ns[condensed.ends_from : condensed.begins_from, 0]


def shaken(weights, rng):
    """Return weights of random lengths, and some waits gone."""
    changed = {
        name: rng.integers(0, 3 * np.abs(ns) + 100)
        for name, ns in vars(weights).items()
        if name != "waits"
    }
    return replace(weights, **changed, waits=rng.random(weights.waits.size) < 0.7)


@pytest.mark.slow
@pytest.mark.parametrize(
    "rows", [pytest.param({}, marks=pytest.mark.nightly), {"event_rows": False, "sync_rows": False}]
)
def test_the_joined_graph_is_exact_for_whatever_weights(tmp_path, monkeypatch, rows):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        for graph, marks, condensed in caught(monkeypatch, tmp_path / str(seed), seed, **rows):
            for weights in (graph.observed, graph.usual, shaken(graph.observed, rng)):
                ends = plain_ends(graph, marks, weights)
                latest = np.full(marks.ends_n, NEVER)
                for op, end in marks.tails.tolist():
                    latest[end] = max(latest[end], ends[op])
                reached = latest > NEVER
                joined = joined_ends(graph, marks, condensed, weights)
                assert (joined[reached] == latest[reached]).all(), seed
            assert plain_ends(graph, marks, graph.observed) == graph.edges.ops.end_ns.tolist()


@pytest.mark.parametrize("narrow", [0, 1 << 30])
def test_longest_ways_are_those_of_a_plain_search(monkeypatch, narrow):
    monkeypatch.setattr(solve, "_NARROW", narrow)
    for seed in range(200):
        rng = np.random.default_rng(seed)
        nodes_n = int(rng.integers(2, 12))
        pairs = [(low, high) for high in range(nodes_n) for low in range(high)]
        chosen = [pair for pair in pairs if rng.random() < 0.4]
        names = rng.permutation(nodes_n)
        source = np.array([names[low] for low, _ in chosen], dtype=np.int64)
        target = np.array([names[high] for _, high in chosen], dtype=np.int64)
        ns, base_ns = rng.integers(0, 50, (len(chosen), 3)), rng.integers(0, 50, nodes_n)
        expected = np.full((nodes_n, 3), NEVER)
        for node in range(nodes_n):
            into = [place for place, (_, high) in enumerate(chosen) if high == node]
            ways = [expected[chosen[place][0]] + ns[place] for place in into]
            expected[node] = np.max(ways, axis=0) if ways else base_ns[names[node]]
        order = levels(nodes_n, source, target)
        assert order.is_whole
        assert (longest(order, base_ns, source, ns)[names] == expected).all()


def test_nodes_that_wait_for_each_other_are_in_no_level():
    source, target = np.array([0, 1, 2]), np.array([1, 2, 1])
    assert not levels(3, source, target).is_whole


def test_what_is_late_counts_as_the_median_of_what_else_arrives_with_its_jitter():
    source, target = np.array([0, 1, 2]), np.array([3, 3, 3])
    base_ns, ns = np.array([10, 20, 90, NEVER]), np.zeros((3, 3), dtype=np.int64)
    third, jitter_ns = np.array([False, False, True]), np.array([0, 0, 7])
    late = Clamps((1, 2), (third, third), (0 * jitter_ns, jitter_ns))
    order = levels(4, source, target)
    assert longest(order, base_ns, source, ns, late)[3].tolist() == [90, 20, 22]


@over_seeds(range(30), each_n=30)
def test_beyond_others_is_beyond_the_median_of_those_that_are_not_chosen(seed):
    rng = np.random.default_rng(seed)
    values, group = rng.integers(0, 50, (2, 12)) // [[1], [10]]
    chosen = rng.random(12) < 0.4
    expected = []
    for value, number in zip(values, group, strict=True):
        others = values[(group == number) & ~chosen]
        expected.append(value - math.floor(np.median(others)) if others.size else 0)
    assert beyond_others(values, group, chosen).tolist() == expected


def test_inferred_edges_are_counted_within_each_walk():
    walk = np.array([0, 0, 0, 2, 2, 5])
    assert crossed(np.array([1, 0, 1, 0, 1, 1]), walk).tolist() == [1, 1, 2, 0, 1, 1]
    assert crossed(walk[:0], walk[:0]).tolist() == []
