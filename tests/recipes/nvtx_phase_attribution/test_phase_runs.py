"""Whole runs of nvtx_phase_attribution: modes, kinds of input, schemas, hostile names, bad rows."""

from __future__ import annotations

import re

import pytest
from effort import nightly_but
from phase_run import RECIPE, quick
from rendered import (
    HOSTILE_NAMES,
    INVISIBLE,
    PLOTLY,
    Markup,
    markdown_tokens,
    read_notebook,
    shown_by,
    strings_in,
)
from results import (
    LABELS,
    analyse,
    assert_same,
    demo_inputs,
    differences,
    only_tables,
    read_results,
    rows,
    tables_of,
)

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.run.cli import main
from nsys_llm.testing.trace_builder import TraceBuilder

pytestmark = pytest.mark.drawn


def events(version, rank=0):
    """Return a rank with steps, phases, a graph by its capture, copies, and odd ranges."""
    report = TraceBuilder(schema=version, duration_ns=999).environment(RANK=str(rank))
    report.process(pid=100 + rank, name="server", gpu_ids=(0, 1))
    report.nvtx("layer", 1, 9).graph_node(501, start_ns=3)
    report.graph_node((1 << 32) + 1, start_ns=12, original_node_id=501)
    for step in range(3):
        at = 100 * step + 20
        report.nvtx(f"step, seq = {step}", at, at + 80).nvtx("decode", at + 1, at + 60)
        report.nvtx("ncclAllReduce", at + 20, at + 30, domain="NCCL", registered=True)
        report.kernel("gemm", start_ns=at + 500, duration_ns=9 + rank, launch=(at + 2, at + 4))
        report.kernel(
            "ncclDevKernel_AllReduce",
            start_ns=at + 520,
            duration_ns=7,
            launch=(at + 21, at + 22),
            device_id=1,
        )
        report.memcpy(
            "HtoD", start_ns=at + 540, duration_ns=2, size_bytes=64, launch=(at + 70, at + 71)
        )
        report.graph_launch([("node", at + 550, at + 555)], launch=(at + 90, at + 92))
    report.nvtx("request", 5, 400, kind="start_end").nvtx("open", 325, None)
    return report


# On Dask results go through pickle, too.
@pytest.mark.slow
@pytest.mark.parametrize("mode", nightly_but(["concurrent", "dask-futures"], ["dask-futures"]))
def test_every_mode_gives_the_same_tables(shared_runs, mode, tmp_path):
    ranks = demo_inputs(shared_runs.ranks("demo"), RECIPE)
    alone = analyse(tmp_path / "none", *ranks, recipe=RECIPE)
    words = ["--output", str(tmp_path / mode), "--mode", mode, "--quiet"]
    assert main([RECIPE, *words, "--input", *map(str, ranks)]) == 0
    assert_same(alone, tmp_path / mode, recipe=RECIPE)


@pytest.mark.parametrize("version", ["3.7.2", "3.24.14", "3.30.1"])
def test_every_schema_and_kind_of_export_gives_the_same_tables(tmp_path, version):
    newest = events("3.25.0").write_sqlite(tmp_path / "rank0.sqlite")
    expected = only_tables(tmp_path / "expected", newest, recipe=RECIPE)
    for name in ("s", "p"):
        (tmp_path / name).mkdir()
    paths = [
        events(version).write_sqlite(tmp_path / "s" / "rank0.sqlite"),
        events(version).write_parquet(tmp_path / "p" / "rank0_pqtdir"),
    ]
    for path in paths:
        output = only_tables(path.parent / "out", path, recipe=RECIPE)
        but = {*LABELS, "nsys_version", "schema_version", "clock_source", "table_present"}
        assert differences(read_results(expected), read_results(output), but) == []


def test_what_the_events_are_is_found(tmp_path):
    tables = quick(events("3.25.0").write_sqlite(tmp_path / "a.sqlite"))
    # Three kernels of 9 and three of 7 in decode; copies in the step alone; the graph's nodes
    # lie in no push/pop range at their launch, so that the start/end range holds them.
    assert {name: ns for name, ns in rows(tables["phases"], "phase gpu_ns") if ns} == {
        "decode": 48,
        "unmapped": 6 + 15,
    }
    assert dict(rows(tables["attribution"], "part gpu_ns")) == {"launch": 54, "graph_launch": 15}
    assert tables["marks"]["without_end_n"].tolist() == [1]
    assert sorted(tables["devices"]["device_id"]) == [0, 1]
    by_path = dict(rows(tables["range_tree"], "path self_ns"))
    assert by_path["step / decode / ncclAllReduce@NCCL"] == 21
    assert by_path["request [start/end]"] == 15


