"""trace_diff on the demo's two runs: what is planted is found, and merging changes nothing."""

from __future__ import annotations

import pytest
from demo_truth import write_demo
from finding_numbers import checked
from quick_run import quick
from results import analyse, assert_same, read_frames, read_report

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.manifest.options import resolved_options
from nsys_llm.profile.inputs import expand_sides
from nsys_llm.recipes.trace_diff.analysis import ANALYSIS
from nsys_llm.recipes.trace_diff.tables import collectives
from nsys_llm.run.worker import map_profiles, merge_results
from nsys_llm.testing.trace_bulk import base_name
from nsys_llm.trace.rank_sets import entries_by_side, number_sides

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
    """Return the rows of kernels with these base names."""
    return frame[frame["name"].map(base_name).isin(names)]


def test_planted_changes_of_kernels_are_found(demo, tables):
    planted, kernels = demo.planted, tables["kernels"]
    (longer,) = named(kernels, [planted.longer_kernel]).to_dict("records")
    assert longer["verdict"] == "regress"
    assert longer["baseline_launches_n"] == longer["input_launches_n"]
    assert longer["mean_ratio"] == pytest.approx(planted.longer_ratio, rel=0.02)
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


@pytest.mark.nightly
def test_with_steps_that_tell_no_tokens_other_sizes_are_other_work(demo, words, tmp_path):
    options = [*words, "--step", "engine_step"]
    out = analyse(tmp_path / "out", *demo.after, options=options, recipe=RECIPE)
    report = checked(read_report(out)["report"])
    answer = report["answer"]
    assert answer.startswith("OTHER WORK: problem sizes changed: ")
    # Tables are written all the same; only sentences of effect are withheld.
    assert not [finding for finding in report["findings"] if finding["kind"] == "performance"]
    assert demo.planted.longer_kernel not in answer


@pytest.fixture(scope="module")
def results(demo, words):
    given = {"input": [str(path) for path in demo.after], "baseline": words[1:]}
    options = resolved_options(load_manifest(RECIPE), given)
    inputs, _ = expand_sides(entries_by_side(options))
    return options, [map_profiles([profile], recipe=RECIPE, options=options) for profile in inputs]


def made(results, order):
    options, parts = results
    merged = merge_results([parts[at] for at in order], recipe=RECIPE)
    return ANALYSIS.tabulate(merged.partial, number_sides(merged, {}), options)


@pytest.mark.nightly
def test_the_order_of_merging_changes_nothing(results):
    first, other = made(results, range(8)), made(results, [7, 2, 4, 0, 6, 1, 5, 3])
    assert first.keys() == other.keys()
    for name, frame in first.items():
        assert frame.equals(other[name]), name


def test_merging_is_associative_and_has_an_identity(results):
    _, parts = results
    first, two, three, four = (parts[at].partial for at in (0, 5, 2, 7))
    merge = ANALYSIS.merge
    left = merge([merge([merge([first, two]), ANALYSIS.partial()]), merge([three, four])])
    right = merge([first, merge([merge([four, two]), three])])
    assert left.sides.keys() == right.sides.keys() == {"baseline", "input"}
    for side, part in left.sides.items():
        other = right.sides[side]
        assert part.ranks.keys() == other.ranks.keys()
        assert part.keys == other.keys
        assert (part.total_ns == other.total_ns).all()
        for name in ("group", "value", "count"):
            assert (getattr(part.counts, name) == getattr(other.counts, name)).all()


@pytest.mark.nightly
def test_every_mode_gives_the_same_bits(demo, words, out, tmp_path):
    options = [*words, "--mode", "concurrent"]
    analyse(tmp_path / "out", *demo.after, options=options, recipe=RECIPE)
    assert_same(out, tmp_path / "out", recipe=RECIPE)


@pytest.mark.nightly
def test_collectives_are_matched_once_a_run(demo, monkeypatch):
    match, calls = collectives.match_collectives, []

    def counting(*words):
        calls.append(words)
        return match(*words)

    monkeypatch.setattr(collectives, "match_collectives", counting)
    quick(RECIPE, f"--baseline={demo.baseline[0].parent}", *demo.after)
    assert len(calls) == 2
