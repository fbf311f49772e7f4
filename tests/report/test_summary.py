"""The summary: one screen, as wide as the terminal, and no number that is cut."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
from report_maker import FINDING, SECTION, made_report, made_results, price_of

from nsys_llm.report.findings import SEVERITIES
from nsys_llm.report.summary import fitted_parts, summary_lines
from nsys_llm.report.wall_line import Bound, WallLine, WallPart
from nsys_llm.view.text import quoted

LONG = "void " + "x" * 60 + "<int>(a, b)"
ROWS = [
    (LONG, "communication", 1_536_000, 122_000_000, 79_400.0),
    ("g", "norm", 64, 25_100_000, 374_000.0),
]
WIDTHS = (60, 80, 97, 98, 99, 100, 120)
NUMBERS = [["1,536,000", "122 ms", "79.4 us"], ["64", "25.1 ms", "374 us"]]
HEADINGS = ["launches", "busy", "p99"]


def summary(tmp_path, *findings, rows=ROWS, width=100, height=40, section=SECTION, **texts):
    manifest, results = made_results(tmp_path, rows, [section])
    return summary_lines(made_report(manifest, *findings, **texts), results, width, height)


def table_of(lines):
    start = lines.index("Top kernels:") + 1
    return [line for line in lines[start : start + 1 + 8] if line.startswith("  ")]


def test_the_summary_says_title_facts_answer_findings_and_rows(tmp_path):
    rows = [("f", "gemm", 1234, 5_000, None), (None, "norm", None, 10, 7.0)]
    assert summary(tmp_path, FINDING, rows=rows) == [
        "Made hotspots",
        "  ranks: 2 with GPU work; hosts: node1; GPUs: H100",
        "",
        "It goes to gemm and norm.",
        "",
        "Findings and what a fix could gain (not additive): 1 high",
        "  high   about 200 ms, 20.0 %: gemm takes 60.0 % of the kernel time",
        "",
        "Top kernels:",
        "  name  category  launches   busy   p99",
        "  f     gemm         1,234   5 us     -",
        "  -     norm             -  10 ns  7 ns",
    ]


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_the_terminal(tmp_path, width):
    long = replace(FINDING, title=f"{quoted(LONG)} and {quoted(LONG)} take 60.0 % of the time")
    facts = (("hosts", ", ".join(quoted(f"node{n}.cluster.example.org") for n in range(9))),)
    answer = f"It goes to {quoted(LONG)}. " * 3
    lines = summary(tmp_path, long, width=width, facts=facts, answer=answer)
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_numbers_are_shown_whole_or_not_at_all(tmp_path, width):
    head, *rows = table_of(summary(tmp_path, width=width))
    columns_n = len(head.split()) - 2
    assert columns_n >= 1
    assert head.split()[2:] == HEADINGS[:columns_n]
    for row, numbers in zip(rows, NUMBERS, strict=True):
        # Numbers with their units stand apart by two blanks, at least.
        assert re.split(" {2,}", row.strip())[2:] == numbers[:columns_n]


def longest(tmp_path, **size):
    """Return the summary of a report in which everything is as long as can be."""
    title = f"{quoted(LONG)} takes 60.0 % of the kernel time on ranks 0, 1, 2 and 3"
    findings = [replace(FINDING, title=title)] * 50
    rows = [(f"{LONG}{number}", "communication", 1, 1, 1.0) for number in range(50)]
    facts = tuple(
        (label, ", ".join(quoted(f"NVIDIA H100 80GB HBM{n}") for n in range(3)) + " and 9 more")
        for label in ("ranks", "hosts", "GPUs")
    )
    answer = f"At least one kernel ran for 90 % of the window. Most is {quoted(LONG)}. " * 9
    texts = {"facts": facts, "answer": answer, "caveats": ("One.",) * 9}
    return summary(tmp_path, *findings, rows=rows, **size, **texts)


@pytest.mark.parametrize(("width", "height"), [(60, 24), (80, 24), (80, 10), (100, 40), (100, 60)])
def test_the_longest_summary_fits_the_terminal_with_what_stands_below_it(tmp_path, width, height):
    lines = longest(tmp_path, width=width, height=height)
    # A blank line, `Generated:`, the folder, what to run next, and the prompt.
    assert len(lines) + 5 <= max(height, 24)
    assert len(table_of(lines)) >= 2
    shown_n = sum(line.startswith("  high ") for line in lines)
    assert shown_n >= 2
    assert any(line.endswith(f"and {50 - shown_n} more in the report") for line in lines)


def test_the_second_finding_goes_before_a_table(tmp_path):
    findings = [replace(FINDING, title=title) for title in ("A first", "The second", "A third")]
    part = WallPart("GEMM with a name that takes a whole line of the screen", 25.0)
    wall = (WallLine("", 4, (part,) * 4, (part,) * 4, Bound("GPU-BOUND", "")),)
    texts = {"answer": f"Most is {quoted(LONG)}. " * 9, "caveats": ("One.",), "wall": wall}
    text = "\n".join(summary(tmp_path, *findings, height=24, width=80, **texts))
    assert "A first\n" in text
    assert "The second\n" in text
    assert "Top kernels:" not in text


def test_findings_are_counted_by_severity_most_severe_first(tmp_path):
    findings = [replace(FINDING, price=price_of(name)) for name in SEVERITIES for _ in range(2)]
    lines = summary(tmp_path, *findings[1:])
    head = "Findings and what a fix could gain (not additive)"
    assert f"{head}: 1 high, 2 medium, 2 low, 2 in rare steps" in lines


@pytest.mark.parametrize(("height", "lines_n", "last"), [(40, 2, "word end"), (24, 1, "word ...")])
def test_titles_take_two_lines_where_there_is_room_for_all(tmp_path, height, lines_n, last):
    long = replace(FINDING, title="word " * 24 + "end")
    rows = [(f"kernel{n}", "norm", 64, 25_100_000, 374_000.0) for n in range(8)]
    lines = summary(tmp_path, *[long] * 5, FINDING, rows=rows, height=height)
    start = next(
        index
        for index, line in enumerate(lines)
        if line.startswith("  high   about 200 ms, 20.0 %: word")
    )
    assert lines[start + lines_n - 1].endswith(last)
    assert lines[start + lines_n].startswith("  high   about 200 ms, 20.0 %: word")
    assert len(table_of(lines)) >= 2


def test_the_numbers_at_the_end_of_a_title_are_not_cut_off(tmp_path):
    title = "Waiting without a straggler: 13.9 ms in 31 sends and receives, of 2 ranks in all"
    text = " ".join(summary(tmp_path, replace(FINDING, title=title), width=80, height=24))
    assert title in " ".join(text.split())


def test_a_name_gives_way_before_the_words_and_numbers_of_a_title(tmp_path):
    name = quoted("FSDP::pre_forward (blocks.#._checkpoint_wrapped_module)")
    titles = (f"Rank 3's GPU idles in {name}", f"{name} is 7 times slower on rank 3")
    for title, ends in zip(titles, ("module)", "on rank 3"), strict=True):
        (line,) = (
            line
            for line in summary(tmp_path, replace(FINDING, title=title), width=80)
            if "rank 3" in line.lower()
        )
        assert "FSDP::" in line
        assert line.endswith(ends)
        assert len(line) <= 80


@pytest.mark.parametrize("seed", range(40))
def test_idle_time_and_communication_are_told_however_many_kinds_of_work_there_are(seed):
    rng = random.Random(seed)
    work = ["GEMM", "attention", "pointwise and norm", "KV cache", "other kernels", "sampling"]
    names = [*rng.sample(work, rng.randint(1, 6)), "communication", "idle", "copies", "profiler"]
    weights = [rng.random() ** 3 for _ in names]
    insides = {"communication": " (waiting 10.9, transfer 6.8)", "idle": " (host 10.2)"}
    parts = [
        WallPart(name, 100 * weight / sum(weights), insides.get(name, ""))
        for name, weight in zip(names, weights, strict=True)
    ]
    parts = sorted(parts, key=lambda part: -part.share_pct)
    lines = fitted_parts(WallLine("", 4, tuple(parts), (), Bound("x", "y")), 80, 2)
    assert len(lines) <= 2
    assert all(len(line) <= 80 for line in lines)
    text = " ".join(lines)
    shown = [float(share) for share in re.findall(r"([\d.]+) %", text)]
    assert sum(shown) == pytest.approx(100, abs=0.5)
    for part in parts:
        if part.label in insides and part.share_pct >= 2:
            assert f"{part.label} {part.share_pct:.1f} %" in text
