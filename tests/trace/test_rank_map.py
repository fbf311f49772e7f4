"""The file behind --rank-map: what it may say, and each mistake in it."""

from __future__ import annotations

import pytest

from nsys_llm.core.errors import UsageError
from nsys_llm.trace.identity import read_rank_map

FILE = "map.csv"


def test_a_rank_map_names_profiles_with_or_without_suffix():
    text = "file,pid,rank\na.sqlite,11,1\na.sqlite,12, 0\n b ,,2\nc_pqtdir,,3\n"
    expected = {("a", 11): 1, ("a", 12): 0, ("b", None): 2, ("c", None): 3}
    assert read_rank_map(FILE, text, ["a", "b", "c"]) == expected


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "file,rank"),
        ("file,rank\n", "file,rank"),
        ("name,number\na,0\n", "file,rank"),
        ("file,rank\na,\n", "'a' has the rank ''"),
        ("file,rank\na\n", "'a' has the rank ''"),
        ("file,rank\na,-1\n", "'-1'"),
        ("file,rank\na,zero\n", "'zero'"),
        ("file,pid,rank\na,main,0\n", "'a'"),
        ("file,rank\na,9999999999\n", "'9999999999'"),
        ("file,rank\nb,0\n", "gives no rank to a"),
    ],
)
def test_a_rank_map_that_does_not_number_the_set_is_refused(text, hint):
    with pytest.raises(UsageError) as caught:
        read_rank_map(FILE, text, ["a"])
    assert hint in caught.value.message
    assert FILE in caught.value.message


@pytest.mark.parametrize("rows", ["a,0\nb,0\n", "a,0\na,1\nb,2\n"], ids=["one rank", "one profile"])
def test_a_rank_map_that_contradicts_itself_is_refused(rows):
    # Falling through to another rule would number the ranks against the user's word.
    with pytest.raises(UsageError, match="--rank-map"):
        read_rank_map(FILE, "file,rank\n" + rows, ["a", "b"])


def test_a_rank_map_may_list_profiles_that_are_not_there():
    text = "file,rank\na,0\nelsewhere,0\n"
    assert read_rank_map(FILE, text, ["a"])["a", None] == 0
