"""Commands for Nsight Compute: places of launches against a count over a list of them."""

import re
import shlex

import numpy as np
import pytest
from effort import seeds
from quick_run import quick
from trace_builder import TraceBuilder

#: Functions, each with the names that kernels of it have in the report.
FUNCTIONS = {
    "gemm": ["void gemm<int>(int)", "void gemm<float>(float)"],
    "norm": ["norm(float *)"],
    "x.y": ["x.y"],
}
NAMES = [name for names in FUNCTIONS.values() for name in names]


def planted(path, random):
    """Write a random process with two GPUs; return function, name, device, start, length, is node.

    In the order of launches. Every length occurs once, and says which launch a row is about.
    """
    calls, launches, call_ns = [], [], 1_000
    for place in range(60):
        call_ns += int(random.integers(10, 400))
        device = int(random.integers(0, 2))
        queue = {"device_id": device, "stream_id": int(random.integers(7, 10))}
        nodes_n = int(random.integers(2, 5)) if random.random() < 0.3 else 1
        first_ns = call_ns + int(random.integers(10, 5_000))  # queues are of different lengths
        nodes = []
        for node in range(nodes_n):
            name, at, length = str(random.choice(NAMES)), first_ns + 900 * node, 100 + 10 * place
            nodes.append((name, at, at + length + node))
            function = next(known for known, names in FUNCTIONS.items() if name in names)
            launches.append((function, name, device, at, length + node, nodes_n > 1))
        calls.append((nodes, (call_ns, call_ns + 5), queue))
    report = TraceBuilder().process(pid=100)
    for place in random.permutation(len(calls)).tolist():
        nodes, call, queue = calls[place]
        if len(nodes) > 1:
            report.graph_launch(nodes[::-1], launch=call, **queue)
        else:
            (name, at, end), *_ = nodes
            report.kernel(name, start_ns=at, end_ns=end, launch=call, **queue)
    report.write_sqlite(path)
    return launches


def command(function, launches, length, rank):
    of_function = [launch for launch in launches if launch[0] == function]
    skip_n = [launch[4] for launch in of_function].index(length)
    is_node = of_function[skip_n][5]
    words = ["ncu", "--kernel-name", f"regex:^{re.escape(function)}$", "--launch-skip", str(skip_n)]
    words += ["--launch-count", "1", *(["--graph-profiling", "node"] if is_node else [])]
    return shlex.join([*words, "--export", f"rank_{rank}"])


@pytest.mark.parametrize("chosen", ["all", "time", "device"])
@pytest.mark.parametrize("seed", seeds(7, in_ci=1))
def test_a_command_names_the_launch_by_its_place_among_those_of_its_function(
    tmp_path, seed, chosen
):
    random = np.random.default_rng(seed)
    path = tmp_path / "t.sqlite"
    launches = planted(path, random)
    middle = sorted(launch[3] for launch in launches)[30]
    options = {"all": (), "time": (f"--filter-time={middle}/",), "device": ("--device=1",)}
    kernels = quick("llm_hotspots", path, *options[chosen])["rank_kernels"]
    shown = [
        launch
        for launch in launches
        if (chosen != "device" or launch[2] == 1) and (chosen != "time" or launch[3] >= middle)
    ]
    assert len(kernels) >= 4
    for row in kernels[kernels["launches_n"] > 0].to_dict("records"):
        lengths = sorted(
            launch[4]
            for launch in shown
            if (launch[1], launch[2]) == (row["name"], row["device_id"])
        )
        function = next(known for known, names in FUNCTIONS.items() if row["name"] in names)
        median = lengths[(len(lengths) - 1) // 2]
        assert row["ncu"] == command(function, launches, median, row["rank"])


def test_the_finding_on_a_slow_kernel_and_its_row_name_its_longest_launch(tmp_path):
    report = TraceBuilder().process(pid=100)
    for place in range(40):
        at = 1_000 + 20_000 * place
        length = 15_000 if place in (21, 30) else 1_000 + place
        report.kernel(
            "a<int>()", start_ns=at, duration_ns=length + (place == 30), launch=(at - 9, at)
        )
        report.kernel("a<float>()", start_ns=at + 17_000, duration_ns=500, launch=(at - 8, at))
    report.write_sqlite(tmp_path / "t.sqlite")
    tables = quick("tail_stats", tmp_path / "t.sqlite")
    slow = tables["findings"].set_index("rule").loc["slow_launches"]
    expected = "ncu --kernel-name 'regex:^a$' --launch-skip 60 --launch-count 1 --export rank_0"
    assert slow["ncu"] == expected
    assert tables["outliers"]["ncu"].iloc[0] == expected


def test_what_ran_after_a_graph_that_was_traced_as_a_whole_cannot_be_counted(tmp_path):
    report = TraceBuilder().process(pid=100)
    report.kernel("before", start_ns=100, duration_ns=10, launch=(50, 60))
    report.graph_launch([("hidden", 200, 300)], launch=(150, 160), mode="graph")
    report.kernel("after", start_ns=400, duration_ns=10, launch=(350, 360))
    report.write_sqlite(tmp_path / "t.sqlite")
    ncu = quick("llm_hotspots", tmp_path / "t.sqlite")["rank_kernels"].set_index("name")["ncu"]
    assert "--launch-skip 0 " in ncu["before"]
    assert ncu.isna()["after"]
