"""A made trace with everything in it that leads work to ranges, read back exactly."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from phase_run import quick
from results import rows
from trace_builder import TraceBuilder

STEPS = 12
STEP_NS = 10_000


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Return the tables of one rank, and the GPU time of each phase and way that was planted.

    Steps on one thread: prefill every fourth, else decode, eager or a graph; a second thread works
    for it in its backward range; start/end ranges around a third, and gaps in the marking.
    """
    generator = np.random.default_rng(7)
    trace = TraceBuilder()
    phases, parts, steps = Counter(), Counter(), Counter()
    cursor = 1_000_000

    def kernel(phase, part, step, at, tid=None, **others):
        nonlocal cursor
        length = int(generator.integers(1, 40)) * 32
        trace.kernel(
            "k", start_ns=cursor, duration_ns=length, launch=(at, at + 20), tid=tid, **others
        )
        cursor += length + 64
        phases[phase] += length
        parts[part] += length
        steps[step] += length

    trace.nvtx("capture", -9_000, -1_000).nvtx("decode layer", -8_000, -2_000)
    for node in (1, 2):
        trace.graph_node(900 + node, start_ns=-7_000 + node)
        trace.graph_node((5 << 32) + node, start_ns=-500, original_node_id=900 + node)
    for step in range(STEPS):
        base = step * STEP_NS
        trace.nvtx(f"train_step, op_id = {step}", base, base + 9_000)
        phase = "prefill" if step % 4 == 0 else "decode"
        trace.nvtx(phase, base + 100, base + 3_000)
        for launch in range(5):
            kernel(phase, "launch", step, base + 200 + 100 * launch)
        # Two domains that interleave: the other one outlives the phase.
        trace.nvtx("ncclGroup", base + 2_500, base + 3_500, domain="NCCL")
        kernel(phase, "launch", step, base + 2_600)
        kernel("unmapped", "launch", step, base + 3_200)
        trace.nvtx("backward", base + 4_000, base + 4_380)
        for launch in range(4):
            kernel("backward", "delegated", step, base + 4_020 + 100 * launch, tid=77)
        kernel("unmapped", "launch", step, base + 7_000)
        # Outside of any step: a free range, nothing, and a graph.
        trace.nvtx("sampling", base + 9_100, base + 9_300, kind="start_end", tid=77)
        kernel("sampling", "start_end", None, base + 9_150, tid=5)
        kernel("no_range", "unmarked_thread", None, base + 9_400, tid=5)
        kernel("no_range", "outside_ranges", None, base + 9_500)
        nodes = []
        for _ in (1, 2):
            length = int(generator.integers(1, 40)) * 32
            nodes.append(("n", cursor, cursor + length))
            cursor += length + 64
            phases["decode"] += length
            parts["graph_capture"] += length
        trace.graph_launch(nodes, launch=(base + 9_700, base + 9_720), graph_exec_id=5)
    length = 320
    trace.kernel("k", start_ns=cursor, duration_ns=length)
    phases["no_api"] += length
    parts["no_call"] += length
    path = trace.write_sqlite(tmp_path_factory.mktemp("planted") / "rank0.sqlite")
    return quick(path), phases, parts, steps


def test_planted_phases_are_read_back(planted):
    tables, phases, _, _ = planted
    assert {name: ns for name, ns in rows(tables["phases"], "phase gpu_ns") if ns} == phases


def test_planted_ways_are_read_back(planted):
    tables, _, parts, _ = planted
    assert dict(rows(tables["attribution"], "part gpu_ns")) == parts


def test_planted_steps_are_read_back(planted):
    tables, _, _, steps = planted
    by_step = dict(rows(tables["steps"], "step gpu_ns"))
    assert by_step == {step: ns for step, ns in steps.items() if step is not None}
    assert tables["rank_steps"]["name"].tolist() == ["train_step"]


def test_planted_ranges_are_read_back(planted):
    tables, _, parts, _ = planted
    ranges = tables["ranges"].set_index("name")
    assert ranges.loc["train_step", "instances_n"] == STEPS
    assert ranges.loc["backward", "self_ns"] == parts["delegated"]
    assert ranges.loc["decode layer", "self_ns"] == parts["graph_capture"]
    # Runs of a graph are no length of the range that captured it.
    assert ranges.loc["decode layer", "span_ns"] == 0
    assert ranges.loc["sampling", "kind"] == "start_end"
