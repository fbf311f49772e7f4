"""Findings about collectives, out of finished tables; each is turned on and off by its numbers."""

from __future__ import annotations

import pytest
from finding_numbers import unexplained_numbers
from planted import frame_of

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.recipes.tail_stats.findings.answer import answer
from nsys_llm.recipes.tail_stats.findings.answer import findings as unpriced
from nsys_llm.report.findings import CAPTURE, finding_record
from nsys_llm.report.prices.pricing import priced


def findings(tables):
    return priced(unpriced(tables), tables)


MS = 1_000_000
SPAN_NS = 100 * MS
TABLES = [table.file for table in load_manifest("tail_stats").writes]


def rank(number, **cells):
    """Return a rank of four that meet 90 times, and wait 30 ms in all."""
    usual = {
        "communicator": "0-3", "rank": number, "file": f"rank{number}",
        "ranks_n": 4, "collectives_n": 90, "late_n": 10, "late_pct": 11.1,
        "caused_wait_ns": 3 * MS, "suffered_wait_ns": 9 * MS, "wait_ns": 30 * MS,
    }  # fmt: skip
    return {**usual, **cells}


VERDICT = {
    "rank": 2, "device_id": 0, "peer_group": 0, "peers_n": 4, "verdict": "late",
    "more_pct": 0.0, "late_ns": 1e5, "chance": 0.0, "about_ns": 7 * MS,
}  # fmt: skip
LATE = {"caused_wait_ns": 24 * MS, "late_n": 80, "suffered_wait_ns": MS}


def sequence(**cells):
    usual = {
        "communicator": "0-3", "operation": "all_reduce", "collectives_n": 90,
        "total_ns": 40 * MS, "confidence": "high", "staged": False,
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


def tables(*ranks, sequences=None, coverage=(), walls=None):
    members = {row["rank"] for row in ranks}
    rows = {
        "tails": [{"name": "gemm", "launches_n": 900}],
        "stragglers": ranks,
        "communicators": [sequence()] if sequences is None else sequences,
        "collective_coverage": coverage,
        "tail_ranks": [{"rank": number} for number in members or {0}],
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


@pytest.mark.slow
def test_waiting_that_nobody_is_to_blame_for_is_that_of_the_rank_that_waits_longest():
    ranks = [rank(number, suffered_wait_ns=(5 + number) * MS) for number in range(4)]
    (finding,) = findings_by_rule(tables(*ranks)).values()
    assert (finding.rule, finding.rank, finding.severity) == ("collective_waits", 3, "medium")
    assert finding.title == "Waiting without a straggler: rank 3 waits 8 ms in 90 all-reduces"
    assert (finding.price.bound_ns, finding.price.about_ns) == (8 * MS, None)
    assert finding.cause.kind == "waiting"
    # The profiler's part is left out, and what runs beside computation.
    ranks[3] |= {"suffered_wait_ns": 12 * MS, "suffered_profiler_ns": 3 * MS}
    assert findings_by_rule(tables(*ranks))["collective_waits"].price.gain_ns == 9 * MS
    hidden = [part for number in range(4) for part in wall(number, waiting_ns=2 * MS)]
    assert (
        findings_by_rule(tables(*ranks, walls=hidden))["collective_waits"].price.gain_ns == 2 * MS
    )
    # Who meets a rank with a verdict waits for it.
    given = tables(*ranks)
    given["rank_verdicts"] = frame_of("rank_verdicts", [VERDICT], "tail_stats")
    assert set(findings_by_rule(given)) == {"late"}


def test_waiting_for_uneven_experts_is_named():
    ranks = [rank(number, suffered_wait_ns=8 * MS) for number in range(4)]
    walls = [part for number in range(4) for part in wall(number, waiting_ns=MS)]
    experts = [{**walls[2], "rank": at, "detail": "experts", "time_ns": 6 * MS} for at in range(4)]
    (finding,) = findings_by_rule(tables(*ranks, walls=walls + experts)).values()
    assert finding.title == ("Rank 0 waits 8 ms in 90 all-reduces, most of it for uneven experts")
    assert "`comm_stats` shows" in finding.recommendation
    assert finding.price.gain_ns == 6 * MS


def test_of_two_ranks_that_come_last_in_turn_none_is_named():
    two = {"ranks_n": 2, "collectives_n": 33}
    first = rank(0, **two, suffered_wait_ns=11 * MS)
    second = rank(1, **two, suffered_wait_ns=2 * MS, caused_wait_ns=11 * MS, late_n=22)
    given = tables(first, second)
    (finding,) = findings_by_rule(given).values()
    assert finding.title == "Waiting without a straggler: rank 0 waits 11 ms in 33 all-reduces"
    # Neither is to blame: the rank is that of the GPU whose time it is.
    assert (finding.cause.kind, finding.cause.note, finding.rank) == ("waiting", "0-3", 0)


def test_clocks_that_are_less_exact_than_the_lateness_name_no_rank():
    unclear = {"unclear_n": 60, "residual_ns": 90_000}
    given = tables(rank(0, **unclear), rank(1, **unclear))
    (finding,) = findings_by_rule(given).values()
    assert (finding.rule, finding.kind, finding.rank) == ("clocks_too_uncertain", CAPTURE, None)
    assert "90 us" in finding.details
    assert "waits" not in answer(given)
    # On one clock, ranks that come together are no matter of clocks.
    same = {**unclear, "residual_ns": 0}
    assert set(findings_by_rule(tables(rank(0, **same), rank(1, **same)))) == {"collective_waits"}


def test_low_confidence_is_said():
    unsure = sequence(confidence="low", communicator="4-7", total_ns=60 * MS)
    ranks = [rank(2, **LATE), rank(0), rank(5, **LATE, communicator="4-7")]
    by_rule = findings_by_rule(tables(*ranks, sequences=[sequence(), unsure]))
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
    given = tables(sequences=[], walls=wall(0))
    assert findings(given) == []
    assert answer(given).startswith("No compute kernel takes more than twice its median")