def test_the_capture_of_nodes_comes_first_if_asked(tmp_path):
    path = events("3.25.0").write_sqlite(tmp_path / "a.sqlite")
    tables = quick(path, "--graph-ranges", "capture")
    assert dict(rows(tables["range_tree"], "path self_ns"))["layer"] == 15
    assert dict(rows(tables["attribution"], "part gpu_ns"))["graph_capture"] == 15
    # Runs of a graph are no length of the range that captured it.
    assert dict(rows(tables["ranges"], "name span_ns"))["layer"] == 0


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    trace = TraceBuilder()
    for step in range(3):
        base = 10_000 * step
        trace.nvtx(f"{HOSTILE_NAMES[0]} {step}", base, base + 9_000)
        for index, name in enumerate(HOSTILE_NAMES):
            at = base + 100 * index + 10
            trace.nvtx(name, at, at + 90, domain=HOSTILE_NAMES[2] if index % 2 else "")
            trace.kernel(name, start_ns=at + 50, duration_ns=30, launch=(at + 10, at + 20))
    phases = folder / "phases.json"
    phases.write_text('{"<b>`$x$`|</b>": "re:script|tex", "[a](b)": "img"}')
    path = trace.write_sqlite(folder / "rank0.sqlite")
    return analyse(folder / "out", path, options=["--phase-map", str(phases)], recipe=RECIPE)


def test_no_name_of_a_range_becomes_an_element_or_a_formula(hostile):
    notebook = read_notebook(hostile)
    pages = [Markup(data["text/html"]) for data in shown_by(notebook)]
    assert [problem for page in pages for problem in page.problems] == []
    labels = [text for data in shown_by(notebook) for text in strings_in(data.get(PLOTLY))]
    assert any("script" in label for label in labels)
    for label in labels:
        assert re.findall(r"<(?!br>|/?extra>)", label) == [], label
        assert label.count("$") < 2, label


def test_no_name_of_a_range_becomes_markup_of_the_report(hostile):
    report = (hostile / "report.md").read_text("utf-8")
    kinds = {token.type for token in markdown_tokens(report)}
    assert not {"html_block", "html_inline", "image", "link_open"} & kinds
    assert INVISIBLE.search(report) is None
    assert re.findall(r"(?<!\\)\$", re.sub(r"(`+)[^`].*?\1", "", report)) == []


def test_odd_ranges_cost_nothing_but_themselves(tmp_path):
    trace = TraceBuilder().nvtx("decode", 0, 50).nvtx("backwards", 30, 20).nvtx("empty", 5, 5)
    trace.raw("NVTX_EVENTS", start=1, end=40, eventType=59, textId=4711)
    trace.raw("NVTX_EVENTS", start=2, end=30, eventType=59, text=None)
    trace.raw("NVTX_EVENTS", start=3, end=20, eventType=59, text="nobody's", globalTid=None)
    trace.nvtx("mark", 4, kind="mark")
    trace.kernel("a", start_ns=60, duration_ns=4, launch=(6, 7))
    trace.kernel("b", start_ns=70, duration_ns=5, launch=(35, 36))
    trace.kernel("c", start_ns=80, duration_ns=6, launch=(45, 46))
    path = trace.write_sqlite(tmp_path / "a.sqlite")
    tables = tables_of(tmp_path / "o", path, recipe=RECIPE)
    assert tables["phases"]["gpu_ns"].sum() == 15
    assert dict(rows(tables["phases"], "phase gpu_ns"))["decode"] == 15
    assert tables["marks"]["empty_n"].tolist() == [2]


@pytest.mark.parametrize("table", ["NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"])
def test_a_report_without_a_table_says_what_is_lost(tmp_path, table, capsys):
    trace = TraceBuilder().kernel("a", start_ns=5, duration_ns=4)
    if table == "NVTX_EVENTS":
        trace.api("cudaLaunchKernel_v7000", start_ns=1, end_ns=2)
    else:
        trace.nvtx("decode", 0, 9)
    path = trace.write_sqlite(tmp_path / "a.sqlite")
    analyse(tmp_path / "o", path, recipe=RECIPE)
    said = (tmp_path / "o" / "report.md").read_text("utf-8")
    name = {"NVTX_EVENTS": "nvtx_events", "CUPTI_ACTIVITY_KIND_RUNTIME": "api_calls"}[table]
    (lost,) = (source.lost for source in load_manifest(RECIPE).reads if source.table == name)
    assert lost in said
    assert "--trace=cuda" in said
