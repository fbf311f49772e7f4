"""Findings about collectives, out of finished tables; each is turned on and off by its numbers."""

from __future__ import annotations

import pandas as pd
import pytest

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.recipes.tail_stats.findings.collectives import collective_findings, waiting_words

MS = 1_000_000


def table(name, *rows):
    """Return a table of the recipe with these cells, the others null."""
    columns = [column.name for column in load_manifest("tail_stats").table(name).columns]
    return pd.DataFrame([{**dict.fromkeys(columns), **row} for row in rows], columns=columns)


def rank(number, **cells):
    """Return a rank of four that wait 30 ms in a communicator of 100 ms."""
    usual = {
        "communicator": "0-3", "rank": number, "file": f"rank{number}", "device_id": 0,
        "ranks_n": 4, "collectives_n": 90, "late_n": 10, "late_pct": 11.1, "unclear_n": 0,
        "pattern": "none", "caused_wait_ns": 3 * MS, "caused_pct": 10.0,
        "suffered_wait_ns": 9 * MS, "wait_ns": 30 * MS, "span_ns": 100 * MS, "residual_ns": 0,
        "late_first_third_pct": 10.0, "late_second_third_pct": 12.0, "late_last_third_pct": 11.0,
        "caused_first_third_pct": 80.0, "caused_second_third_pct": 90.0,
        "caused_last_third_pct": 70.0,
        "worst_late_by_ns": 700, "window_start_ns": 5_000, "window_end_ns": 9_000,
    }  # fmt: skip
    return {**usual, **cells}


LATE = {"pattern": "persistent", "caused_wait_ns": 24 * MS, "caused_pct": 80.0, "late_n": 80}


def sequence(**cells):
    usual = {
        "sequence_id": 0, "communicator": "0-3", "operation": "all_reduce", "kernel": "nccl",
        "ranks_n": 4, "collectives_n": 90, "class": "skew", "total_ns": 40 * MS,
        "wait_ns": 30 * MS, "wait_pct": 75.0, "transfer_ns": 2 * MS, "transfer_rank_ns": 8 * MS,
        "confidence": "high",
        "span_ns": 100 * MS,
    }  # fmt: skip
    return {**usual, **cells}


def cover(**cells):
    usual = {"rank": 0, "file": "rank0", "device_id": 0, "operation": "all_reduce"}
    return {**usual, "kernels_n": 90, "unmatched_n": 0, "over_limit_n": 0, **cells}


def tables(*ranks, sequences=(), coverage=(), paces=()):
    devices = [{"rank": number, "device_id": 0, "p50_others_p50": one} for number, one in paces]
    return {
        "rank_tails": table("rank_tails"),
        "tail_ranks": table("tail_ranks", *devices),
        "stragglers": table("stragglers", *ranks),
        "communicators": table("communicators", *(sequences or [sequence()])),
        "collective_coverage": table("collective_coverage", *(coverage or [cover()])),
    }


def found(given):
    return {one.rule: one for one in collective_findings(given)}


def test_a_persistent_straggler_is_named_with_what_it_costs_and_where_to_look():
    (one,) = found(tables(rank(2, **LATE), rank(0), rank(1), rank(3))).values()
    # 24 ms of the others' 3 x 100 ms.
    assert (one.rule, one.severity, one.rank) == ("persistent_straggler", "high", 2)
    assert one.window_ns == (5_000, 9_000)
    assert one.impact_ns == 24 * MS
    assert "8.0 %" in one.details
    assert "24 ms" in one.details
    assert "rank 2" in one.recommendation


@pytest.mark.parametrize(
    ("caused_ns", "severity"), [(15 * MS, "high"), (14 * MS, "medium"), (2 * MS, "low")]
)
def test_its_severity_follows_the_others_lost_time(caused_ns, severity):
    # 5, 4.7 and 0.67 % of 300 ms.
    (one,) = found(tables(rank(2, **{**LATE, "caused_wait_ns": caused_ns}))).values()
    assert one.severity == severity


def test_a_straggler_that_costs_nothing_is_no_finding():
    assert found(tables(rank(2, **{**LATE, "caused_wait_ns": 200_000}))) == {}


@pytest.mark.parametrize(
    ("last_third_pct", "when"), [(44.0, "again and again"), (43.0, "for a part of the run")]
)
def test_a_transient_straggler_is_told_as_such(last_third_pct, when):
    # Of 4 ranks, one stands out from 43.75 % on.
    shares = {"pattern": "transient", "caused_last_third_pct": last_third_pct}
    (one,) = found(tables(rank(1, **{**LATE, **shares}))).values()
    assert one.rule == "transient_straggler"
    assert one.title == f"Rank 1 makes the other ranks of 0-3 wait {when}"
    assert f"with 80.0 %, 90.0 %, {last_third_pct:.1f} % of the waiting" in one.details


