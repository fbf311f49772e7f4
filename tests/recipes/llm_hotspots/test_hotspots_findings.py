"""Answer and findings of llm_hotspots: what is told first, and numbers as in the tables."""

from __future__ import annotations

import pytest
from demo_truth import PLANTED
from planted import frame_of
from quick_run import quick
from trace_builder import TraceBuilder

from nsys_llm.recipes.llm_hotspots.findings.answer import answer
from nsys_llm.view.text import format_percent

GEMM = "nvjet_tst_192x192"


def run_on(folder, *ranks):
    """Return the tables of ranks, each of kernels with lengths, one after the other; None: idle."""
    for number, kernels in enumerate(ranks):
        trace, at = TraceBuilder(), 1
        for name, length in kernels:
            if name is not None:
                trace.kernel(name, start_ns=at, duration_ns=length)
            at += length
        trace.write_sqlite(folder / f"rank{number}.sqlite")
    return quick("llm_hotspots", folder)


@pytest.mark.parametrize(
    ("kernels", "said"),
    [
        ([(GEMM, 901), ("k", 99)], []),
        ([(GEMM, 900), ("k", 100)], ["10.0 % of the kernel time, `k` 10.0 %"]),
        (
            [(GEMM, 800), ("big", 150), ("small", 50)],
            ["20.0 % of the kernel time, `big` 15.0 %"],
        ),
        ([(GEMM, 0)], []),
    ],
)
def test_unmatched_kernels_are_a_remark_from_a_tenth(tmp_path, kernels, said):
    findings = run_on(tmp_path, kernels)["findings"]
    rows = findings[findings["rule"] == "unmatched_kernels"]
    assert rows["title"].tolist() == [f"Kernels that match no rule take {words}" for words in said]
    assert rows["severity"].isna().all()
    names_n, time_ns = len(kernels) - 1, sum(length for _, length in kernels[1:])
    assert rows["details"].str.startswith(f"{names_n} kernel name").all()
    assert rows["impact_ns"].tolist() == [time_ns] * len(said)


def test_the_answer_without_kernels_says_so(tmp_path):
    tables = run_on(tmp_path, [(GEMM, 0)])
    assert answer(tables).startswith("No kernel took any time")


def test_the_answer_is_the_wall_split_and_the_largest_gain(tmp_path):
    ranks = [(GEMM, 300), (None, 400), (GEMM, 300)], [(GEMM, 250), (None, 500), (GEMM, 250)]
    assert answer(run_on(tmp_path, *ranks)) == (
        "2 GPUs compute for 55.0 % of the time (`gemm` 55.0 %); next is idle 45.0 %. No finding "
        "here would gain 1.0 %; idle time is more than that (`nsys recipe idle_gaps` lists the "
        "causes)."
    )


def test_the_answer_begins_with_idle_time_where_it_is_most(tmp_path):
    assert answer(run_on(tmp_path, [("k", 200), (None, 600), ("k", 200)])) == (
        "The GPU computes for 40.0 % of the time; next is idle 60.0 %. Look at the idle time "
        "first (`nsys recipe idle_gaps` lists the causes); no finding here would gain 1.0 %."
    )


def test_the_answer_gives_a_gain_in_all_for_it_does_not_know_what_a_step_is(tmp_path):
    # An overview, which knows steps, has given the price: of layers, perhaps.
    gain = {"severity": "high", "title": "t", "gain_ns": 200, "gain_pct": 20.0, "bound_ns": 200}
    gain |= {"gain_step_ns": 20.0, "span_ns": 1000, "wall_classes": "compute"}
    tables = {**run_on(tmp_path, [(GEMM, 1000)]), "findings": frame_of("findings", [gain])}
    assert answer(tables).endswith("First of the findings here: t (at most 200 ns, 20.0 %).")


@pytest.mark.slow
def test_the_answer_of_the_demo_names_the_straggler_and_the_numbers_of_its_tables(shared_runs):
    tables = quick("llm_hotspots", shared_runs.ranks("demo") / "baseline")
    text, wall = answer(tables), tables["wall"]
    span_ns = wall.drop_duplicates("rank")["span_ns"].sum()
    times = wall.groupby("wall_class")["time_ns"].sum()
    for name, words in (("compute", "4 GPUs compute for {}"), ("idle", "idle {}")):
        assert words.format(format_percent(100 * times[name] / span_ns)) in text
    kinds = wall[wall["wall_class"] == "compute"].groupby("detail")["time_ns"].sum()
    share = format_percent(100 * kinds.max() / span_ns)
    assert f"(`{kinds.idxmax()}` {share}, " in text
    assert f"Rank {PLANTED.slow_rank}'s GPU is slow" in text
