"""Filters against loops over every range and every launch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.trace.filters import FoundPhase, FoundSteps, OpLaunches, select
from nsys_llm.trace.ranges import Ranges

NAMES = ("a", "b")

#: name, start, length, thread, whether of any thread.
range_rows = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.integers(0, 12),
        st.integers(0, 6),
        st.integers(1, 2),
        st.booleans(),
    ),
    max_size=5,
).map(lambda rows: sorted(rows, key=lambda row: (row[1], -row[2])))

#: launch instant, delay, length, thread, whether the launch is known.
op_rows = st.lists(
    st.tuples(
        st.integers(0, 18), st.integers(0, 3), st.integers(0, 5), st.integers(1, 2), st.booleans()
    ),
    max_size=7,
)


def ranges_of(rows):
    name, start, length, thread, shared = zip(*rows, strict=True) if rows else ([],) * 5
    starts = np.array(start, dtype=np.int64)
    return Ranges(
        start_ns=starts,
        end_ns=starts + np.array(length, dtype=np.int64),
        thread=np.array(thread, dtype=np.int64),
        any_thread=np.array(shared, dtype=bool),
        name=np.array(name, dtype=object),
        domain=np.array([""] * len(rows), dtype=object),
    )


def launches_of(rows):
    at, delay, length, thread, known = zip(*rows, strict=True) if rows else ([],) * 5
    at_ns = np.array(at, dtype=np.int64)
    starts = at_ns + np.array(delay, dtype=np.int64)
    # What the reader would leave where no call is known: another call's instant.
    at_ns = np.where(np.array(known, dtype=bool), at_ns, 3)
    return OpLaunches(
        start_ns=starts,
        end_ns=starts + np.array(length, dtype=np.int64),
        at_ns=at_ns,
        thread=np.array(thread, dtype=np.int64),
        known=np.array(known, dtype=bool),
    )


def launched_by(range_row, op_row):
    _, start, length, thread, shared = range_row
    at, _, _, caller, known = op_row
    return known and start <= at < start + length and (shared or caller == thread)


def instants(windows):
    return {at for low, high in windows.tolist() for at in range(low, high)}


@given(range_rows, op_rows)
def test_launched_in_takes_the_operations_whose_launch_lies_in_a_range(ranges, ops):
    selection = select(launches_of(ops), ranges_of(ranges), {"filter_nvtx": "a"})
    matching = [row for row in ranges if row[0] == "a"]
    expected = [any(launched_by(row, op) for row in matching) for op in ops]
    assert selection.launched.tolist() == expected
    assert selection.windows_ns is None
    assert bool(selection.notes) == (not matching)


@given(range_rows, op_rows)
def test_a_projected_range_spans_its_first_start_to_its_last_end_on_the_gpu(ranges, ops):
    selection = select(launches_of(ops), ranges_of(ranges), {"filter_projected_nvtx": "a"})
    expected: set[int] = set()
    for row in ranges:
        launched = [op for op in ops if row[0] == "a" and launched_by(row, op)]
        if launched:
            first = min(at + delay for at, delay, *_ in launched)
            last = max(at + delay + length for at, delay, length, *_ in launched)
            expected |= set(range(first, last))
    assert instants(selection.windows_ns) == expected
    assert selection.launched is None


@given(range_rows, op_rows, st.integers(0, 9), st.integers(1, 9))
def test_a_window_and_a_projected_range_leave_what_both_hold(ranges, ops, start, length):
    if not ops:
        ops = [(1, 1, 1, 1, True)]
    options = {"filter_projected_nvtx": "a", "filter_time": (start, start + length)}
    both = select(launches_of(ops), ranges_of(ranges), options).windows_ns
    options.pop("filter_time")
    spans = select(launches_of(ops), ranges_of(ranges), options).windows_ns
    assert instants(both) == instants(spans) & set(range(start, start + length))


@pytest.mark.parametrize(
    ("given_ns", "window"),
    [((4, 8), [4, 8]), ((None, 8), [2, 8]), ((4, None), [4, 15]), ((99, None), [99, 99])],
)
def test_an_open_side_of_a_window_ends_with_the_operations(given_ns, window):
    # The operations reach from 2 to 10 + 5 = 15.
    ops = launches_of([(2, 0, 3, 1, True), (10, 0, 5, 1, True)])
    assert select(ops, None, {"filter_time": given_ns}).windows_ns.tolist() == [window]


def test_no_option_selects_everything():
    selection = select(launches_of([(1, 0, 1, 1, True)]), None, {})
    assert (selection.windows_ns, selection.launched, selection.notes) == (None, None, [])


STEPS = ranges_of([("step", at, 4, 1, True) for at in (10, 20, 30)])
#: Before the steps, in each of the three, between two of them; and one whose launch is unknown.
OPS = launches_of(
    [
        (5, 0, 1, 1, True),
        (11, 0, 1, 1, True),
        (15, 0, 1, 1, True),
        (21, 0, 1, 1, True),
        (31, 0, 1, 1, True),
        (31, 0, 1, 1, False),
    ]
)


#: The same, with the step of each of these operations.
FOUND = FoundSteps(STEPS, np.array([-1, 0, -1, 1, 2, -1], dtype=np.int32), 14)


@pytest.mark.parametrize(
    ("steps", "kept"),
    [((0, 1), [1]), ((1, 3), [3, 4]), ((None, 2), [1, 3]), ((2, None), [4]), ((5, 9), [])],
)
def test_steps_take_what_is_launched_in_them_counted_from_0(steps, kept):
    selection = select(OPS, None, {"steps": steps}, FOUND)
    assert np.flatnonzero(selection.launched).tolist() == kept
    assert bool(selection.notes) is not bool(kept)


def test_skipping_the_warm_up_leaves_out_all_before_the_end_of_the_first_step():
    # The first step ends at 14; the launch that is not recorded is told by its start on the GPU.
    selection = select(OPS, None, {"skip_warmup": True}, FOUND)
    assert selection.launched.tolist() == [False, False, True, True, True, True]


def test_two_choices_of_launches_must_both_hold():
    selection = select(OPS, STEPS, {"filter_nvtx": "step/1", "steps": (1, 3)}, FOUND)
    assert np.flatnonzero(selection.launched).tolist() == [3]


@pytest.mark.parametrize("option", ["filter_nvtx", "filter_projected_nvtx"])
def test_a_range_that_is_not_there_selects_nothing_and_says_so(option):
    selection = select(OPS, STEPS, {option: "missing"})
    assert any("'missing'" in note for note in selection.notes)
    left = selection.launched if option == "filter_nvtx" else selection.windows_ns
    assert not left.any()


@pytest.mark.parametrize("options", [{"steps": (0, 1)}, {"skip_warmup": True}])
def test_without_steps_there_is_nothing_to_choose_from_and_a_note_says_so(options):
    selection = select(OPS, None, options)
    assert any("--step" in note for note in selection.notes)
    assert selection.there_n == ({"steps": 0} if "steps" in options else {})


@pytest.mark.parametrize("option", ["step", "step_kernel"])
def test_the_note_names_what_was_to_be_the_step(option):
    (note,) = select(OPS, None, {"skip_warmup": True, option: "mine"}).notes
    assert "'mine'" in note


def phase(*launched):
    windows = np.array([[11, 12], [31, 40]])
    return FoundPhase(
        np.array(launched), windows, lambda at_ns, tid: (at_ns > 20) & (tid == 1), ("decode",)
    )


def test_a_phase_chooses_launches_time_and_calls():
    chosen = phase(False, True, False, False, True, True)
    selection = select(OPS, None, {"phase": "decode", "filter_time": (0, 35)}, None, chosen)
    assert selection.launched.tolist() == chosen.launched.tolist()
    assert selection.windows_ns.tolist() == [[11, 12], [31, 35]]
    called = selection.chooses(np.array([10, 30, 30]), np.array([1, 1, 2]))
    assert called.tolist() == [False, True, False]
    assert (selection.notes, dict(selection.others)) == ([], {})


def test_a_phase_of_nothing_says_which_phases_there_are():
    selection = select(OPS, None, {"phase": "prefill"}, None, phase(*[False] * 6))
    assert selection.others == {"phase": ("decode",)}
    assert "no phase 'prefill'" in selection.notes[0]
