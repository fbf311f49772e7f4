"""The innermost open interval, against looking at all of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.nvtx.nvtx_tree import innermost_events
from nsys_llm.numeric.enclosing import innermost
from nsys_llm.profile.tables import Table
from nsys_llm.trace.ranges import event_texts

INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 15)), max_size=40)


@given(INTERVALS, st.lists(st.integers(-2, 60), max_size=15))
def test_the_last_started_of_the_open_ones_is_found(intervals, instants):
    intervals = sorted((start, -length) for start, length in intervals)
    starts = np.array([start for start, _ in intervals], dtype=np.int64)
    ends = np.array([start - length for start, length in intervals], dtype=np.int64)
    at = np.array(instants, dtype=np.int64)
    expected = [
        max((i for i in range(starts.size) if starts[i] <= instant < ends[i]), default=-1)
        for instant in instants
    ]
    assert innermost(at, starts, ends).tolist() == expected


def events(*rows):
    """Rows: text, start, end, type, thread."""
    columns = {"text": np.array([row[0] for row in rows], dtype=object)}
    for index, name in enumerate(("start_ns", "end_ns", "event_type", "global_tid"), start=1):
        columns[name] = np.array([row[index] for row in rows], dtype=np.int64)
    columns["text_id"] = np.full(len(rows), NULL_INT, dtype=np.int64)
    columns["domain_id"] = np.zeros(len(rows), dtype=np.int64)
    return Table(columns)


NESTED = events(
    ("step", 0, 20, 59, 1),
    ("layer", 2, 9, 59, 1),
    ("other thread", 3, 8, 59, 2),
    ("request", 1, 40, 60, 3),
    ("open", 30, NULL_INT, 59, 1),
    ("empty", 5, 5, 59, 1),
)


@pytest.mark.parametrize(
    ("at", "thread", "text"),
    [
        (5, 1, "layer"),
        (9, 1, "step"),  # half-open: the layer has ended
        (5, 2, "other thread"),
        (10, 2, "request"),  # a start/end range holds all threads where nothing else is open
        (0, 2, None),
        (35, 1, "open"),  # never closed: open until the capture ends, at 50
        (45, 1, "open"),
        (45, 2, None),
    ],
)
def test_a_launch_lies_in_the_innermost_range_of_its_thread(at, thread, text):
    row = innermost_events(NESTED, np.array([at]), np.array([thread]), 50)[0]
    assert (None if row < 0 else event_texts(NESTED, {})[row]) == text


def test_registered_texts_are_looked_up():
    table = NESTED.take(np.array([0]))
    table = Table({**table.columns, "text_id": np.array([7])})
    assert event_texts(table, {7: "registered"})[0] == "registered"
    assert event_texts(table, {})[0] == "[unknown name 7]"
