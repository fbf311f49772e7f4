"""Findings about collectives, out of finished tables; each is turned on and off by its numbers."""

from __future__ import annotations

import pytest
from finding_numbers import unexplained_numbers
from planted import frame_of

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.recipes.tail_stats.findings.answer import answer, findings
from nsys_llm.report.findings import CAPTURE, finding_record

MS = 1_000_000
SPAN_NS = 100 * MS
TABLES = [table.file for table in load_manifest("tail_stats").writes]


def rank(number, **cells):
    """Return a rank of four that meet 90 times, and wait 30 ms in all."""
    usual = {
        "communicator": "0-3", "rank": number, "file": f"rank{number}", "device_id": 0,
        "ranks_n": 4, "collectives_n": 90, "late_n": 10, "late_pct": 11.1, "unclear_n": 0,
        "pattern": "none", "caused_wait_ns": 3 * MS, "caused_pct": 10.0, "profiler_ns": 0,
        "late_by_ns": MS, "suffered_wait_ns": 9 * MS, "suffered_profiler_ns": 0,
        "wait_ns": 30 * MS, "span_ns": SPAN_NS, "residual_ns": 0,
        "caused_first_third_pct": 80.0, "caused_second_third_pct": 90.0,
        "caused_last_third_pct": 70.0,
        "worst_late_by_ns": 700, "window_start_ns": 5_000, "window_end_ns": 9_000,
    }  # fmt: skip
    return {**usual, **cells}


LATE = {
    "pattern": "persistent",
    "caused_wait_ns": 24 * MS,
    "late_n": 80,
    "late_by_ns": 7 * MS,
    "suffered_wait_ns": MS,
}


def sequence(**cells):
    usual = {
        "communicator": "0-3", "operation": "all_reduce", "kernel": "nccl", "ranks_n": 4,
        "collectives_n": 90, "class": "skew", "total_ns": 40 * MS, "wait_ns": 30 * MS,
        "confidence": "high", "span_ns": SPAN_NS,
    }  # fmt: skip
    return {**usual, **cells}


def device(number, **cells):
    """Return a device of which half computes, a fifth communicates, and the rest is idle."""
    usual = {
        "rank": number, "file": f"rank{number}", "launches_n": 900, "total_ns": 50 * MS,
        "window_ns": SPAN_NS, "idle_ns": 30 * MS, "p50_others_p50": 1.0,
    }  # fmt: skip
    return {**usual, **cells}


def wall(number, waiting_ns=15 * MS):
    parts = [
        ("compute", None, 50 * MS),
        ("communication", "waiting", waiting_ns),
        ("communication", "transfer", 20 * MS - waiting_ns),
        ("idle", None, 30 * MS),
    ]
    common = {"rank": number, "file": f"rank{number}", "span_ns": SPAN_NS}
    return [
        {**common, "wall_class": name, "detail": detail, "time_ns": time_ns}
        for name, detail, time_ns in parts
    ]


def tables(*ranks, sequences=None, coverage=(), devices=None, walls=None, rank_tails=()):
    members = {row["rank"] for row in ranks}
    rows = {
        "tails": [{"name": "gemm", "launches_n": 900}],
        "stragglers": ranks,
        "communicators": [sequence()] if sequences is None else sequences,
        "collective_coverage": coverage,
        "tail_ranks": [device(number) for number in members] if devices is None else devices,
        "rank_tails": rank_tails,
        "wall": [part for number in members for part in wall(number)] if walls is None else walls,
    }
    return {name: frame_of(name, rows.get(name, []), "tail_stats") for name in TABLES}


def findings_by_rule(given):
    listed = findings(given)
    assert all(unexplained_numbers(finding_record(finding)) == [] for finding in listed)
    return {
        finding.rule: finding
        for finding in listed
        if finding.kind == CAPTURE or finding.severity is not None
    }


def pace(number, mean_ns):
    """Return a kernel of 1,000 launches of one length on one rank; the usual is 50 us."""
    return {
        "rank": number, "name": "gemm", "config": "1", "launches_n": 1_000, "p50_ns": mean_ns,
        "mean_ns": mean_ns, "total_ns": int(1_000 * mean_ns), "others_p50_ns": 50_000.0,
        "communication": False,
    }  # fmt: skip


