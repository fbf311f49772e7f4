"""Times, sizes, shares and names as people read them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.view.text import (
    NOT_KNOWN,
    cleaned,
    first_sentence,
    format_ns,
    format_percent,
    format_value,
    quoted,
    sentences,
    shortened,
    told_apart,
)


@pytest.mark.parametrize(
    ("value_ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1 us"),
        (1_234, "1.23 us"),
        (123_456, "123 us"),
        # Three figures of this would be 1000 us.
        (999_500, "1 ms"),
        (1_500_000, "1.5 ms"),
        (83_203_799_240, "83.2 s"),
        (4_512_000_000_000, "4,512 s"),
        (-1_500, "-1.5 us"),
        (0.5, "0.5 ns"),
    ],
)
def test_a_time_has_three_figures_in_a_unit_that_suits_it(value_ns, text):
    assert format_ns(value_ns) == text


def test_small_shares_keep_two_decimals():
    assert [format_percent(share) for share in (0, 0.04, 0.994, 0.999, 1, 99.96)] == [
        "0.0 %",
        "0.04 %",
        "0.99 %",
        "1.0 %",
        "1.0 %",
        "100.0 %",
    ]


@pytest.mark.parametrize("null", [None, pd.NA, np.nan, float("nan"), pd.NaT])
@pytest.mark.parametrize("unit", ["ns", "%", None, "count"])
def test_null_is_shown_as_not_known_whatever_its_form(null, unit):
    assert format_value(null, unit) == NOT_KNOWN


def test_a_value_is_shown_in_its_unit():
    assert format_value(1_500, "ns") == "1.5 us"
    assert format_value(2, "bytes") == "2 B"
    assert format_value(12.34, "%") == "12.3 %"
    assert format_value(1234, "count") == "1,234"
    assert format_value(1.5, "ratio") == "1.5"
    assert format_value(1555.2, "GB/s") == "1,555 GB/s"
    assert format_value(0.00532, "GB/s") == "5.32 MB/s"
    assert format_value("name", "ns") == "name"
    assert format_value(4101, None) == "4101"
    assert format_value(np.int64(7), None) == "7"


@given(st.integers(1, 2**62))
def test_a_shown_time_is_within_half_a_percent_of_the_true_one(value_ns):
    number, unit = format_ns(value_ns).replace(",", "").split()
    scale = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}[unit]
    assert float(number) * scale == pytest.approx(value_ns, rel=0.0051)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("It is idle. It waits.", ["It is idle.", "It waits."]),
        (
            "It takes 1.5 ms. `gemm` runs. Then. not",
            ["It takes 1.5 ms.", "`gemm` runs.", "Then. not"],
        ),
        ("In `step. Run. It` is 1 ms. It ends.", ["In `step. Run. It` is 1 ms.", "It ends."]),
        ("Eager vs. CUDA graphs. Both run.", ["Eager vs. CUDA graphs.", "Both run."]),
        ("Eager vs. `graph. B`. Both run.", ["Eager vs. `graph. B`.", "Both run."]),
        # A word that only ends in these letters; and a lone backtick quotes nothing.
        ("It names canvs. It ` ends. So.", ["It names canvs.", "It ` ends.", "So."]),
        ("No end", ["No end"]),
        ("", [""]),
    ],
)
def test_a_sentence_ends_at_a_full_stop_of_prose(text, parts):
    assert sentences(text) == parts
    assert first_sentence(text) == parts[0]


def test_a_name_in_prose_is_in_backticks_on_one_line():
    assert quoted("void f<int>(a*)") == "`void f<int>(a*)`"
    assert quoted("a`b\nc\x1b[31md") == "`a'b c [31md`"
    assert quoted("") == "`(no name)`"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ('{"Module": "model.layers.0", "Inputs": [[8, 4096]]}', "model.layers.0"),
        ("{'step': 5, 'name': 'decode', 'batch': ['a']}", "decode"),
        ('["forward", 3]', "forward"),
        # Names of code and of engines only look alike.
        ("{lambda(int)#1}::operator()", "{lambda(int)#1}::operator()"),
        ("[Executor] _forward_step 3: 0 ctx reqs", "[Executor] _forward_step 3: 0 ctx reqs"),
        ('{"batch": 8}', '{"batch": 8}'),
    ],
)
def test_of_a_name_that_is_json_prose_has_the_first_name(name, shown):
    assert quoted(name) == f"`{shown}`"


def test_a_long_name_keeps_its_begin_and_its_end():
    name = "begin" + "x" * 100 + "end"
    short = shortened(name, 20)
    # 20 = 12 of the begin, three dots, 5 of the end.
    assert short == "beginxxxxxxx...xxend"
    assert shortened("short", 20) == "short"


@given(st.text(max_size=200), st.integers(10, 80))
def test_a_shortened_name_never_exceeds_its_length(name, length):
    assert len(shortened(name, length)) <= length


_PARTS = st.sampled_from(
    ["nvjet_tst_", "64x8", "128x8", "_v_bz", "_TNT", "_TNN", "k", "<float>", "::"]
)


@given(
    st.lists(st.lists(_PARTS, min_size=1, max_size=14).map("".join) | st.text(), max_size=12),
    st.integers(8, 60),
)
def test_different_names_of_a_table_are_shown_different(names, length):
    shown = told_apart(names, length)
    assert all(len(text) <= length for text in shown)
    whole = [cleaned(name) for name in names]
    assert len(set(zip(whole, shown, strict=True))) <= len(set(names))
    for (name, text), (other, other_text) in combinations(zip(whole, shown, strict=True), 2):
        assert name == other or text != other_text
    # What fits stays as it is.
    for name, text in zip(whole, shown, strict=True):
        assert len(name) > length or text == name


def test_the_part_in_which_names_differ_is_what_is_shown():
    names = ["nvjet_tst_64x8_64x16_4x1_v_bz_TNT", "nvjet_tst_128x8_64x16_4x1_v_bz_TNT", "copy"]
    assert told_apart(names, 16) == ["nvje...64x8_64x1", "nvje...128x8_64x", "copy"]
    # In a wide column nothing is cut.
    assert told_apart(names, 60) == names
