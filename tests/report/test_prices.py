"""Prices by hand: bound, usual size, and when a replay counts."""

from __future__ import annotations

import pandas as pd
import pytest

from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import Finding
from nsys_llm.report.price import price_words
from nsys_llm.report.prices.pricing import priced

SPAN_NS = 1_000
WALL = {
    ("compute", "gemm"): 500,
    ("communication", "transfer"): 100,
    ("communication", "waiting"): 60,
    ("communication", "not_matched"): 40,
    ("idle", "host_sync"): 90,
    ("idle", "launch_api"): 30,
    ("idle", "queued"): 80,
    ("idle", "module_load"): 100,
}


def wall(**others):
    rows = [
        {"rank": 0, "file": "rank0", "device_id": 0, "wall_class": name, "detail": detail}
        | {"time_ns": time_ns, "span_ns": SPAN_NS, "span_start_ns": 0, "span_end_ns": SPAN_NS}
        | others
        for (name, detail), time_ns in WALL.items()
    ]
    return pd.DataFrame(rows)


def replayed(change, gain_ns, *, residual_ns=0, wait_pct=0.0, host_pct=0.0, unmatched_pct=0.0):
    """Return tables of a job of 10 steps of 100 ns, one of them replayed with a change."""
    steps = {"mark": [""] * 10, "wall_ns": [100] * 10}
    row = {"change": change, "gain_ns": gain_ns, "now_ns": 100.0, "then_ns": 100.0 - gain_ns}
    path = {"scope": "job", "class": "communication", "detail": None, "share_pct": unmatched_pct}
    return {
        "what_if": pd.DataFrame([row | {"wait_pct": wait_pct, "host_pct": host_pct}]),
        "replay": pd.DataFrame(steps | {"replayed_ns": [100 + residual_ns] * 10}),
        "step_classes": pd.DataFrame([path]),
        "job_steps": pd.DataFrame(steps),
        "rank_edges": pd.DataFrame([{"rank": 0, "step_unit": "step"}]),
    }


def verdict(name, about_ns, more_pct=None, bound_ns=None):
    row = {"rank": 0, "device_id": 0, "verdict": name, "about_ns": about_ns}
    row |= {"bound_ns": bound_ns, "more_pct": more_pct, "late_ns": None}
    return {"rank_verdicts": pd.DataFrame([row]), "files": pd.DataFrame({"host": ["node-0"]})}


def price_of(change, **tables):
    words = {"title": "a", "details": "b", "tables": ("wall",), "recommendation": "c"}
    finding = Finding(
        rule="r", scope="run", cause=Cause("host"), change=change, rank=0, device_id=0, **words
    )
    ((one),) = priced([finding], {"wall": wall(), **tables})
    return one.price


@pytest.mark.parametrize(
    ("change", "bound_ns", "about_ns"),
    [
        # Half of the transfer, and of what is not matched.
        (Change("transfer"), 140, 70),
        # Neither what was queued nor what loads code is the host's.
        (Change("host"), 120, 120),
        (Change("wait", "cudaStreamSynchronize"), None, None),
        (Change("queued"), 80, 40),
        (Change("queued", "long"), 80, None),
        (Change("idle", "module_load"), 100, 100),
        (Change("kernels", "old_attention", time_ns=300), 150, 100),
        (Change("kernels", "gemms_without_tensor_cores", time_ns=320), 300, 160),
        (Change("kernels", time_ns=200), 200, None),
        # No more than computes.
        (Change("launches", "k", time_ns=600), 500, 500),
        (Change("microbatches", time_ns=300), 300, 150),
        (Change("experts", time_ns=50), 50, 50),
        (Change("unknown", time_ns=300, wall_classes=("idle",)), 300, None),
    ],
)
def test_bounds_and_usual_sizes(change, bound_ns, about_ns):
    price = price_of(change)
    usual = None if about_ns is None else pytest.approx(about_ns, abs=1)
    assert (price.bound_ns, price.about_ns) == (bound_ns, usual)
    assert price.about_basis == (None if about_ns is None else "usual")


def test_a_replay_that_counts_is_the_price_within_the_bound():
    price = price_of(Change("host"), **replayed("host=0", 8.0))
    assert (price.about_ns, price.about_basis, price.bound_ns) == (80, "replay", 120)
    assert price.gain_step_ns == pytest.approx(8.0)
    assert price_of(Change("host"), **replayed("host=0", 50.0)).about_ns == 120
    # A wait has no bound; who launches earlier is waited for less, too.
    wait = Change("wait", "cudaStreamSynchronize")
    fast = replayed("wait:cudaStreamSynchronize", 50.0)
    assert price_of(wait, **fast).about_ns == 120 + 60
    assert price_of(wait, **fast, **verdict("profiler", None)).about_ns == 120


@pytest.mark.parametrize(
    ("change", "text", "given", "reason"),
    [
        (Change("host"), "host=0", {"residual_ns": 4}, "residual"),
        (Change("transfer"), "transfer=0.5", {"wait_pct": 51.0}, "fixed_latency"),
        (Change("transfer"), "transfer=0.5", {"unmatched_pct": 10.5}, "not_matched"),
        (Change("transfer"), "other", {}, "not_replayed"),
    ],
)
def test_a_replay_that_does_not_count_says_why(change, text, given, reason):
    price = price_of(change, **replayed(text, 3.0, **given))
    assert (price.replay_reason, price.about_basis) == (reason, "usual")
    # At the limit it counts; and of the host it does, however long calls wait.
    limits = {"residual_ns": 3, "wait_pct": 50.0, "unmatched_pct": 10.0, "host_pct": 50.0}
    assert price_of(Change("transfer"), **replayed("transfer=0.5", 3.0, **limits)).about_ns == 30
    assert price_of(Change("host"), **replayed("host=0", 3.0, wait_pct=90.0)).about_ns == 30