def test_a_slow_gpu_gains_its_time_beyond_the_median_of_the_others():
    devices = [
        device(
            number,
            p50_others_p50=1.2 if number == 2 else 1.0,
            total_ns=60 * MS if number == 2 else 50 * MS,
        )
        for number in range(4)
    ]
    rank_tails = [pace(number, 60_000.0 if number == 2 else 50_000.0) for number in range(4)]
    given = tables(
        rank(2, **LATE), rank(0), rank(1), rank(3), devices=devices, rank_tails=rank_tails
    )
    (finding,) = findings_by_rule(given).values()
    assert (finding.rule, finding.severity, finding.rank, finding.culprit) == (
        "persistent_straggler", "high", 2, "rank:2",
    )  # fmt: skip
    assert finding.title == "Rank 2 is a straggler: compute 20.0 % longer"
    # 1,000 launches of 10 us more, of a span of 100 ms.
    assert (finding.gain.gain_ns, finding.gain.is_bound, finding.gain.basis) == (
        10 * MS,
        True,
        "device",
    )
    assert finding.gain.wall_classes == ("compute",)
    assert finding.window_ns == (5_000, 9_000)
    # Nobody gains more than the others are in communication.
    walls = [part for number in range(4) for part in wall(number)]
    for part in walls:
        part["time_ns"] //= 4 if part["wall_class"] == "communication" and part["rank"] != 2 else 1
    given = tables(
        rank(2, **LATE),
        rank(0),
        rank(1),
        rank(3),
        devices=devices,
        rank_tails=rank_tails,
        walls=walls,
    )
    assert findings_by_rule(given)["persistent_straggler"].gain.gain_ns == 5 * MS


def test_a_late_host_gains_the_idle_time_of_its_gpu_beyond_the_others():
    devices = [device(number, idle_ns=36 * MS if number == 2 else 30 * MS) for number in range(4)]
    (finding,) = findings_by_rule(
        tables(rank(2, **LATE), rank(0), rank(1), rank(3), devices=devices)
    ).values()
    assert finding.title == "Rank 2 is a straggler: its host is late"
    assert (finding.gain.gain_ns, finding.gain.is_bound, finding.gain.basis) == (
        6 * MS,
        False,
        "idle",
    )
    assert finding.gain.wall_classes == ("idle",)
    # No more than what it came late by.
    late = {**LATE, "late_by_ns": 4 * MS}
    given = tables(rank(2, **late), rank(0), rank(1), rank(3), devices=devices)
    assert findings_by_rule(given)["persistent_straggler"].gain.gain_ns == 4 * MS


def test_more_kernels_gain_what_an_even_share_takes_away():
    devices = [device(number, total_ns=(58 if number == 2 else 50) * MS) for number in range(4)]
    (finding,) = findings_by_rule(
        tables(rank(2, **LATE), rank(0), rank(1), rank(3), devices=devices)
    ).values()
    assert finding.title == "Rank 2 is a straggler: kernels for 8 ms more"
    assert finding.gain.gain_ns == 6 * MS


@pytest.mark.parametrize(
    ("late_ns", "severity"), [(10 * MS, "high"), (3 * MS, "medium"), (MS, "low"), (MS - 1, None)]
)
def test_a_straggler_without_a_reason_gains_what_it_came_after_the_second_last(late_ns, severity):
    by_rule = findings_by_rule(tables(rank(2, **{**LATE, "late_by_ns": late_ns}), rank(0)))
    assert [finding.severity for finding in by_rule.values()] == [severity] * (severity is not None)
    assert all(
        finding.gain.gain_ns == late_ns and not finding.gain.is_bound
        for finding in by_rule.values()
    )


@pytest.mark.parametrize(("last_third_pct", "again"), [(44.0, True), (43.0, False)])
def test_a_transient_straggler_is_told_as_such(last_third_pct, again):
    # Of 4 ranks, one stands out from 43.75 % on.
    shares = {"pattern": "transient", "caused_last_third_pct": last_third_pct}
    burst = {"burst_start_ns": 10**9, "burst_end_ns": 2 * 10**9}
    finding = findings_by_rule(tables(rank(1, **LATE, **burst) | shares, rank(0)))[
        "transient_straggler"
    ]
    when = "again and again" if again else "from 1.000000000 s to 2.000000000 s"
    assert finding.title == f"Rank 1 is a straggler {when}: it comes last by 7 ms in all"
    assert finding.window_ns == ((5_000, 9_000) if again else (10**9, 2 * 10**9))


def test_a_rank_that_waited_for_a_late_one_elsewhere_is_not_to_blame():
    # Rank 0 is slow; rank 1 waits for it in one group, and comes late to rank 5 by that.
    first = [rank(0, **LATE), rank(1, suffered_wait_ns=8 * MS)]
    second = [
        rank(1, communicator="1, 5", ranks_n=2, **LATE),
        rank(5, communicator="1, 5", ranks_n=2),
    ]
    sequences = [sequence(), sequence(communicator="1, 5", ranks_n=2)]
    given = tables(*first, *second, sequences=sequences)
    assert [finding.rank for finding in findings_by_rule(given).values()] == [0]
    # Without that waiting, it is its own lateness.
    first[1]["suffered_wait_ns"] = MS
    given = tables(*first, *second, sequences=sequences)
    late = [finding.rank for finding in findings(given) if finding.rule == "persistent_straggler"]
    assert sorted(late) == [0, 1]


