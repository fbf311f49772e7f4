"""Hostile names in a comparison: in its answer, findings, caveats, tables and figures."""

from __future__ import annotations

import json
import re

import pytest
from rendered import HOSTILE_NAMES, markdown_tokens
from results import analyse
from trace_builder import TraceBuilder

pytestmark = pytest.mark.drawn


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Two runs whose hosts, GPUs, ranges and kernels all have hostile names, and differ."""
    folder = tmp_path_factory.mktemp("hostile")
    paths = []
    for run, gpu in (("before", "GPU <b>`$x$|"), ("after", "[GPU](http://evil.example) <i>")):
        trace = TraceBuilder(hostname=f"host <b>`{run}`", gpu_name=gpu)
        at = 1_000
        for turn in range(9):
            trace.nvtx(f"<script>`step` {turn}", start_ns=at - 900, end_ns=at + 500)
            for index, name in enumerate(HOSTILE_NAMES):
                length = 300 + 50 * index * (run == "after")
                if run == "before" or index % 3:
                    call = (at - 800, at - 700)
                    trace.kernel(name, start_ns=at, duration_ns=length, launch=call)
                at += length + 1_000
        paths.append(trace.write_sqlite(folder / f"{run}.sqlite"))
    return analyse(folder / "out", *paths, recipe="trace_diff")


def test_the_report_has_no_raw_html_link_or_image(hostile):
    kinds = {
        child.type
        for token in markdown_tokens((hostile / "report.md").read_text("utf-8"))
        for child in [token, *(token.children or ())]
    }
    assert not kinds & {"html_inline", "html_block", "image", "link_open"}


def test_the_answer_quotes_every_name(hostile):
    report = json.loads((hostile / "report.json").read_text("utf-8"))["report"]
    for text in [report["answer"], *report["caveats"], *(f["details"] for f in report["findings"])]:
        plain = re.sub(r"`[^`]*`", "", text)
        assert "<" not in plain.replace("->", ""), text
        assert "evil.example" not in plain, text
