"""Answer and findings of llm_hotspots: thresholds, the rank named, numbers as in the tables."""

from __future__ import annotations

import re

import pandas as pd
import pytest
from planted import frame_of
from results import analyse, read_frames, read_report

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.recipes.llm_hotspots.findings.answer import answer, findings
from nsys_llm.testing.demo import write_demo
from nsys_llm.testing.trace_builder import TraceBuilder
from nsys_llm.view.text import format_count, format_ns, format_percent

MANIFEST = load_manifest("llm_hotspots")


def tables_with(kernels=(), categories=(), devices=(), rank_kernels=()):
    """Return all tables, these with rows; a kernel ran whole on rank 0 unless told."""
    known = {row["name"] for row in rank_kernels}
    own = [{"rank": 0, "device_id": 0, **row} for row in kernels if row["name"] not in known]
    columns = {column.name for column in MANIFEST.table("rank_kernels").columns}
    own = [{name: row[name] for name in row if name in columns} for row in own]
    return {
        **{table.file: frame_of(table.file, []) for table in MANIFEST.writes},
        "kernels": frame_of("kernels", kernels),
        "categories": frame_of("categories", categories),
        "devices": frame_of("devices", devices),
        "rank_kernels": frame_of("rank_kernels", [*own, *rank_kernels]),
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


def dominant(*kernels, devices=(), **others):
    found = findings(tables_with(kernels, devices=devices or [device()], **others))
    return [one for one in found if one.rule == "dominant_kernel"]


@pytest.mark.parametrize(
    ("busy_pct", "severity"),
    [(24.9, None), (25.0, "medium"), (49.9, "medium"), (50.0, "high"), (100.0, "high")],
)
def test_a_kernel_dominates_from_a_quarter_and_gravely_from_half(busy_pct, severity):
    found = dominant(kernel(busy_pct))
    assert [one.severity for one in found] == [severity] * (severity is not None)


def test_a_dominant_kernel_is_told_with_its_numbers_and_its_window():
    (one,) = dominant(kernel(60.0, "void k<int>", operation="GEMM", launches_n=1234))
    assert one.title == "`void k<int>`, GEMM, takes 60.0 % of the kernel time"
    assert (one.scope, one.name, one.rank, one.device_id) == ("kernel", "void k<int>", 0, 0)
    assert one.window_ns == (100, 2100)
    # 60 % of 1000 ns.
    assert one.impact_ns == 600
    for words in ("600 ns of 1 us", "1,234 launches on 1 rank;", "median 5 ns", "p99 9 ns"):
        assert words in one.details
    assert set(one.tables) == {"kernels", "rank_kernels", "devices"}


def test_an_operation_that_is_not_known_is_not_spoken_of():
    (one,) = dominant(kernel(60.0))
    assert one.title.startswith("`k` takes ")


def test_every_kernel_that_dominates_is_a_finding_of_its_own():
    found = dominant(kernel(50.0, "a"), kernel(25.0, "b"), kernel(24.0, "c"))
    assert [(one.name, one.severity) for one in found] == [("a", "high"), ("b", "medium")]


def test_the_rank_with_most_of_it_is_named_over_all_of_its_devices():
    own = [
        # Rank 2 has 4 + 4 ns, rank 1 has 6 ns, and rank 2's second device begins at 300.
        {"rank": 1, "device_id": 0, "name": "k", "exclusive_ns": 6},
        {"rank": 2, "device_id": 0, "name": "k", "exclusive_ns": 4},
        {"rank": 2, "device_id": 1, "name": "k", "exclusive_ns": 4},
        {"rank": 0, "device_id": 0, "name": "other", "exclusive_ns": 9},
    ]
    devices = [device(1), device(2, 0, 200, 300), device(2, 1, 300, 400)]
    (one,) = dominant(kernel(60.0), devices=devices, rank_kernels=own)
    assert (one.rank, one.device_id, one.window_ns) == (2, 0, (200, 300))
    assert "ank 2 " in one.details
    assert "8 ns" in one.details


def test_of_ranks_with_the_same_time_the_first_is_named():
    own = [{"rank": rank, "device_id": 0, "name": "k", "exclusive_ns": 6} for rank in range(1024)]
    (one,) = dominant(kernel(60.0, ranks_n=1024), devices=[device(0)], rank_kernels=own)
    assert one.rank == 0
    assert "1,024 ranks" in one.details


def test_a_kernel_that_only_reaches_into_the_window_is_told_without_durations():
    (one,) = dominant(kernel(60.0, launches_n=0, ranks_n=0, p50_ns=None, p99_ns=None))
    assert "median" not in one.details
    assert "nan" not in one.details.lower()
    assert "<NA>" not in one.details


def test_a_run_on_a_window_inside_of_one_kernel_has_a_report(tmp_path):
    builder = TraceBuilder().kernel("whole", start_ns=0, duration_ns=100, launch=(0, 1))
    (tmp_path / "in").mkdir()
    builder.write_sqlite(tmp_path / "in" / "rank0.sqlite")
    out = analyse(tmp_path / "out", tmp_path / "in", options=["--filter-time", "50/90"])
    (one, _) = read_report(out)["report"]["findings"]
    assert one["title"] == "`whole` takes 100.0 % of the kernel time"
    assert one["window_ns"] == [50, 90]


def test_kernels_without_a_share_are_no_finding():
    assert dominant({**kernel(0.0), "busy_pct": None}) == []


def unmatched(*categories, kernels=()):
    found = findings(tables_with(kernels, categories=categories, devices=[device()]))
    return [one for one in found if one.rule == "unmatched_kernels"]


@pytest.mark.parametrize(("busy_pct", "fires"), [(9.9, False), (10.0, True), (100.0, True)])
def test_unmatched_kernels_are_a_finding_from_a_tenth(busy_pct, fires):
    found = unmatched(category("unmatched", busy_pct))
    assert [one.severity for one in found] == ["low"] * fires


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
    (one,) = unmatched(category("unmatched", 20.0, kernels_n=1234), kernels=kernels)
    assert "20.0 %" in one.title
    assert one.details == "1,234 kernel names, 200 ns; the heaviest is `big`."
    assert one.impact_ns == 200


def test_the_answer_without_kernels_says_so():
    assert "No kernel" in answer(tables_with())
    assert "No kernel" in answer(tables_with(devices=[device(busy_ns=0)]))


def test_the_answer_for_one_rank_is_two_sentences():
    tables = tables_with([kernel(60.0)], [category("gemm", 100.0)], [device()])
    # 1000 of 2000 ns.
    assert answer(tables) == (
        "At least one kernel ran for 50.0 % of the window (1 us of 2 us, 1 rank). "
        "The largest part of that is `gemm` 100.0 %; the heaviest kernel is `k` with 60.0 %."
    )


def test_the_answer_counts_ranks_and_devices_where_they_differ():
    devices = [device(0), device(1), device(1, 1)]
    text = answer(tables_with([kernel(60.0)], [category("gemm", 100.0)], devices))
    assert "(3 us of 6 us, 2 ranks with 3 devices together)" in text


def test_the_answer_names_three_categories_that_took_time():
    parts = [category(name, share) for name, share in zip("abcd", (40, 30, 20, 10), strict=True)]
    tables = tables_with([kernel(40.0)], [*parts, category("unmatched", 0.0)], [device()])
    assert "`a` 40.0 %, `b` 30.0 % and `c` 20.0 %; the heaviest" in answer(tables)
    two = tables_with([kernel(40.0)], [*parts[:2], category("unmatched", 0.0)], [device()])
    assert "`a` 40.0 % and `b` 30.0 %; the heaviest" in answer(two)


def test_the_demo_tells_the_numbers_of_its_tables(tmp_path):
    planted = write_demo(tmp_path, scale=0.1).planted
    out = analyse(tmp_path / "out", tmp_path / "baseline")
    tables, report = read_frames(out), read_report(out)["report"]
    kernels, devices = tables["kernels"], tables["devices"]
    top = kernels.iloc[0]
    busy_ns = devices["kernel_busy_ns"].sum()
    assert f"`{top['name']}` with {format_percent(top['busy_pct'])}." in report["answer"]
    share = format_percent(100 * busy_ns / devices["window_ns"].sum())
    assert f"kernel ran for {share} of the window ({format_ns(busy_ns)} of " in report["answer"]
    for row in tables["categories"].head(3).itertuples():
        assert f"`{row.category}` {format_percent(row.busy_pct)}" in report["answer"]
    (one,) = (row for row in tables["findings"].itertuples() if row.rule == "dominant_kernel")
    assert one.name == top["name"]
    assert one.impact_ns == top["exclusive_ns"]
    assert f"{format_ns(top['exclusive_ns'])} of {format_ns(busy_ns)}" in one.details
    assert f"{format_count(top['launches_n'])} launches on 4 ranks" in one.details
    own = tables["rank_kernels"][tables["rank_kernels"]["name"] == top["name"]]
    assert one.rank == own.loc[own["exclusive_ns"].idxmax(), "rank"] == planted.slow_rank
    window = devices[devices["rank"] == one.rank].iloc[0]
    assert (one.window_start_ns, one.window_end_ns) == (
        window["window_start_ns"],
        window["window_end_ns"],
    )


def test_findings_name_only_options_that_there_are():
    kernels = [kernel(60.0, category="unmatched")]
    categories = [category("unmatched", 60.0)]
    found = findings(tables_with(kernels, categories, [device()]))
    assert len(found) == 2
    there = {option.flag for option in MANIFEST.options}
    for one in found:
        named = set(re.findall(r"--[a-z-]+", f"{one.title} {one.details} {one.recommendation}"))
        assert named <= there


def test_findings_name_only_tables_that_are_written():
    found = findings(tables_with([kernel(60.0)], [category("unmatched", 60.0)], [device()]))
    written = {table.file for table in MANIFEST.writes}
    assert all(set(one.tables) <= written for one in found)
    assert not any(pd.isna(one.impact_ns) for one in found)
