"""The table wall, its line, and what bounds a run."""

from __future__ import annotations

import pytest
from effort import nightly_but
from planted import frame_of
from results import rows, tables_of
from trace_builder import TraceBuilder

from nsys_llm.core.errors import ManifestError
from nsys_llm.manifest.manifest import load_manifest, recipe_names
from nsys_llm.report.outputs import declared_frame
from nsys_llm.report.wall import wall_rows
from nsys_llm.report.wall_line import wall_lines
from nsys_llm.taxonomy.categories import UNMATCHED, load_rules
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES
from nsys_llm.taxonomy.wall_classes import BOUND_WORDS, UNKNOWN, bound_group
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.wall import DeviceWall

KEY = RankKey("/in/rank0.sqlite", 7, "")
RANK = Rank(KEY, 0, "rank0", "index", None)
WALL = DeviceWall(
    device_id=0,
    span_start_ns=100,
    span_end_ns=1100,
    span_ns=1000,
    kernels_ns={"flash_fwd_kernel": 400, "nvjet_tst_a": 100, "nvjet_tst_b": 50, "odd": 25},
    graphs_ns=0,
    communication_ns=125,
    load_ns=0,
    copies_ns=0,
    profiler_ns=50,
    not_recorded_ns=0,
    no_work_ns=0,
    start_up_ns=0,
    idle_ns=250,
)


def table_of(details, wall=WALL):
    made = wall_rows([RANK], {(KEY, 0): wall}, details, load_rules("generic"))
    return declared_frame(load_manifest("trace_diff").table("wall"), made)


def parts(frame):
    return rows(frame, "wall_class detail time_ns")


def test_a_class_has_one_row_or_one_for_each_detail_and_all_add_up_to_the_span():
    frame = table_of({})
    assert parts(frame) == [
        ("compute", "attention", 400),
        ("compute", "gemm", 150),
        ("compute", UNMATCHED, 25),
        ("communication", None, 125),
        ("copies", None, 0),
        ("profiler", None, 50),
        ("idle", None, 250),
    ]
    assert frame["time_ns"].sum() == frame["span_ns"].iloc[0]
    assert frame["share_pct"].tolist() == [40, 15, 2.5, 12.5, 0, 5, 25]


def test_details_that_do_not_add_up_to_their_class_are_refused():
    with pytest.raises(ManifestError, match="idle"):
        table_of({(KEY, 0): {"idle": {"host_no_cuda": 200, "queued": 49}}})


def line_of(*details, covered=(), gpus=("rank0",)):
    """Return the line of GPUs of 1000 ns: (class, detail, ns) of each."""
    some = [
        {"wall_class": name, "detail": detail, "time_ns": ns, "span_ns": 1000, "file": file}
        for file in gpus
        for name, detail, ns in details
    ]
    given = {"wall": some, "coverage": covered, "files": []}
    tables = {name: frame_of(name, rows) for name, rows in given.items()}
    return wall_lines(tables)[0]


@pytest.mark.parametrize(
    ("some", "expected"),
    [
        (
            [("compute", "gemm", 700), ("communication", None, 200), ("idle", None, 100)],
            "GPU-BOUND, 50.0 points more than communication",
        ),
        # Undivided idle time is named as such: nobody looked the cause up.
        ([("compute", "gemm", 300), ("idle", None, 700)], "IDLE, 40.0 points more than compute"),
        # A run idles for all causes together, most of all for the host's.
        (
            [
                ("compute", "gemm", 300),
                ("idle", "host_no_cuda", 260),
                ("idle", "launch_api", 200),
                ("idle", "queued", 240),
            ],
            "HOST-BOUND, 40.0 points more than compute",
        ),
        (
            [("communication", "waiting", 500), ("communication", "transfer", 300)],
            "STRAGGLER-BOUND, 80.0 points more than compute",
        ),
        (
            [("compute", "gemm", 350), ("copies", None, 345), ("idle", "module_load", 305)],
            "GPU-BOUND and COPY-BOUND, 0.5 points apart",
        ),
        # The profiler is not the program.
        (
            [("compute", "gemm", 300), ("profiler", None, 500), ("copies", None, 200)],
            "GPU-BOUND, 10.0 points more than copies",
        ),
        # Where some causes are known, one of them is named; where none is, the bound is not known.
        (
            [("compute", "gemm", 450), ("idle", "host_no_cuda", 300), ("idle", "no_api", 250)],
            "HOST-BOUND, 10.0 points more than compute",
        ),
        (
            [("compute", "gemm", 450), ("idle", "no_api", 550)],
            "bound not known, as 55.0 % of the time has no known class or cause",
        ),
        (
            [("compute", "gemm", 600), ("idle", "host_no_cuda", 300), ("idle", "no_api", 100)],
            "GPU-BOUND, 20.0 points more than idle",
        ),
        (
            [("compute", "gemm", 29), ("idle", "host_no_cuda", 971)],
            "GPU HARDLY USED, 2.9 %, or its work is not recorded",
        ),
        # What runs in whole graphs may communicate.
        (
            [("compute", "whole_graph", 900), ("compute", "gemm", 60), ("idle", None, 40)],
            "IN WHOLE GRAPHS, 90.0 % of the time: what runs in them is not recorded",
        ),
        (
            [("compute", "whole_graph", 400), ("compute", "gemm", 300), ("idle", "no_api", 300)],
            "GPU-BOUND, 40.0 points more than idle",
        ),
        # What comes once holds half of the time; a little less, and it is the rest that is said.
        ([("load", None, 500), ("compute", "gemm", 500)], "LOAD, 50.0 % of the time"),
        (
            [("load", None, 499), ("compute", "gemm", 501)],
            "GPU-BOUND, 50.1 points more than communication",
        ),
        (
            [("compute", "gemm", 400), ("idle", "module_load", 510), ("idle", "queued", 90)],
            "START-UP, 51.0 % of the time",
        ),
        (
            [("compute", "gemm", 400), ("idle", "module_load", 490), ("idle", "queued", 110)],
            "START-UP-BOUND, 20.0 points more than compute",
        ),
    ],
)
def test_the_largest_class_bounds_the_run(some, expected):
    assert line_of(*some).bound.text == expected


