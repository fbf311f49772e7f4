"""Patterns that choose names."""

from __future__ import annotations

import pytest

from nsys_llm.core.errors import UsageError
from nsys_llm.core.patterns import parse_pattern


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        ("gemm", "sm90_xmma_GEMM_bf16", True),
        ("a.b", "axb", False),  # a dot is a dot
        ("a.b", "xA.By", True),
        ("k<int>", "void k<int>(int)", True),
        ("re:^k", "k1", True),
        ("re:^k", "void k1", False),
        ("re:^k", "K1", False),
        ("re:(?i)^k", "K1", True),
    ],
)
def test_plain_text_is_a_part_in_any_case_and_re_an_expression(pattern, name, found):
    assert parse_pattern(pattern).matches(name) == found


def test_one_of_several_names_is_enough():
    assert parse_pattern("b").matches("a", "b")
    assert not parse_pattern("c").matches("a", "b")


@pytest.mark.parametrize("text", ["", "  ", "re:", "re: "])
def test_an_empty_pattern_is_refused(text):
    with pytest.raises(UsageError, match="a name pattern is empty"):
        parse_pattern(text)


def test_a_broken_expression_is_refused_with_its_reason():
    with pytest.raises(UsageError, match=r"'re:\(' is not a regular expression \(.*unterminated"):
        parse_pattern("re:(")


@pytest.mark.parametrize("pattern", ["gemm\udcff", "re:\ud800"])
def test_bytes_that_are_no_text_are_refused(pattern):
    with pytest.raises(UsageError, match="bytes that are not UTF-8 text"):
        parse_pattern(pattern)