@pytest.mark.parametrize(("pace", "told"), [(1.2, True), (1.04, False), (None, False)])
def test_slow_kernels_of_a_straggler_are_told_with_it(pace, told):
    (one,) = found(tables(rank(2, **LATE), paces=[(2, pace), (1, 1.9)])).values()
    assert ("its own kernels are 20.0 % above" in one.details) == told


def test_skew_that_no_rank_stands_out_in_is_told_of_the_communicator():
    given = tables(rank(0), rank(1), rank(2), rank(3))
    # 30 ms of 4 x 100 ms.
    assert found(given)["shared_skew"].severity == "high"
    assert found(tables(rank(0), sequences=[sequence(**{"class": "mixed"})])) == {}
    assert "shared_skew" not in found(tables(rank(2, **LATE), rank(0)))


def test_clocks_that_are_less_exact_than_the_lateness_name_no_rank():
    unclear = {"pattern": "inconclusive", "unclear_n": 60, "residual_ns": 900}
    given = tables(rank(0, **unclear), rank(1, **unclear))
    (one,) = found(given).values()
    assert (one.rule, one.severity, one.rank) == ("clocks_too_uncertain", "note", None)
    assert "900 ns" in one.details
    assert "for rank" not in waiting_words(given)
    # On one clock, ranks that come together are no matter of clocks.
    same = {**unclear, "residual_ns": 0}
    assert found(tables(rank(0, **same), rank(1, **same))) == {}


def test_collectives_that_transfer_for_long_blame_nobody():
    heavy = sequence(**{"class": "transfer", "transfer_ns": 10 * MS, "wait_pct": 5.0})
    one = found(tables(rank(0), sequences=[heavy]))["transfer_bound_collectives"]
    assert (one.scope, one.name, one.rank) == ("kernel", "nccl", None)
    # Many communicators that run the same kernel are one finding, the costliest in front.
    more = {**heavy, "sequence_id": 1, "communicator": "4-7", "transfer_rank_ns": 90 * MS}
    one = found(tables(rank(0), sequences=[heavy, more]))["transfer_bound_collectives"]
    assert one.title == "all_reduce of ranks 4-7 and 1 more communicator is transfer, not waiting"
    assert one.impact_ns == 98 * MS
    # One collective that may have been matched by chance says nothing.
    unsure = {**heavy, "confidence": "low"}
    assert found(tables(rank(0), sequences=[unsure])) == {}
    light = sequence(**{"class": "transfer", "transfer_ns": 9 * MS})
    assert found(tables(rank(0), sequences=[light])) == {}


def test_kernels_without_a_partner_are_told_from_a_tenth_on():
    def rules(lost_n, ranks_n=2):
        rows = [cover(rank=number) for number in range(ranks_n)]
        rows[0] |= {"kernels_n": 100 - 90 * (ranks_n - 1), "unmatched_n": lost_n}
        return set(found(tables(rank(0, **LATE), coverage=rows)))

    assert "unmatched_collectives" in rules(10)
    assert "unmatched_collectives" not in rules(9)
    # A capture of one rank has no partners to offer.
    assert "unmatched_collectives" not in rules(50, ranks_n=1)


def test_the_answer_tells_how_much_is_waiting_and_for_whom_where_that_can_be_told():
    told = waiting_words(tables(rank(0), rank(2, **LATE)))
    assert told.startswith("30 ms of 40 ms in collectives (75.0 %) is waiting for the last rank, ")
    assert told.endswith("24 ms of it for rank 2 (throughout)")
    assert waiting_words(tables(rank(0))).endswith("is waiting for the last rank")
    # What was matched with low confidence is in no sum, names no rank, and is said.
    unsure = sequence(confidence="low", total_ns=60 * MS, wait_ns=50 * MS, communicator="4-7")
    both = tables(
        rank(2, **LATE), rank(5, **LATE, communicator="4-7"), sequences=[sequence(), unsure]
    )
    told = waiting_words(both)
    assert told.startswith("30 ms of 40 ms in collectives")
    assert "for rank 2 (throughout); how much of 60 ms in collectives is waiting" in told
    assert {one.rank for one in collective_findings(both)} == {2}
    alone = tables(rank(5, **LATE, communicator="4-7"), sequences=[unsure])
    assert waiting_words(alone).startswith("how much of 60 ms in collectives is waiting is incon")
    assert collective_findings(alone) == []
    little = sequence(confidence="low", total_ns=4 * MS, wait_ns=3 * MS)
    told = waiting_words(tables(rank(0), sequences=[sequence(), little]))
    assert "inconclusive" not in told
    nothing = {
        "stragglers": table("stragglers"),
        "tail_ranks": table("tail_ranks"),
        "rank_tails": table("rank_tails"),
        "communicators": table("communicators"),
        "collective_coverage": table("collective_coverage"),
    }
    assert waiting_words(nothing) == ""
    assert collective_findings(nothing) == []
