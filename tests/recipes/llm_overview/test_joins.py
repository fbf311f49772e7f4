"""Which causes are one opportunity: a case in which each row of the table joins, and one not."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

from nsys_llm.recipes.llm_overview.findings.answer import fitted
from nsys_llm.recipes.llm_overview.tables import opportunities
from nsys_llm.recipes.llm_overview.tables.joins import JOINS, Opportunity, joined
from nsys_llm.report.causes import Cause
from nsys_llm.report.findings import Finding
from nsys_llm.report.price import Price

SPAN_NS = 1_000
SYNC = "cudaStreamSynchronize"


def item(kind, about_ns=None, *, bound_ns=None, basis="usual", classes=("idle",), **given):
    """Return an opportunity of one finding, whose title is its kind."""
    cause = Cause(kind, given.get("rank"), detail=given.get("detail"), note=given.get("note"))
    price = Price(SPAN_NS, classes, bound_ns, about_ns, None if about_ns is None else basis)
    finding = Finding(
        rule=given.get("rule", kind),
        scope="run",
        title=given.get("title", kind),
        details="a",
        tables=("wall",),
        recommendation="b",
        cause=cause,
        price=price,
        specificity=given.get("specificity", 0),
        rank=given.get("on", given.get("rank", 0)),
        device_id=0,
        ranks=given.get("ranks", ()),
        window_ns=given.get("window_ns"),
        impact_ns=given.get("impact_ns", about_ns or bound_ns or 0),
    )
    return Opportunity(((("r", 1), finding),), cause, price, (finding.rank, 0))


def replayed(kind, about_ns, **given):
    return item(kind, about_ns, basis="replay", **given)


POINTWISE = item("kernels", 200, detail="pointwise")
RANK = item("rank", 300, bound_ns=320, rank=1, note="late_host")
PLACE = item("place", bound_ns=90, rank=1, detail="decode")
PAUSES = item("rank", 300, rank=1, note="pauses")
COPIES = item("copies", 20, detail="HtoD")
MORE_WORK = item("rank", 40, rank=1, note="more_work")
HOST = replayed("host", 30, rank=1, impact_ns=160)


@pytest.mark.parametrize(
    ("part", "whole", "apart"),
    [
        (item("kernels", 50, detail="conversions"), POINTWISE, item("kernels", 200, detail="gemm")),
        (item("transfer", 90), item("schedule", 200, ranks=(0, 1)), item("schedule", 200)),
        (
            item("transfer", bound_ns=100),
            item("stage", 60, rule="unplaced_pipeline", impact_ns=50),
            item("stage", 60, rule="unplaced_pipeline", impact_ns=49),
        ),
        (item("transfer", 90), item("link", bound_ns=45), item("link", bound_ns=44)),
        (MORE_WORK, item("experts", 80), item("schedule", 80)),
        (item("experts", 50), MORE_WORK, item("rank", 40, rank=1, note="slow_gpu")),
        (item("waiting", bound_ns=200), item("rank", 100, rank=1), item("rank", 99, rank=1)),
        (item("waiting", bound_ns=200), item("schedule", 1), item("rank", 1, rank=1)),
        (item("copies", 40), item("copies", 50, detail="HtoD"), item("kernels", 50, detail="gemm")),
        (replayed("wait", 50, detail="cudaMemcpy_v3020"), COPIES, POINTWISE),
        (
            replayed("wait", 200, detail=SYNC, on=1),
            RANK,
            item("rank", 300, rank=2, note="late_host"),
        ),
        (item("host", 160, rank=1), RANK, item("rank", 300, rank=1, note="slow_gpu")),
        # As long as half of what that gains, whatever a replay says.
        (HOST, RANK, item("rank", 322, rank=1, note="late_host")),
        # What is not shown hides nothing.
        (HOST, RANK, item("rank", 9, bound_ns=320, rank=1, note="late_host")),
        (item("wait", detail=SYNC), item("host", 80), item("queued", 80)),
        (
            replayed("host", 100),
            replayed("wait", 51, detail=SYNC),
            replayed("wait", 50, detail=SYNC),
        ),
        (PLACE, item("queued", 40, rank=None), item("host", 40, rank=2)),
        (PLACE, RANK, item("rank", 300, rank=1, note="slow_gpu")),
        (PLACE, RANK, item("rank", 44, rank=1, note="late_host")),
        (item("place", bound_ns=90, classes=("compute",), on=1), RANK, item("host", 40)),
        (item("place", bound_ns=90, classes=("compute",), on=2), PAUSES, RANK),
    ],
)
def test_a_part_goes_into_its_whole_and_into_nothing_else(part, whole, apart):
    (together,) = joined([part, whole])
    assert together.cause == whole.cause
    assert len(together.sources) == 2
    assert len(joined([part, apart])) == 2


@pytest.mark.parametrize(
    ("part", "apart"),
    [
        (item("host", 160, on=1), RANK),  # that of all ranks
        (replayed("wait", 50, detail=SYNC), COPIES),
        (replayed("wait", 51, detail=SYNC, on=1), replayed("host", 100, rank=0)),
        (replayed("wait", 51, detail=SYNC), item("host", 100)),
        (item("wait", 51, detail=SYNC), replayed("host", 100)),
        (item("rank", 40, rank=1, note="slow_gpu"), item("experts", 80)),
    ],
)
def test_what_is_like_a_part_stays_apart(part, apart):
    assert len(joined([part, apart])) == 2


def test_what_nobody_estimates_adds_to_the_bound_alone():
    part = item("kernels", bound_ns=60, detail="conversions")
    (together,) = joined([part, item("kernels", 200, bound_ns=300, detail="pointwise")])
    assert (together.price.about_ns, together.price.bound_ns) == (200, 360)


def test_each_finding_has_its_account():
    items = [item("queued", 200), PLACE, item("allocation", 5), replayed("host", 6), RANK]
    made = [some.lead[1] for some in items]
    groups = joined([replace(items[n], sources=((("r", n + 1), made[n]),)) for n in range(4)])
    every = [*made, replace(made[4], price=None)]
    parts = {"r": SimpleNamespace(report=SimpleNamespace(findings=every))}
    rows = opportunities.all_finding_rows(parts, groups)
    accounts = [(row["account"], row.get("opportunity")) for row in rows]
    left_out = [(account, None) for account in ("small", "refuted", "refuted", "small")]
    assert accounts == [("lead", 1), ("merged", 1), *left_out]


def test_a_wait_that_exposes_the_hosts_of_all_and_of_a_rank_has_both():
    hosts = [replayed("host", 100), replayed("host", 90, rank=0)]
    (together,) = joined([*hosts, replayed("wait", 51, detail=SYNC)])
    assert (together.cause.kind, len(together.sources)) == ("wait", 3)


def test_every_row_of_the_table_has_a_case():
    assert len(JOINS) == 15


def test_the_price_is_that_of_what_stays_and_of_work_of_their_own_the_sum():
    (together,) = joined([item("host", 160, rank=1), RANK])
    assert together.price == RANK.price
    (together,) = joined([item("kernels", 50, bound_ns=60, detail="conversions"), POINTWISE])
    assert (together.price.about_ns, together.price.bound_ns) == (250, None)


def test_who_says_most_precisely_why_speaks():
    host = item("host", 160, rank=1, specificity=2, title="in `data`")
    (together,) = joined([host, RANK])
    assert together.lead[1].title == "in `data`"
    (together,) = joined([item("host", 160, rank=1), RANK])
    assert together.lead[1].title == "rank"
    # Who follows its advice gains a tenth.
    little = replayed("host", 30, rank=1, specificity=2, title="in `data`", impact_ns=160)
    (together,) = joined([little, RANK])
    assert together.lead[1].title == "rank"
    # Nor after what joins next.
    (together,) = joined([little, RANK, item("place", bound_ns=200, rank=1, classes=("compute",))])
    assert together.lead[1].title == "rank"
    # What copies gain is not the host's that waits for them.
    blocked = replayed("wait", 50, detail="cudaMemcpy_v3020", specificity=3)
    (together,) = joined([blocked, COPIES])
    assert together.lead[1].title == "copies"
    # Nobody knows what it gains.
    wait = item("wait", detail=SYNC, specificity=3)
    (together,) = joined([wait, item("host", 80)])
    assert together.lead[1].title == "host"


def test_what_is_added_to_a_gain_is_said_however_long_the_details_are():
    merged = {"title": "Kernels that only convert types: 7.7 % of the time"}
    said = fitted(f"The first sentence. {'Many more words. ' * 20}", "Pointwise", [merged])
    assert said.startswith(f"The first sentence. Also: {merged['title']}. Many more words.")


def test_a_place_belongs_to_the_largest_cause_on_its_rank():
    causes = [item("queued", 40), item("host", 80, rank=2), item("module_load", 60)]
    groups = {one.cause.kind: len(one.sources) for one in joined([PLACE, *causes])}
    assert groups == {"queued": 1, "host": 1, "module_load": 2}


def test_an_opportunity_is_where_its_first_finding_with_a_window_on_that_gpu_is():
    host = item("host", 160, rank=1, on=1, window_ns=(3, 4))
    (row,) = opportunities.opportunity_rows(joined([host, RANK]), dict.fromkeys(range(8), 10.0))
    assert (row["window_start_ns"], row["window_end_ns"]) == (3, 4)
    assert row["gain_step_ns"] == pytest.approx(3.0)


@pytest.mark.parametrize("seed", range(20))
def test_no_finding_is_lost_and_no_order_of_them_matters(seed):
    chance = random.Random(seed)
    kinds = ["host", "wait", "rank", "waiting", "experts", "copies", "place", "transfer", "link"]
    kinds.append("schedule")
    items = [
        item(chance.choice(kinds), about_ns, rank=chance.choice([None, 0, 1]), title=f"t{about_ns}")
        for about_ns in chance.sample(range(10, 900), 12)
    ]
    groups = [sorted(finding.title for _, finding in one.sources) for one in joined(items)]
    assert sorted(title for group in groups for title in group) == sorted(
        one.lead[1].title for one in items
    )
    for _ in range(5):
        chance.shuffle(items)
        again = [sorted(finding.title for _, finding in one.sources) for one in joined(items)]
        assert again == groups