def test_code_that_is_loaded_in_a_step_is_no_start_up():
    line = line_of(("compute", "gemm", 700), ("idle", "module_load", 300))
    assert "idle 30.0 % (code loading 30.0)" in [part.text for part in line.classes]


def test_time_in_which_work_ran_that_is_not_recorded_is_not_known():
    for lost, idle, word in (
        (100, 100, "GPU-BOUND"),  # a tenth of hidden work decides nothing
        (400, 250, "bound not known"),
        (600, 100, "NOT RECORDED"),
    ):
        some = [("not_recorded", None, lost), ("idle", "host_sync", idle)]
        line = line_of(("compute", "gemm", 1000 - lost - idle), *some)
        assert line.bound.word == word
        assert f"not recorded {lost / 10:.1f} %" in line.text


def test_the_line_is_of_all_gpus_together():
    some = [("compute", "gemm", 600), ("compute", "norm", 150), ("idle", None, 250)]
    line = line_of(*some, gpus=("rank0", "rank1"))
    assert line.text == (
        "wall, mean of 2 GPUs: GEMM 60.0 % | idle 25.0 % | pointwise and norm 15.0 %. "
        "GPU-BOUND, 50.0 points more than idle."
    )
    assert [part.text for part in line.classes] == ["compute 75.0 %", "idle 25.0 %"]


def test_small_kinds_of_computation_are_told_together():
    some = [("compute", name, 5) for name in ("rope", "sampling", "sort")]
    line = line_of(*some, ("compute", "gemm", 985))
    assert [part.text for part in line.parts] == ["GEMM 98.5 %", "other kernels 1.5 %"]


def test_the_inside_of_a_class_is_told_in_groups():
    some = [("idle", "host_no_cuda", 200), ("idle", "launch_api", 50), ("idle", "queued", 100)]
    line = line_of(*some, ("compute", "gemm", 650))
    assert line.parts[1].text == "idle 35.0 % (host 25.0, device latency 10.0)"


def test_every_cause_of_idle_time_has_a_group_with_a_word():
    groups = {bound_group("idle", cause) for cause in CAUSE_NAMES if cause != "profiler_overhead"}
    assert groups - {UNKNOWN} <= BOUND_WORDS.keys()


@pytest.fixture(scope="module")
def busy_rank(tmp_path_factory):
    """A rank with all classes: computes 10-30 and 60-70, communicates 20-50, copies 45-58."""
    trace = TraceBuilder().kernel("nvjet_tst_a", start_ns=10, duration_ns=20, launch=(1, 3))
    trace.kernel("ncclDevKernel_AllReduce_Sum_bf16", start_ns=20, end_ns=50, launch=(4, 6))
    trace.kernel("flash_fwd_kernel", start_ns=60, duration_ns=10, launch=(56, 59))
    trace.memcpy("HtoD", start_ns=45, end_ns=58, size_bytes=64)
    path = tmp_path_factory.mktemp("busy") / "rank0.sqlite"
    trace.write_sqlite(path)
    return path


def wall_of(output, path, recipe, options):
    # The overview tabulates the recipes that it runs, which only a whole run does.
    whole = recipe == "llm_overview"
    return tables_of(output, path, recipe=recipe, options=options, whole=whole)["wall"]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", nightly_but(recipe_names(), ["step_budget", "idle_gaps"]))
def test_a_window_that_leaves_the_capture_is_cut_to_it_in_every_recipe(recipe, busy_rank, tmp_path):
    # The capture ends with its last event, at 70.
    options = ["--filter-time", "5/900"]
    options += ["--baseline", str(busy_rank)] if recipe == "trace_diff" else []
    wall = wall_of(tmp_path / "out", busy_rank, recipe, options)
    assert set(rows(wall, "span_start_ns span_end_ns span_ns")) == {(5, 70, 65)}