def test_waiting_that_nobody_is_to_blame_for_is_that_of_the_rank_that_waits_longest():
    ranks = [rank(number, suffered_wait_ns=(5 + number) * MS) for number in range(4)]
    (finding,) = findings_by_rule(tables(*ranks)).values()
    assert (finding.rule, finding.rank, finding.severity) == ("collective_waits", 3, "medium")
    assert finding.title == "Waiting without a straggler: 8 ms in 90 all-reduces"
    assert (finding.gain.gain_ns, finding.gain.is_bound) == (8 * MS, True)
    assert finding.culprit == "communicator:0-3"
    # The profiler's part is left out, and what runs beside computation.
    ranks[3] |= {"suffered_wait_ns": 12 * MS, "suffered_profiler_ns": 3 * MS}
    assert findings_by_rule(tables(*ranks))["collective_waits"].gain.gain_ns == 9 * MS
    hidden = [part for number in range(4) for part in wall(number, waiting_ns=2 * MS)]
    assert findings_by_rule(tables(*ranks, walls=hidden))["collective_waits"].gain.gain_ns == 2 * MS
    # Who meets a late rank waits for it.
    by_rule = findings_by_rule(tables(rank(2, **LATE), *ranks[:2]))
    assert "collective_waits" not in by_rule


def test_of_two_ranks_that_come_last_in_turn_none_is_named():
    two = {"ranks_n": 2, "collectives_n": 33}
    first = rank(0, **two, suffered_wait_ns=11 * MS)
    second = rank(1, **two, suffered_wait_ns=2 * MS, caused_wait_ns=11 * MS, late_n=22)
    given = tables(first, second)
    (finding,) = findings_by_rule(given).values()
    assert finding.title == "Waiting without a straggler: 11 ms in 33 all-reduces"
    # Neither is to blame: the rank is that of the GPU whose time it is.
    assert (finding.culprit, finding.rank) == (f"communicator:{first['communicator']}", 0)
    assert "rank 1" not in finding.details
    assert answer(given).startswith(
        "No rank is late more often than chance explains; rank 0 waits 11 ms in 33 all-reduces "
        "(11.0 % of its span)."
    )


def test_clocks_that_are_less_exact_than_the_lateness_name_no_rank():
    unclear = {"pattern": "inconclusive", "unclear_n": 60, "residual_ns": 90_000}
    given = tables(rank(0, **unclear), rank(1, **unclear))
    (finding,) = findings_by_rule(given).values()
    assert (finding.rule, finding.kind, finding.rank) == ("clocks_too_uncertain", CAPTURE, None)
    assert "90 us" in finding.details
    assert "waits" not in answer(given)
    # On one clock, ranks that come together are no matter of clocks.
    same = {**unclear, "residual_ns": 0}
    assert set(findings_by_rule(tables(rank(0, **same), rank(1, **same)))) == {"collective_waits"}


def test_few_collectives_are_said_where_ranks_wait_in_them():
    few = {"pattern": "inconclusive", "collectives_n": 14}
    by_rule = findings_by_rule(tables(rank(0, **few), rank(1, **few)))
    assert set(by_rule) == {"few_collectives", "collective_waits"}
    assert by_rule["collective_waits"].details.startswith(
        "Among ranks `0-3`, there are too few collectives"
    )
    assert by_rule["collective_waits"].title.startswith("Waiting for unknown ranks: ")
    little = {**few, "wait_ns": 3 * MS}
    assert "few_collectives" not in findings_by_rule(tables(rank(0, **little), rank(1, **little)))


def test_low_confidence_names_nobody_and_is_said():
    unsure = sequence(confidence="low", communicator="4-7", total_ns=60 * MS)
    ranks = [rank(2, **LATE), rank(0), rank(5, **LATE, communicator="4-7")]
    ranks[2]["communicator"] = "4-7"
    by_rule = findings_by_rule(tables(*ranks, sequences=[sequence(), unsure]))
    assert by_rule["persistent_straggler"].rank == 2
    # 60 of 100 ms.
    assert by_rule["uncertain_matches"].title.startswith("60.0 % of the time in collectives")
    little = {**unsure, "total_ns": 4 * MS}
    assert "uncertain_matches" not in findings_by_rule(
        tables(*ranks, sequences=[sequence(), little])
    )


def cover(number, kernels_n, unmatched_n):
    cells = {"rank": number, "file": f"rank{number}", "operation": "all_reduce"}
    return {**cells, "kernels_n": kernels_n, "unmatched_n": unmatched_n}


@pytest.mark.parametrize(
    ("lost_n", "ranks_n", "is_reported"), [(10, 2, True), (9, 2, False), (50, 1, False)]
)
def test_kernels_without_a_partner_are_said_from_a_tenth_on(lost_n, ranks_n, is_reported):
    # A capture of one rank has no partners to offer.
    rows = [cover(number, 100 // ranks_n, 0 if number else lost_n) for number in range(ranks_n)]
    given = tables(rank(0), rank(1), coverage=rows)
    assert ("unmatched_collectives" in findings_by_rule(given)) == is_reported


def test_no_collectives_give_no_finding_and_no_word():
    given = tables(sequences=[], devices=[device(0)], walls=wall(0))
    assert findings(given) == []
    assert answer(given).startswith("No compute kernel takes more than twice its median")