def test_a_host_that_nothing_recorded_paces_is_ahead():
    tables = replayed("transfer=0.5", 3.0, host_pct=60.0)
    assert price_of(Change("transfer"), **tables).about_basis == "replay"
    idle = wall()
    idle.loc[idle["detail"].isin(["host_sync", "launch_api"]), "detail"] = "queued"
    assert price_of(Change("transfer"), **tables, wall=idle).replay_reason == "host_ahead"


@pytest.mark.parametrize(
    ("gain_ns", "about_ns", "reason"),
    [(9.0, 90, None), (20.0, 100, None), (5.0, 50, None), (4.0, 100, "contradicted")],
)
def test_a_rank_is_priced_by_its_judge_and_a_replay_that_agrees(gain_ns, about_ns, reason):
    tables = replayed("rank:rank0", gain_ns) | verdict("slow_gpu", 100)
    price = price_of(Change("rank"), **tables)
    assert (price.about_ns, price.bound_ns, price.replay_reason) == (about_ns, 100, reason)
    # Its bound is all that it computes longer, of a machine all ranks are replayed.
    more = replayed("machine:node-0", gain_ns) | verdict("slow_host", 100, 50.0)
    price = price_of(Change("rank"), **more)
    assert (price.about_ns, price.bound_ns, price.replay_reason) == (about_ns, 167, reason)


def test_who_waits_for_a_host_gains_what_it_comes_earlier():
    price = price_of(Change("host"), **verdict("late_host", 50), **replayed("host=0", 30.0))
    assert (price.about_ns, price.bound_ns) == (170, 170)
    assert price_of(Change("host"), **verdict("slow_gpu", 50)).bound_ns == 120
    assert price_of(Change("rank"), **verdict("late_host", 50)).bound_ns == 120
    assert price_of(Change("rank"), **verdict("late", 50)).bound_ns == 50


def test_a_rank_for_whom_nobody_waits_has_no_price():
    price = price_of(Change("rank"), **verdict("slow_gpu", None), **replayed("rank:rank0", 9.0))
    assert (price.about_ns, price.bound_ns, price.severity) == (None, None, None)


def test_where_nobody_knows_who_waits_for_a_rank_no_replay_tells_what_it_gains():
    known = verdict("slow_gpu", None, bound_ns=80)
    price = price_of(Change("rank"), **known, **replayed("rank:rank0", 0.5))
    assert (price.about_ns, price.bound_ns, price.replay_reason) == (None, 80, "not_matched")


@pytest.mark.parametrize(
    ("worst_ns", "words"),
    [(29, "about 30 ns, 3.0 % (at most 12.0 %)"), (5, "about 3 ns a step, 3.0 % (at most 12.0 %)")],
    ids=["once", "in every step"],
)
def test_what_one_step_has_is_no_mean_step(worst_ns, words):
    path = {"change": "class", "name": "host_no_cuda", "path_ns": 3.0, "worst_ns": worst_ns}
    tables = replayed("host=0", 3.0) | {"ceilings": pd.DataFrame([path])}
    assert price_words(price_of(Change("host"), **tables)) == words


def test_a_little_that_one_step_has_on_the_path_is_not_all_that_is_gained():
    path = {"change": "class", "name": "transfer", "path_ns": 0.5, "worst_ns": 5}
    tables = replayed("transfer=0.5", 3.0) | {"ceilings": pd.DataFrame([path])}
    assert price_of(Change("transfer"), **tables).gain_step_ns == 3.0


@pytest.mark.parametrize(("late_n", "each_ns"), [(3, None), (4, 5.0)])
def test_what_few_steps_have_is_no_mean_step(late_n, each_ns):
    tables = verdict("pauses", 50) | replayed("rank:rank0", 5.0)
    tables["rank_verdicts"]["late_steps_n"] = late_n
    assert price_of(Change("rank"), **tables).gain_step_ns == each_ns


def test_a_wait_that_goes_while_the_host_paces_the_step_gains_nothing_known():
    wait = Change("wait", "cudaStreamSynchronize")
    fits = replayed("wait:cudaStreamSynchronize", 3.0, host_pct=50.0)
    assert price_of(wait, **fits).about_ns == 30
    paced = replayed("wait:cudaStreamSynchronize", 3.0, host_pct=51.0)
    price = price_of(wait, **paced)
    assert (price.about_ns, price.replay_reason) == (None, "host_ahead")


def test_copies_gain_no_more_than_a_job_without_any():
    copies = wall()
    copies.loc[copies["detail"] == "queued", "wall_class"] = "copies"
    change = Change("copies")
    assert price_of(change, wall=copies).about_ns == 80
    assert price_of(change, wall=copies, **replayed("copies=0", 3.0)).about_ns == 30
    kept = replayed("copies=0", 3.0, wait_pct=51.0)
    assert price_of(change, wall=copies, **kept).about_ns == 80


@pytest.mark.parametrize(("span_ns", "basis"), [(10_000, "replay"), (10_001, "usual")])
def test_a_replay_of_steps_says_nothing_of_a_span_that_they_hardly_fill(span_ns, basis):
    price = price_of(Change("host"), **replayed("host=0", 8.0), wall=wall(span_ns=span_ns))
    assert price.about_basis == basis
