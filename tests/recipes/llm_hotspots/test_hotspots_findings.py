"""Answer and findings of llm_hotspots: what is told first, and numbers as in the tables."""

from __future__ import annotations

import pytest
from demo_truth import PLANTED
from planted import frame_of
from quick_run import quick

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.recipes.llm_hotspots.findings.answer import answer
from nsys_llm.recipes.llm_hotspots.findings.answer import findings as unpriced
from nsys_llm.report.prices.pricing import priced
from nsys_llm.view.text import format_percent


def findings(tables):
    return priced(unpriced(tables), tables)


MANIFEST = load_manifest("llm_hotspots")


def tables_with(kernels=(), categories=(), devices=(), rank_kernels=()):
    """Return all tables, these with rows; a kernel ran whole on rank 0 unless told."""
    known = {row["name"] for row in rank_kernels}
    missing_rows = [
        {"rank": 0, "device_id": 0, **row} for row in kernels if row["name"] not in known
    ]
    columns = {column.name for column in MANIFEST.table("rank_kernels").columns}
    missing_rows = [{name: row[name] for name in row if name in columns} for row in missing_rows]
    return {
        **{table.file: frame_of(table.file, []) for table in MANIFEST.writes},
        "kernels": frame_of("kernels", kernels),
        "categories": frame_of("categories", categories),
        "devices": frame_of("devices", devices),
        "rank_kernels": frame_of("rank_kernels", [*missing_rows, *rank_kernels]),
    }


def kernel(busy_pct, name="k", **others):
    times = {"exclusive_ns": round(10 * busy_pct), "p50_ns": 5.0, "p99_ns": 9.0}
    return {"name": name, "busy_pct": busy_pct, "ranks_n": 1, "launches_n": 7, **times, **others}


def device(rank=0, device_id=0, start_ns=100, end_ns=2100, busy_ns=1000):
    return {
        "rank": rank,
        "device_id": device_id,
        "window_start_ns": start_ns,
        "window_end_ns": end_ns,
        "window_ns": end_ns - start_ns,
        "kernel_busy_ns": busy_ns,
    }


def category(name, busy_pct, **others):
    times = {"busy_pct": busy_pct, "exclusive_ns": round(10 * (busy_pct or 0))}
    return {"category": name, **times, **others}


def unmatched(*categories, kernels=()):
    listed = findings(tables_with(kernels, categories=categories, devices=[device()]))
    return [finding for finding in listed if finding.rule == "unmatched_kernels"]


@pytest.mark.parametrize(("busy_pct", "fires"), [(9.9, False), (10.0, True), (100.0, True)])
def test_unmatched_kernels_are_a_finding_from_a_tenth(busy_pct, fires):
    listed = unmatched(category("unmatched", busy_pct))
    assert [(finding.kind, finding.severity) for finding in listed] == [("capture", None)] * fires


@pytest.mark.parametrize(
    "rows", [[], [category("gemm", 100.0)], [category("unmatched", None)]], ids=str
)
def test_without_unmatched_time_there_is_nothing_to_tell(rows):
    assert unmatched(*rows) == []


def test_unmatched_kernels_are_told_with_the_heaviest_of_them():
    kernels = [
        kernel(20.0, "known", category="gemm"),
        kernel(15.0, "big", category="unmatched"),
        kernel(5.0, "small", category="unmatched"),
    ]
    (finding,) = unmatched(category("unmatched", 20.0, kernels_n=1234), kernels=kernels)
    assert finding.title == (
        "Kernels that match no rule take 20.0 % of the kernel time, `big` 15.0 %"
    )
    assert finding.details == "1,234 kernel names, 200 ns."
    assert finding.impact_ns == 200


def test_the_answer_without_kernels_says_so():
    assert "No kernel" in answer(tables_with())
    assert "No kernel" in answer(tables_with(devices=[device(busy_ns=0)]))


def wall(kind, **shares):
    """Return a table of GPUs, each with a span of 1000 ns, times of classes, and one category."""
    rows = [
        {"rank": rank, "file": f"rank{rank}", "device_id": 0, "wall_class": name, "detail": None,
         "time_ns": time_ns, "span_ns": 1000}
        for rank, times in enumerate(zip(*shares.values(), strict=True))
        for name, time_ns in zip(shares, times, strict=True)
    ]  # fmt: skip
    for row in rows:
        row["detail"] = kind if row["wall_class"] == "compute" else None
    return frame_of("wall", rows)


def answered(tables, kind="gemm", **shares):
    return answer({**tables, "wall": wall(kind, **shares)})


def test_the_answer_is_the_wall_split_and_the_largest_gain():
    tables = tables_with([kernel(40.0)], [category("gemm", 100.0)], [device()])
    assert answered(tables, compute=[600, 500], copies=[20, 0], idle=[380, 500]) == (
        "2 GPUs compute for 55.0 % of the time (`gemm` 55.0 %); next are idle 44.0 % and copies "
        "1.0 %. No finding here would gain 1.0 %; idle time is more than that "
        "(`nsys recipe idle_gaps` lists the causes)."
    )


def test_the_answer_begins_with_idle_time_where_it_is_most():
    tables = tables_with([kernel(60.0)], [category("unmatched", 100.0)], [device()])
    assert answered(tables, "unmatched", compute=[400], idle=[600]) == (
        "The GPU computes for 40.0 % of the time; next is idle 60.0 %. Look at the idle time "
        "first (`nsys recipe idle_gaps` lists the causes); no finding here would gain 1.0 %."
    )


def test_the_answer_gives_a_gain_in_all_for_it_does_not_know_what_a_step_is():
    # An overview, which knows steps, has given the price: of layers, perhaps.
    gain = {"severity": "high", "title": "t", "gain_ns": 200, "gain_pct": 20.0, "bound_ns": 200}
    gain |= {"gain_step_ns": 20.0, "span_ns": 1000, "wall_classes": "compute"}
    tables = tables_with([kernel(100.0)], [category("gemm", 100.0)], [device()])
    tables["findings"] = frame_of("findings", [gain])
    said = answered(tables, compute=[1000])
    assert said.endswith("First of the findings here: t (at most 200 ns, 20.0 %).")


@pytest.mark.slow
def test_the_answer_of_the_demo_names_the_straggler_and_the_numbers_of_its_tables(shared_runs):
    tables = quick("llm_hotspots", shared_runs.ranks("demo") / "baseline")
    text = answer(tables)
    wall = tables["wall"]
    for name, words in (("compute", "4 GPUs compute for {}"), ("idle", "idle {}")):
        share = (
            100
            * wall.loc[wall["wall_class"] == name, "time_ns"].sum()
            / (wall.drop_duplicates("rank")["span_ns"].sum())
        )
        assert words.format(format_percent(share)) in text
    kinds = wall[wall["wall_class"] == "compute"].groupby("detail")["time_ns"].sum()
    share = 100 * kinds.max() / wall.drop_duplicates("rank")["span_ns"].sum()
    assert f"(`{kinds.idxmax()}` {format_percent(share)}, " in text
    assert f"Rank {PLANTED.slow_rank}'s GPU is slow" in text
