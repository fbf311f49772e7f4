"""Findings and capture as HTML: inert, folded, linked; the same in a notebook's Markdown."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from rendered import Markup, markdown_text, markdown_tokens
from report_maker import FINDING, made_report, made_results, price_of

from nsys_llm.report.page import (
    capture_html,
    findings_html,
    html_text,
)
from nsys_llm.report.report import Unrecorded
from nsys_llm.view.text import quoted

#: Any text but code points that stand for no character, which a renderer may replace.
NAMES = st.text(st.characters(exclude_categories=("Cs", "Cn")), max_size=60)
LINKS = {"kernels": "Top kernels"}


@given(NAMES)
def test_a_name_in_a_notebook_is_text_whatever_it_holds(name):
    text = html_text(quoted(name))
    inline = [token for token in markdown_tokens(text) if token.type == "html_inline"]
    assert [token.content for token in inline] == ["<code>", "</code>"]
    assert markdown_text(text).rstrip("\n") == quoted(name)[1:-1]
    assert "$" not in text


def test_what_looks_like_a_formula_in_prose_is_code_where_no_notebook_looks_for_one():
    # JupyterLab reads the finished page, in which a reference is the character itself.
    assert html_text("file $y$: \\(z") == (
        "file <code>&#36;</code>y<code>&#36;</code>: <code>&#92;</code>(z"
    )


def test_a_finding_unfolds_to_evidence_where_and_what_to_do():
    full = replace(FINDING, rank=3, window_ns=(5, 9), record="--trace=cuda")
    page = Markup(findings_html([full], LINKS, {}))
    assert page.problems == []
    assert page.text.endswith(
        "1. high gemm takes 60.0 % of the kernel time"
        "Could gain: about 200 ms, 20.0 % of 1 s on one GPU of rank 3"
        "Evidence: 3 s of 5 s. (kernels, devices)"
        "Where: --ranks 3 --filter-time 5/9"
        "To do: Look at its launches."
        "Record next time: --trace=cuda"
    )


def test_tables_of_a_finding_are_links_where_their_section_is_shown():
    text = findings_html([FINDING], LINKS, {})
    assert '<a href="#Top-kernels">kernels</a>, <code>devices</code>' in text


def test_the_first_finding_is_unfolded_if_it_is_severe_and_the_others_wait():
    severities = ["high", "medium", "low", "high", "medium"]
    findings = [replace(FINDING, price=price_of(name)) for name in severities]
    opened = [
        line.startswith("<details open>")
        for line in findings_html(findings, {}, {}).splitlines()
        if line.startswith("<details")
    ]
    assert opened == [True, False, False, False, False]


def test_the_capture_has_a_row_a_fact_and_an_item_a_caveat(tmp_path):
    report = made_report(
        made_results(tmp_path, [])[0],
        facts=(("hosts", "`a|b`, 2 of *3*"),),
        caveats=("`rank0`: *cold*.",),
        unrecorded=(Unrecorded("copies", "--trace=cuda"),),
    )
    page = Markup(capture_html(report))
    assert page.problems == []
    assert page.rows == [["a|b, 2 of *3*"]]
    assert "Read the numbers with this in mind:rank0: *cold*." in page.text
    assert page.text.endswith("these flags record it:copies: --trace=cuda")
