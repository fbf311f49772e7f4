"""trace_diff on the demo's two runs: what is planted is found, and merging changes nothing."""

from __future__ import annotations

import pytest
from demo_truth import write_demo
from finding_numbers import checked
from results import analyse, read_frames, read_report

from nsys_llm.testing.trace_bulk import base_name

RECIPE = "trace_diff"


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    return write_demo(tmp_path_factory.mktemp("demo"), scale=0.5)


@pytest.fixture(scope="module")
def words(demo):
    return ["--baseline", *map(str, demo.baseline)]


@pytest.fixture(scope="module")
def out(demo, words, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return analyse(folder / "out", *demo.after, options=words, recipe=RECIPE)


@pytest.fixture(scope="module")
def tables(out):
    return read_frames(out)


def named(frame, names):
    return frame[frame["name"].map(base_name).isin(names)]


@pytest.mark.slow
def test_planted_changes_of_kernels_are_found(demo, tables):
    planted, kernels = demo.planted, tables["kernels"]
    (longer,) = named(kernels, [planted.longer_kernel]).to_dict("records")
    assert longer["verdict"] == "regress"
    assert longer["baseline_launches_n"] == longer["input_launches_n"]
    longer_ratio = longer["input_total_ns"] / longer["baseline_total_ns"]
    assert longer_ratio == pytest.approx(planted.longer_ratio, rel=0.02)
    new = named(kernels, planted.added_gemms | planted.added_attention)
    gone = named(kernels, planted.removed_gemms | planted.removed_attention)
    assert set(new["status"]) == {"new"}
    assert set(gone["status"]) == {"vanished"}
    others = set(kernels[kernels["status"] != "both"]["name"].map(base_name))
    # CUTLASS calls all of its kernels device_kernel.
    assert others - {"device_kernel"} == {*new["name"].map(base_name), *gone["name"].map(base_name)}


def test_planted_copies_and_fills_are_counted(demo, tables):
    planted, ranks_n = demo.planted, len(demo.baseline)
    rows = tables["memops"].set_index("kind")
    for kind, numbers in (("DtoD", planted.device_copies), ("memset", planted.memsets)):
        counts = rows.loc[kind, ["baseline_operations_n", "input_operations_n"]].tolist()
        assert counts == [ranks_n * n for n in numbers]


def test_the_answer_says_first_that_the_batch_is_larger(demo, out):
    """The server's own ranges tell the tokens of each step."""
    report = checked(read_report(out)["report"])
    answer = report["answer"]
    assert answer.startswith("OTHER WORK: batch 1 -> 16; -92.7 % a token; a decode step 4.7")
    assert answer.splitlines()[0].endswith(" us a generated token")
