"""report.md and the first cells of the notebook: what a renderer finds in them."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rendered import markdown_text, markdown_tokens
from report_maker import FINDING, SECTION, made_report, made_results

from nsys_llm.report.markdown import (
    capture_markdown,
    head_markdown,
    markdown_prose,
    report_markdown,
    section_markdown,
)
from nsys_llm.report.page import html_text
from nsys_llm.report.report import MOST_SHOWN, Unrecorded
from nsys_llm.view.results import Results
from nsys_llm.view.text import quoted

#: Any text but code points that stand for no character, which a renderer may replace.
NAMES = st.text(st.characters(exclude_categories=("Cs", "Cn")), max_size=60)
ROWS = [("void f<int>(a|b)", "gemm", 1234, 5_000, 7_500.0), ("g", "norm", None, 10, None)]


def table_rows(text):
    """Return the cells of a rendered table, with how each is aligned."""
    rows, tokens = [], markdown_tokens(text)
    for index, token in enumerate(tokens):
        if token.type == "tr_open":
            rows.append([])
        elif token.type in ("th_open", "td_open"):
            inside = tokens[index + 1].children or []
            rows[-1].append("".join(token.content for token in inside))
    return rows


def shown_section(tmp_path, rows, section=SECTION):
    return section_markdown(section, made_results(tmp_path, rows)[1])


def test_a_table_has_human_units_and_keeps_bars_in_names(tmp_path):
    assert table_rows(shown_section(tmp_path, ROWS)) == [
        ["name", "category", "launches", "busy", "p99"],
        ["void f<int>(a|b)", "gemm", "1,234", "5 us", "7.5 us"],
        ["g", "norm", "-", "10 ns", "-"],
    ]


def test_the_rows_are_bounded_and_the_rest_is_counted(tmp_path):
    rows = [(f"k{number}", "gemm", 1, 1, 1.0) for number in range(1003)]
    text = shown_section(tmp_path, rows)
    assert len(table_rows(text)) == 1 + SECTION.rows_n
    assert "1,000 more rows in `kernels.parquet`." in text
    assert "more row" not in shown_section(tmp_path, rows[:3])


def test_a_sentence_in_a_table_keeps_its_middle(tmp_path):
    meaning = "it was in no CUDA call: the host was busy or waiting elsewhere"
    pd.DataFrame({"meaning": [meaning, "x" * 2000]}).to_parquet(tmp_path / "kernels.parquet")
    text = section_markdown(replace(SECTION, columns=("meaning",)), Results(tmp_path))
    assert [len(row[0]) for row in table_rows(text)] == [7, 62, 80]


@pytest.mark.parametrize(
    "prose",
    [
        "1 < 2 & 3 > 2",
        "a*b*c _d_ ~~e~~",
        "[x](y) ![i](j)",
        "$x$ | y",
        "<b>bold</b>",
        "back\\slash {brace}",
        "# no heading",
        "> no quote",
        "in tail_stats, 1 -> 2 (a_b). See http://x.example or a@b.example!",
        "&amp; &#60;",
    ],
)
@pytest.mark.parametrize("render", [markdown_prose, html_text])
def test_prose_outside_of_backticks_is_shown_literally(prose, render):
    tokens = markdown_tokens(render(prose))
    kinds = {token.type for token in tokens if token.content not in ("<code>", "</code>")}
    literal = {"paragraph_open", "paragraph_close", "inline", "text", "text_special", "code_inline"}
    assert kinds <= literal
    assert markdown_text(render(prose)) == prose + "\n"


def test_the_plain_file_has_no_backslashes():
    text = "In tail_stats | step_budget: 1 -> 2 of (x_y), 30 % & more; `a|b` and <b>."
    expected = "In `tail_stats` | `step_budget`: 1 -> 2 of (`x_y`), 30 % & more; `a|b` and `<b>`."
    assert markdown_prose(text) == expected


@given(NAMES)
def test_a_name_in_prose_is_one_piece_of_code(name):
    code = quoted(name)[1:-1]
    tokens = markdown_tokens(f"It is {markdown_prose(quoted(name))}.")
    assert [token.content for token in tokens if token.type == "code_inline"] == [code]


def test_a_finding_says_evidence_where_and_what_to_do_below_its_title(tmp_path):
    manifest, _ = made_results(tmp_path, ROWS)
    full = replace(FINDING, rank=3, window_ns=(5, 9), record="--trace=cuda")
    text = head_markdown(made_report(manifest, full))
    assert text.endswith(
        "\n\n1. **high**: `gemm` takes 60.0 % of the kernel time\n"
        "   - Could gain: about 200 ms, 20.0 % of 1 s on one GPU of rank 3\n"
        "   - Evidence: 3 s of 5 s. (`kernels`, `devices`)\n"
        "   - Where: `--ranks 3 --filter-time 5/9`\n"
        "   - To do: Look at its launches.\n"
        "   - Record next time: `--trace=cuda`"
    )


@pytest.mark.parametrize(
    ("where", "shown"),
    [({"rank": 0}, "`--ranks 0`"), ({"window_ns": (0, 7)}, "`--filter-time 0/7`"), ({}, None)],
)
def test_where_to_look_is_what_the_finding_knows(tmp_path, where, shown):
    report = made_report(made_results(tmp_path, ROWS)[0], replace(FINDING, **where))
    text = head_markdown(report)
    assert ("Where:" in text) == (shown is not None)
    assert shown is None or f"- Where: {shown}\n" in text


def test_the_capture_is_lists_of_facts_caveats_and_what_is_missing(tmp_path):
    report = made_report(
        made_results(tmp_path, ROWS)[0],
        facts=(("hosts", "`a|b`, 2 of *3*"), ("GPUs", "`H|`")),
        caveats=("`rank0`: *cold*.", "Second."),
        unrecorded=(Unrecorded("copies", "--trace=cuda"),),
    )
    text = capture_markdown(report)
    shown = markdown_text(text)
    assert "hosts: a|b, 2 of *3*\n" in shown
    assert "GPUs: H|\n" in shown
    assert "rank0: *cold*." in shown
    items = [token for token in markdown_tokens(text) if token.type == "list_item_open"]
    assert len(items) == 5


def test_the_report_has_the_sections_that_the_manifest_chose(tmp_path):
    hidden = replace(SECTION, title="Hidden", lead=False)
    manifest, results = made_results(tmp_path, ROWS, [SECTION, hidden])
    text = report_markdown(made_report(manifest, FINDING), results)
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings == ["# Made hotspots", "## Findings: 1 high", "## Capture", "## Top kernels"]
    assert text.endswith("\n")
    assert "\n\n\n" not in text


@pytest.mark.parametrize("words_n", [10, 60, 200, 800])
def test_a_report_tells_fewer_findings_where_they_are_long_and_counts_the_others(tmp_path, words_n):
    manifest, results = made_results(tmp_path, ROWS)
    findings = [replace(FINDING, title=f"title{n}", details="word " * words_n) for n in range(12)]
    text = report_markdown(made_report(manifest, *findings), results)
    shown = [n for n in range(12) if f"title{n}\n" in text]
    assert shown == list(range(max(1, len(shown))))
    assert len(shown) <= MOST_SHOWN
    assert f"And {12 - len(shown)} more in" in text
    assert len(text.split()) <= 1_500 or len(shown) == 1
    if len(shown) < MOST_SHOWN:
        # A finding more is one too many.
        assert len(text.split()) + words_n > 1_400
