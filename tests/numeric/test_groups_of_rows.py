"""Busiest windows, where the longest row of a group lies, and names without versions."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.operations.launches import busiest_window
from nsys_llm.numeric.longest import longest_starts
from nsys_llm.taxonomy.names import strip_api_version
from nsys_llm.trace.coded_names import coded_names


@given(starts=st.lists(st.integers(0, 40), max_size=12), length=st.integers(1, 15))
def test_no_window_holds_more_than_the_busiest(starts, length):
    busiest = busiest_window(np.array(starts, dtype=np.int64), length)
    held = [sum(at <= start < at + length for start in starts) for at in range(-20, 60)]
    assert busiest == max(held)


def test_the_longest_row_of_a_group_is_the_earliest_of_equals():
    # Group 0: 5 ns at 9 and at 3; the row of 7 ns does not count. Group 1 has no row that counts.
    group = np.array([0, 0, 0, 1])
    start, duration = np.array([9, 3, 1, 4]), np.array([5, 5, 7, 2])
    counted = np.array([True, True, False, False])
    longest = longest_starts(group, start, duration, counted, np.array([5, 0]))
    assert longest.tolist() == [3, NULL_INT]


def test_versions_of_a_name_are_one_name():
    strings = {4: "cudaMalloc_v3020", 5: "cudaFree_v3020", 6: "cudaMalloc_v9000"}
    ids = np.array([4, 5, 6, 7, NULL_INT])
    names, code = coded_names(ids, strings, strip_api_version)
    assert names == ("[unknown name 7]", "[unnamed]", "cudaFree", "cudaMalloc")
    assert code.tolist() == [3, 2, 3, 0, 1]
