"""Times that people type, and times and sizes shown to them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.core.errors import UsageError
from nsys_llm.manifest.options import parse_duration_ns


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [
        ("0", 0),
        ("1500", 1500),
        ("1.5ms", 1_500_000),
        ("0.001us", 1),
        ("4ns1s", 1_000_000_004),
        ("123456789.123456789s", 123_456_789_123_456_789),
    ],
)
def test_a_typed_time_is_exact_to_the_nanosecond(text, duration_ns):
    assert parse_duration_ns(text) == duration_ns


@pytest.mark.parametrize("text", ["", "s", "1.5", "5 s", "5m", "1s2", "x5s", "5sx", "1e3", "."])
def test_what_is_no_time_is_refused_and_named(text):
    with pytest.raises(UsageError, match="not a time") as caught:
        parse_duration_ns(text)
    assert repr(text) in caught.value.message


@given(*[st.integers(0, 999)] * 4)
def test_the_parts_of_a_time_add_up(s, ms, us, ns):
    assert parse_duration_ns(f"{s}s{ms}ms{us}us{ns}ns") == ((s * 1000 + ms) * 1000 + us) * 1000 + ns


def test_a_time_before_the_capture_is_refused_and_named():
    with pytest.raises(UsageError, match="'-3' is before the capture"):
        parse_duration_ns("-3")
