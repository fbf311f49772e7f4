"""NVTX ranges: how a choice is typed, what it matches, and which ranges are the steps."""

import numpy as np
import pytest

from nsys_llm.core.errors import UsageError
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.manifest.range_choice import RangeChoice, parse_choice
from nsys_llm.profile.tables import Table
from nsys_llm.trace.ranges import Ranges, chosen_ranges, distinct_ranges, read_ranges, step_ranges

PUSH_POP, START_END, MARK, DOMAIN = 59, 60, 34, 75
STRINGS = {1: "registered"}


def ranges_of(*rows):
    """Return ranges from (name, start, end) or (name, start, end, thread, domain, any_thread)."""
    full = [(*row, *(1, "", False)[len(row) - 3 :]) for row in rows]
    name, start, end, thread, domain, shared = zip(*full, strict=True)
    return Ranges(
        start_ns=np.array(start),
        end_ns=np.array(end),
        thread=np.array(thread),
        any_thread=np.array(shared),
        name=np.array(name, dtype=object),
        domain=np.array(domain, dtype=object),
    )


def events_of(*rows):
    """Return NVTX events from (type, start, end, text, text id, thread, domain id)."""
    columns = ["event_type", "start_ns", "end_ns", "text", "text_id", "global_tid", "domain_id"]
    cells = dict(zip(columns, zip(*rows, strict=True), strict=True))
    texts = np.array(cells.pop("text"), dtype=object)
    return Table({"text": texts, **{name: np.array(values) for name, values in cells.items()}})


def spans(ranges):
    return list(zip(ranges.name, ranges.start_ns.tolist(), ranges.end_ns.tolist(), strict=True))


def chosen(ranges, text):
    return chosen_ranges(ranges, parse_choice(text)).start_ns.tolist()


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("step", RangeChoice("step")),
        ("step@NCCL", RangeChoice("step", "NCCL")),
        ("step/2", RangeChoice("step", None, 2)),
        ("step@NCCL/0", RangeChoice("step", "NCCL", 0)),
        ("step@default", RangeChoice("step", "default")),
        ("step@*/3", RangeChoice("step", None, 3)),
        ("step@", RangeChoice("step")),
        ("model/layer", RangeChoice("model/layer")),
        ("model/layer/7", RangeChoice("model/layer", None, 7)),
        (r"model\/7", RangeChoice("model/7")),
        (r"a\@b@c", RangeChoice("a@b", "c")),
        (r"a@b\/1", RangeChoice("a", "b/1")),
        (r"a\\", RangeChoice("a\\")),
        ("two words", RangeChoice("two words")),
    ],
)
def test_a_choice_is_range_domain_and_index(text, choice):
    assert parse_choice(text) == choice


@pytest.mark.parametrize("text", ["", "@", "@NCCL", "a@b@c", "a\\"])
def test_a_choice_without_a_name_or_with_two_domains_is_refused(text):
    with pytest.raises(UsageError, match="RANGE"):
        parse_choice(text)


def test_ranges_come_in_order_of_start_and_the_longer_first_one_never_closed_with_the_capture():
    events = events_of(
        (PUSH_POP, 2, NULL_INT, "open", NULL_INT, 1, 0),
        (PUSH_POP, 4, 6, "late", NULL_INT, 1, 0),
        (PUSH_POP, 2, 3, "short", NULL_INT, 1, 0),
        (PUSH_POP, 2, 9, "long", NULL_INT, 1, 0),
    )
    found = [("open", 2, 20), ("long", 2, 9), ("short", 2, 3), ("late", 4, 6)]
    assert spans(read_ranges(events, {}, 20)) == found


@pytest.mark.parametrize("times", [(NULL_INT, 5), (-(2**62), 5), (5, 2**62), (5, 2)])
def test_a_range_without_times_that_a_capture_can_have_is_none(times):
    events = events_of((PUSH_POP, *times, "step", NULL_INT, 1, 0))
    assert spans(read_ranges(events, {}, 20)) == []
    assert distinct_ranges(events, {}, 20) == set()
    dot = events_of((PUSH_POP, 5, 5, "dot", NULL_INT, 1, 0))
    assert spans(read_ranges(dot, {}, 20)) == [("dot", 5, 5)]


def test_marks_and_domains_are_no_ranges_and_start_end_ranges_are_of_any_thread():
    events = events_of(
        (MARK, 1, NULL_INT, "mark", NULL_INT, 1, 0),
        (DOMAIN, 0, NULL_INT, "NCCL", NULL_INT, 1, 3),
        (START_END, 2, 4, "shared", NULL_INT, 7, 3),
        (PUSH_POP, 3, 4, "own", NULL_INT, 8, 0),
    )
    ranges = read_ranges(events, {}, 20)
    assert ranges.any_thread.tolist() == [True, False]
    assert ranges.thread.tolist() == [7, 8]
    assert ranges.domain.tolist() == ["NCCL", ""]


def test_registered_texts_are_looked_up_and_unknown_ones_say_their_id():
    events = events_of(
        (PUSH_POP, 1, 2, None, 1, 1, 0),
        (PUSH_POP, 2, 3, None, 9, 1, 0),
        (PUSH_POP, 3, 4, None, NULL_INT, 1, 0),
    )
    names = read_ranges(events, STRINGS, 20).name.tolist()
    assert names == ["registered", "[unknown name 9]", ""]


@pytest.mark.parametrize(
    ("ranges", "text", "starts"),
    [
        # A name matches without its running numbers, too.
        (
            [("aten::mm, op_id = 3", 1, 2), ("aten::mm", 3, 4), ("aten::mmx", 5, 6)],
            "aten::mm",
            [1, 3],
        ),
        ([("aten::mm, op_id = 3", 1, 2), ("aten::mm", 3, 4)], "aten::mm, op_id = 3", [1]),
        # A domain is matched exactly, the nameless one as default.
        ([("a", 1, 2), ("a", 3, 4, 1, "NCCL"), ("a", 5, 6, 1, "nccl")], "a@NCCL", [3]),
        ([("a", 1, 2), ("a", 3, 4, 1, "NCCL")], "a@default", [1]),
        ([("a", 1, 2), ("a", 3, 4, 1, "NCCL")], "a@*", [1, 3]),
        ([("a", 1, 2), ("a", 3, 4, 1, "NCCL")], "a", [1, 3]),
        ([("a", 1, 2), ("a", 3, 4, 1, "NCCL")], "a@none", []),
        # An index counts from 0 on each thread, the ranges of that name and domain.
        ([("a", 1, 9, 1), ("a", 2, 9, 2), ("a", 3, 9, 2), ("a", 4, 9, 1)], "a/0", [1, 2]),
        ([("a", 1, 9, 1), ("a", 2, 9, 2), ("a", 3, 9, 2), ("a", 4, 9, 1)], "a/1", [3, 4]),
        ([("a", 1, 9, 1), ("a", 2, 9, 2)], "a/2", []),
        ([("b", 1, 2), ("a", 3, 4, 1, "NCCL"), ("a", 5, 6)], "a@default/0", [5]),
    ],
)
def test_a_choice_takes_the_ranges_that_it_names(ranges, text, starts):
    assert chosen(ranges_of(*ranges), text) == starts


def test_a_named_step_may_be_any_range():
    ranges = ranges_of(("a", 0, 9), ("b", 1, 2), ("a", 10, 12))
    assert step_ranges(ranges, parse_choice("a")).start_ns.tolist() == [0, 10]
